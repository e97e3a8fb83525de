"""The shell around the core on an OpenTelemetry ``TracerProvider``: reads spans, emits spans, metrics and logs."""
