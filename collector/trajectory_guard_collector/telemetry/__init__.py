"""The collector's own metrics and logs."""
