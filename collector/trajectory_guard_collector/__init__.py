"""One OTLP service that judges the agents of a whole fleet with the engine of ``trajectory_guard``."""
