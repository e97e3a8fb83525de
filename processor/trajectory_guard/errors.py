"""The base of exceptions whose constructor takes something else than their text."""

from __future__ import annotations

import copyreg
from typing import Any


class PortableError(Exception):
    """An exception that is copied, and sent to another process, as it is.

    Python would call its class with the text alone. In a pool of processes, which does so with what a job raises, that
    breaks the pool.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]
