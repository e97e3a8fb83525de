"""Writes the dashboards and alert rules from one description: ``python -m dashboards.generator``."""
