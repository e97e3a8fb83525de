"""One OTLP service that scores the agents of a whole fleet with the engine of ``trajectory_guard``."""
