"""Delivery of accepted batches to the exporters: queues in memory and on disk."""
