"""Whose step it is, and which run it belongs to: written once, used by processor, gates, collector and replay."""
