"""Where telemetry comes in: OTLP over gRPC and over HTTP, with authentication, TLS and bounds on every client."""
