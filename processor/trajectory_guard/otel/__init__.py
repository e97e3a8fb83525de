"""The shell around the core on an OpenTelemetry ``TracerProvider``: spans in, spans, metrics and logs out."""
