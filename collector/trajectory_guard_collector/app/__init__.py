"""The process: its parts, their start, and their end."""
