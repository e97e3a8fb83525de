"""The names that a trajectory goes by."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

_AMBIGUOUS: Final = ""


class Aliases:
    """Which trajectory a thread id, session id or trace id stands for; the newest names are kept.

    A name that turns out to stand for several trajectories, as a trace around several runs does, stands for none.

    Parameters:
        limit: names kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._known: OrderedDict[str, str] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def link(self, trajectory_id: str, names: Iterable[str]) -> None:
        """Note other names of a trajectory."""
        for name in names:
            known = self._known.get(name)
            if name == trajectory_id or known == trajectory_id:
                continue
            self._known[name] = trajectory_id if known is None else _AMBIGUOUS
            if len(self._known) > self.limit:
                self._known.popitem(last=False)

    def is_shared(self, name: str) -> bool:
        """Whether a name stands for several trajectories."""
        return self._known.get(name) == _AMBIGUOUS

    def resolve(self, name: str) -> str:
        """The trajectory a name was linked to, else the name itself."""
        return self._known.get(name, name) or name
