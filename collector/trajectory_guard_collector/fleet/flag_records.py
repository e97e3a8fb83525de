"""Records of flags: all that ``GET /v1/flags/{trajectory}`` needs of a trajectory, written by the worker that holds it.

The worker writes a record when the reply to a gate changes: at every change of a trajectory that has a nudge, a stop or
a flag by hand; of any other one only when it begins, gets a further name, or loses its last flag. Each reader reads all
records, so a healthy agent must not cost one a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from trajectory_guard_collector.api.flag_replies import FlagState
from trajectory_guard_collector.fleet.live_trajectory import LiveTrajectory
from trajectory_guard_collector.fleet.records import Output, PoisonError, digest, trajectory_key
from trajectory_guard_collector.scoring.item_codec import from_bytes, to_bytes
from trajectory_guard_collector.scoring.items import Key
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.state.codec import current_of, hand_of, plain_current, plain_hand

FLAG_VERSION: Final = 2
_NUMBERS: Final = ("steps", "score", "episode", "nudges")
RENEWALS: Final = 4
"""A record is renewed after this share of the idle time after which readers forget it."""


class FlagRecord(NamedTuple):
    """A record of a flag.

    Fields:
        key: tenant and id of the trajectory.
        revision: of several records of a trajectory the highest holds.
        names: names by which it is found.
        gone: the trajectory has no steps any more.
        plain: the content.
    """

    key: Key
    revision: int
    names: tuple[str, ...]
    gone: bool
    plain: Any

    def state(self) -> FlagState:
        """The state to answer from."""
        plain = self.plain
        numbers = {name: plain[name] for name in _NUMBERS}
        if not all(isinstance(one, (int, float)) for one in numbers.values()):
            raise TypeError(f"{', '.join(_NUMBERS)}: not all of them are numbers")
        current, hand = current_of(plain["current"]), hand_of(plain["by_hand"])
        return FlagState(self.key, current=current, by_hand=hand, ended=tuple(plain["ended"]), **numbers)


def flag_record_of(data: bytes) -> FlagRecord:
    """Read a record.

    Raises:
        PoisonError: the bytes are no such record, or of another version.
    """
    try:
        plain = from_bytes(data)
        if plain["v"] != FLAG_VERSION:
            raise PoisonError(f"version {plain['v']!r} of a record of flags is unknown")
        key = (str(plain["tenant"]), str(plain["trajectory_id"]))
        record = FlagRecord(
            key, int(plain["revision"]), tuple(dict.fromkeys(plain["names"])), bool(plain["gone"]), plain
        )
        if not record.gone:
            record.state()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, PoisonError):
            raise
        raise PoisonError(f"no record of a flag: {type(error).__name__}: {error}") from None
    return record


def flag_content(trajectory: Trajectory, names: Iterable[str]) -> dict[str, Any]:
    """A record without its revision."""
    return {
        **_common(trajectory.key, names),
        **{name: getattr(trajectory, name) for name in _NUMBERS},
        "current": plain_current(trajectory.current._replace(last=None)),
        "ended": trajectory.ended,
        "by_hand": plain_hand(trajectory.by_hand),
        "gone": False,
    }


def _common(key: Key, names: Iterable[str]) -> dict[str, Any]:
    tenant, name = key
    return {"v": FLAG_VERSION, "tenant": tenant, "trajectory_id": name, "names": list(names)}


class FlagWriter:
    """Writes the record of a trajectory at the commit, if the answer to a gate has changed.

    Parameters:
        output: takes records.
        idle_s: seconds after which readers forget a record.
        clock: seconds since the epoch.
    """

    def __init__(self, output: Output, idle_s: float, clock: Callable[[], float]) -> None:
        self._output, self._clock = output, clock
        self._renew_s = idle_s / RENEWALS

    def write(self, one: LiveTrajectory) -> None:
        """Write what has changed of a trajectory, or that it has no steps any more.

        Raises:
            SendError: the record would be lost.
        """
        trajectory, now = one.only, self._clock()
        if one.key is None or (trajectory is None and not one.flagged and not one.again):
            return
        if trajectory is None:
            content, known = {**_common(one.key, ()), "gone": True}, ""
        else:
            content = flag_content(trajectory, one.aliases)
            stands = content["by_hand"] or trajectory.current.stands(trajectory.ended)
            known = digest(content if stands else {**content, **dict.fromkeys((*_NUMBERS, "current", "ended"))})
        if not one.again and known == one.flagged and now - one.flagged_s < self._renew_s:
            return
        data = to_bytes({**content, "revision": one.revision})
        self._output.send("flags", trajectory_key(one.key), data, round(now * 1_000))
        one.flagged, one.flagged_s = known, now
