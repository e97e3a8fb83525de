"""The configuration: models, sources, checks, and how it is shown."""
