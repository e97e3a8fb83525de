"""Telemetry in and out: receivers, queues, exporters. Scoring never imports it."""
