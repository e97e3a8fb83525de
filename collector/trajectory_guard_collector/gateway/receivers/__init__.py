"""Receivers: OTLP over gRPC and HTTP, with authentication, TLS and bounds on every client."""
