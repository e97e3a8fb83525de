"""The shell around the core on an OpenTelemetry ``TracerProvider``: it reads spans and emits spans, metrics and logs."""
