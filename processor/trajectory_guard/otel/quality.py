"""Evaluations on spans into the board: the event ``gen_ai.evaluation.result`` of the GenAI semantic conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.quality import check_score
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.dialects.span import SpanView
from trajectory_guard.dialects.table import DialectTable
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock
from trajectory_guard.quality.quality import SPANS, Quality
from trajectory_guard.spans.extract import trajectory_id
from trajectory_guard.spans.identity import agent_name

EVENT: Final = "gen_ai.evaluation.result"
NAME: Final = "gen_ai.evaluation.name"
VALUE: Final = "gen_ai.evaluation.score.value"
RESPONSE_ID: Final = "gen_ai.response.id"
_MAX_NAME_CHARS: Final = 200
_UNNAMED: Final = "evaluation"


class Owner(NamedTuple):
    """The trajectory and the agent (empty if unknown) of a response."""

    trajectory: str
    agent: str


class ScoreFeed:
    """Hands the evaluations on spans to a board, each once.

    It remembers ``max_trajectories`` responses, so that evaluations which name one are found in any other span.
    """

    def __init__(self) -> None:
        self._responses: BoundedTable[str, Owner] = BoundedTable(0)  # ``read`` sets the limits
        self._seen: BoundedTable[tuple[str, str], None] = BoundedTable(0)
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()

    def read(
        self, board: FlagBoard, view: SpanView, above: Callable[[], Iterable[SpanView]],
        conversation_of: Callable[[SpanView], str], table: DialectTable,
    ) -> Iterator[Verdict]:  # fmt: skip
        """Learn the response of an ended span, and score its evaluations; yields the verdicts that follow.

        Parameters:
            above: gives the spans around it, nearest first.
            conversation_of: as for ``trajectory_id``.
        """
        quality, response = board.quality, view.attributes.get(RESPONSE_ID)
        events = [event.attributes for event in view.events if event.name == EVENT]
        if quality is None or not (response or events):
            return
        self._responses.limit = self._seen.limit = board.config.max_trajectories  # the process may have adopted another
        around = list(above())
        owner = Owner(trajectory_id(view, around, conversation_of, table), agent_name(view, around, table) or "")
        if response:
            with self._lock:
                self._responses[bounded_name(str(response))] = owner
        for attributes in events:
            verdict = self._score(board, quality, attributes, owner)
            if verdict is not None:
                yield verdict

    def _score(self, board: FlagBoard, quality: Quality, attributes: Mapping[str, Any], owner: Owner) -> Verdict | None:
        name = str(attributes.get(NAME) or _UNNAMED)[:_MAX_NAME_CHARS]
        if not quality.counts_evaluation(name):
            return None
        try:
            score = check_score(_number(attributes.get(VALUE)))
        except TypeError:
            quality.counts["quality.no_number"] += 1
            return None
        except ValueError:
            quality.counts["quality.out_of_range"] += 1
            return None
        response = attributes.get(RESPONSE_ID)
        if response:
            key = (name, bounded_name(str(response)))
            with self._lock:
                owner, repeated = self._responses.get(key[1], owner), key in self._seen
                self._seen[key] = None
            if repeated:
                quality.counts["quality.repeated"] += 1
                return None
        return board.record_score(owner.trajectory, score, name=name, source=SPANS, agent=owner.agent)


def _number(value: Any) -> Any:
    """A truth value is a label, not a score."""
    return None if isinstance(value, bool) else value
