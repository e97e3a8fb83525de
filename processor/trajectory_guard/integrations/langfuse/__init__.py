"""Scores in Langfuse, written from within the application."""
