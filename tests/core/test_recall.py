"""What a run knows of a call that is requested again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.helpers import record
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.recall import NOT_MADE, KnownCall, recall
from trajectory_guard.core.state import TrajectoryState
from trajectory_guard.core.steps import NOT_RUN, StepRecord
from trajectory_guard.gates.messages import new_steps
from trajectory_guard.gates.refusal import RefusalRules, decide, past_of


def loop(times: int, agent: str | None = None) -> list[StepRecord]:
    return [record("search", {"q": "hours"}, "No results found", "empty", agent=agent) for _ in range(times)]


def observed(steps: Sequence[StepRecord]) -> TrajectoryState:
    engine = Engine()
    state = engine.new_state("t")
    for step in steps:
        engine.observe(state, step)
    return state


def test_equal_results_in_a_row_are_counted_by_whichever_agent() -> None:
    state = observed(loop(3, agent="alice"))
    assert recall(state, "", "SEARCH", {"q": "hours"}) == KnownCall(3, False)
    assert recall(state, "", "search", {"q": "prices"}) == NOT_MADE
    assert recall(state, "", "search", None) == NOT_MADE


def test_progress_ends_the_count_and_a_new_call_leaves_it_open() -> None:
    steps = [*loop(2), record("edit", {"text": 1}, "ok, the file has been written to disk")]
    assert recall(observed(steps), "", "search", {"q": "hours"}).open
    assert recall(observed([*steps, *loop(1)]), "", "search", {"q": "hours"}).times == 1


def test_a_long_pause_leaves_it_open() -> None:
    steps = [step._replace(timestamp=100.0 + at) for at, step in enumerate(loop(3))]
    for now, is_open in ((103.0, False), (130.0, True), (400.0, True)):
        assert recall(observed(steps), "", "search", {"q": "hours"}, now=now).open is is_open


def test_progress_of_another_run_leaves_it_open() -> None:
    steps = [*loop(2), record("read", {"n": 1}, "something new, and long enough to be news", run="other")]
    assert recall(observed(steps), "", "search", {"q": "hours"}).open


SAYS_NOTHING = {"No results found", ""}
RESULTS = ["No results found", "Error: no such file", "17 rows", "ok", "", "Error: no such table", "still running"]
STEPS = st.lists(
    st.tuples(st.sampled_from(["search", "edit"]), st.integers(0, 1), st.sampled_from(RESULTS)), max_size=14
)


@given(STEPS, st.integers(2, 4), st.integers(1, 3))
def test_a_call_whose_result_has_changed_since_is_never_refused(
    script: list[tuple[str, int, str]], after: int, limit: int
) -> None:
    """The messages and the engine as a gate brings them together: what is refused is not run, and its result unknown."""
    engine, rules = Engine(), RefusalRules(after=after, limit=limit)
    state = engine.new_state("t")
    messages: list[Any] = [HumanMessage("go", id="turn")]
    ran: list[tuple[tuple[str, int], str]] = []
    refused = 0
    for at, (tool, key, result) in enumerate(script):
        args = {"q": key}
        call = {"name": tool, "args": args, "id": f"call-{at}", "type": "tool_call"}
        messages.append(AIMessage("", tool_calls=[call], id=f"ai-{at}"))  # type: ignore[list-item]
        found = decide(tool, args, past_of(messages, tool, args), recall(state, "/turn", tool, args), rules)
        if found is None:
            refused = 0
            ran.append(((tool, key), result))
        else:
            refused += 1
            own = ["" if one in SAYS_NOTHING else one for call_, one in ran if call_ == (tool, key)]
            assert len(own) >= after
            assert len({*own[-after:]}) == 1
            last = [place for place, (call_, _) in enumerate(ran) if call_ == (tool, key)][-after:]
            between = {call_ for call_, _ in ran[last[-1] + 1 :]} - {call_ for call_, _ in ran[: last[-1]]}
            assert not between  # nothing that had not been done before
            result = found.text
        failed = result.startswith(("Error", NOT_RUN))
        messages.append(ToolMessage(result, tool_call_id=f"call-{at}", status="error" if failed else "success"))
        for step in new_steps(messages[-2:], trajectory_id="t", known=lambda one: False, now=0.0):
            engine.observe(state, step._replace(turn="turn"))
