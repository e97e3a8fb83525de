"""OTLP on the wire: signals, structure, spans."""
