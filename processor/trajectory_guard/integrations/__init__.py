"""What the guard writes to other products."""
