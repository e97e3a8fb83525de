"""The owner and the run of a step: one implementation for processor, gates, collector and replay."""
