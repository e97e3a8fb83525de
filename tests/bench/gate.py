"""The gate node: from the flag (and the messages) to the ``Command``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from tests.bench import shapes
from tests.bench.measure import Effort, Probe, interleave
from tests.bench.report import Row
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.gates.messages import new_steps

MOST_US = 50.0
CALLS = 9
COPIES = 10
_threads = count()


class Turn(NamedTuple):
    """The arguments of a gate."""

    state: dict[str, Any]
    config: dict[str, Any]


def messages(calls: int, *, looping: bool = False) -> list[Any]:
    """A system message, a question, and ``calls`` tool calls with their answers."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    found: list[Any] = [
        SystemMessage("You help with orders.", id="m0"),
        HumanMessage("Which orders are late?", id="m1"),
    ]
    for number in range(calls):
        reported = 0 if looping else number
        call = {"name": shapes.TOOL, "args": shapes.arguments(reported), "id": f"call_{number}"}
        usage = {"input_tokens": 900, "output_tokens": 40, "total_tokens": 940}
        found.append(AIMessage(f"I look at page {number}.", tool_calls=[call], id=f"a{number}", usage_metadata=usage))
        found.append(
            ToolMessage(shapes.answer(reported), name=shapes.TOOL, tool_call_id=f"call_{number}", id=f"t{number}")
        )
    return found


class Bench:
    """Runs of a guarded graph, each at the point where its gate is called for the ``CALLS``-th time."""

    def __init__(self, *, spans: bool, looping: bool = False) -> None:
        from trajectory_guard.gates.langgraph import TrajectoryGuardNode

        self.spans = spans
        self.messages = messages(CALLS, looping=looping)
        self.board = FlagBoard(GuardConfig())
        self.node = TrajectoryGuardNode(board=self.board)

    def call(self, turn: Turn) -> object:
        """One call of the gate."""
        return self.node.invoke(turn.state, turn.config)  # type: ignore[arg-type]

    def turns(self) -> list[Turn]:
        """Inputs for one round."""
        return [self._turn(f"thread-{next(_threads)}") for _ in range(COPIES)]

    def _turn(self, thread: str) -> Turn:
        config: dict[str, Any] = {"configurable": {"thread_id": thread}}
        state: dict[str, Any] = {"messages": self.messages[:2]}
        for end in range(4, len(self.messages) + 1, 2):
            state = {**state, "messages": self.messages[:end]}
            self._tell_spans(thread, end)
            if end < len(self.messages):
                state.update(self.node.invoke(state, config).update or {})  # type: ignore[call-overload,arg-type]
        return Turn(state, config)

    def _tell_spans(self, thread: str, end: int) -> None:
        if self.spans:
            last = self.messages[end - 2 : end]
            for step in new_steps(last, trajectory_id=thread, known=lambda call: False, now=float(end)):
                self.board.observe(step._replace(dialect="semconv", duration=0.1))


def rows(effort: Effort) -> Iterator[Row]:
    """With calls evaluated from spans already, without any spans, and with an intervention due."""
    benches = {
        "spans evaluated already": Bench(spans=True),
        "no spans: evaluates the messages": Bench(spans=False),
        "an intervention due": Bench(spans=True, looping=True),
    }
    probes = [Probe(name, bench.turns, bench.call) for name, bench in benches.items()]
    figures = interleave(probes, effort.times(0.5))
    for name in benches:
        yield Row(f"gate, 20 messages, {name}", figures.median(name), "us", most=MOST_US)


def fresh_calls() -> tuple[Callable[[], list[Turn]], Callable[[Turn], object]]:
    """Inputs and call of a gate that evaluates the messages, for comparison with a peer's node."""
    bench = Bench(spans=False)
    return bench.turns, bench.call
