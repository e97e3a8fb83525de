"""Exports to other products."""
