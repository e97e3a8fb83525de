"""What was received waits for its exporters here."""
