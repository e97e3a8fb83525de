"""Records of scores for Langfuse: those that a collector would send, in the order in which they change."""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.integrations.langfuse.scores import LangfuseScore, ScoreBook, environment_of
from trajectory_guard.integrations.langfuse.scores import session_of as langfuse_session
from trajectory_guard_collector.fleet.live_trajectory import LiveTrajectory
from trajectory_guard_collector.fleet.records import Output, PoisonError, trajectory_key
from trajectory_guard_collector.scoring.item_codec import ItemFormatError, from_bytes, to_bytes
from trajectory_guard_collector.scoring.langfuse import episode_of, plain_episode

SCORE_VERSION: Final = 1


class ScoreRecords:
    """Writes the scores that the loop events of a trajectory change, at the commit.

    Parameters:
        output: takes records.
        max_episodes: loops of a trajectory that are remembered.
        redact: leave reasons out.
    """

    def __init__(self, output: Output, max_episodes: int, *, redact: bool) -> None:
        self._output, self._max_episodes, self._redact = output, max_episodes, redact

    def write(self, one: LiveTrajectory) -> None:
        """Write the scores of the events since the last commit.

        Raises:
            SendError: a record would be lost.
        """
        for event in one.events:
            item, book = event.item, one.scores or ScoreBook(self._max_episodes)
            scores = book.changes(
                event.verdict, item.view.trace_id, item.session or langfuse_session([item.view.attributes]),
                scope=item.tenant, redact=self._redact, at=item.order[0], now=one.now_s,
                environment=environment_of(item.view.attributes, item.origin.attributes),
            )  # fmt: skip
            one.scores = book if book.episodes else None
            for score in scores:
                data = to_bytes({"v": SCORE_VERSION, **score._asdict()})
                self._output.send("scores", trajectory_key(one.key or ("", "")), data, round(one.now_s * 1_000))

    def book(self, plain: list[Any] | None) -> ScoreBook | None:
        """Read ``plain_book``."""
        if not plain:
            return None
        book = ScoreBook(self._max_episodes)
        for (scope, trajectory, number), episode in plain:
            book.episodes[scope, trajectory, number] = episode_of(episode)
        return book


def plain_book(book: ScoreBook | None) -> list[Any] | None:
    """The scores written for the loops of a trajectory as JSON-able data."""
    if book is None:
        return None
    return [[list(key), plain_episode(episode)] for key, episode in book.episodes.items()]


def score_of(data: bytes) -> LangfuseScore:
    """Read a record.

    Raises:
        PoisonError: the bytes are no such record, or of another version.
    """
    try:
        plain = from_bytes(data)
        if (version := plain.pop("v")) != SCORE_VERSION:
            raise PoisonError(f"version {version!r} of a record of scores is unknown")
        score = LangfuseScore(**plain)
        if not (isinstance(score.id, str) and isinstance(score.timestamp, (int, float))):
            raise PoisonError("no record of a score: id or timestamp is of another type")
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ItemFormatError) as error:
        raise PoisonError(f"no record of a score: {type(error).__name__}: {error}") from None
    return score
