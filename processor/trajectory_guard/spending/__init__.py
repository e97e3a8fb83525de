"""Spending: a ledger of tokens and money, budgets over it, and calls that cost far more than usual."""
