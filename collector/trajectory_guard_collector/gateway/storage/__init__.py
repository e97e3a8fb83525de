"""Storage that survives a restart, in SQLite."""
