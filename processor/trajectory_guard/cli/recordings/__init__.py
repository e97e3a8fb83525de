"""Recorded telemetry from files, whatever its form."""
