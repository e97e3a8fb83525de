"""Word lists are written as running text; this turns them into words."""


def words(text: str) -> list[str]:
    """The words of ``text``, split at spaces and line ends."""
    return text.split()
