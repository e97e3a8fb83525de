"""From one tool span to a ``StepRecord``."""
