"""Tools that several programs hand to their frameworks: one fails, one finds nothing, one returns an empty list."""

# no postponed annotations: some frameworks read the types of the tools


def read_config(path: str) -> str:
    """Read."""
    raise FileNotFoundError(f"no such file: {path}")


def list_files(path: str) -> list[str]:
    """List."""
    return []


def kb_search(query: str) -> str:
    """Search."""
    return "No results found"


def now() -> str:
    """Tell the time."""
    return "noon"
