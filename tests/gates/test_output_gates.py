"""The gates around nodes: stagnation and integrity, in real graphs, thread by thread, sync, async and as classes."""

from __future__ import annotations

import asyncio
import functools
import logging
import operator
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trajectory_guard import (
    INTEGRITY_THEOREM,
    STAGNATION_THEOREM,
    FlagBoard,
    GuardConfig,
    IntegrityGate,
    Level,
    StagnationGate,
    telemetry,
)
from trajectory_guard.core.content.novelty import novelty, said
from trajectory_guard.core.explain.certificates import Certificate
from trajectory_guard.gates.stagnation import text_of_output
from trajectory_guard.gates.wrapping import EPHEMERAL_THREAD, OutputGate, thread_of
from trajectory_guard.otel import pipelines

SAME = "I will search again for the return policy."


class State(TypedDict):
    said: Annotated[list[str], operator.add]
    limit: int


def board(**keys: Any) -> FlagBoard:
    return FlagBoard(GuardConfig(**keys))


def stuck(state: State) -> dict[str, Any]:
    return {"said": [SAME]}


async def stuck_async(state: State) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"said": [SAME]}


def stuck_generator(state: State) -> Iterator[dict[str, Any]]:
    yield {"said": ["The first part is replaced."]}
    yield {"said": [SAME]}


async def stuck_async_generator(state: State) -> AsyncIterator[dict[str, Any]]:
    await asyncio.sleep(0)
    yield {"said": [SAME]}


class Stuck:
    def __call__(self, state: State) -> dict[str, Any]:
        return {"said": [SAME]}


class StuckAsync:
    async def __call__(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        assert config["configurable"]
        return {"said": [SAME]}


class Method:
    def think(self, state: State, *, config: RunnableConfig) -> dict[str, Any]:
        assert config["configurable"]["thread_id"]
        return {"said": [SAME]}


NODES: dict[str, Any] = {
    "function": stuck,
    "lambda": lambda state: {"said": [SAME]},
    "coroutine function": stuck_async,
    "class": Stuck(),
    "async class": StuckAsync(),
    "method": Method().think,
    "partial": functools.partial(lambda extra, state: {"said": [SAME]}, 1),
    "async partial": functools.partial(stuck_async),
    "generator": stuck_generator,
    "partial of a generator": functools.partial(stuck_generator),
    "async generator": stuck_async_generator,
}


def looping(gate: OutputGate[Any], node: Any) -> Any:
    """think → think → …, until the gate routes elsewhere."""
    builder = StateGraph(State)
    builder.add_node("think", gate.wrap(node))  # type: ignore[attr-defined]
    builder.add_node("escalate", lambda state: {"said": ["a person is asked"]})
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", gate.edge(forward="think", break_to="escalate"), ["think", "escalate"])
    builder.add_edge("escalate", END)
    return builder.compile()


def run(graph: Any, thread: str | None = "a") -> list[str]:
    config: dict[str, Any] = {"recursion_limit": 12, "configurable": {"thread_id": thread} if thread else {}}
    return asyncio.run(graph.ainvoke({"said": []}, config))["said"]  # type: ignore[no-any-return]


# --- stagnation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NODES)
def test_three_equal_outputs_end_the_loop_whatever_the_node_is(kind: str) -> None:
    gate = StagnationGate(board=board())
    assert run(looping(gate, NODES[kind])) == [SAME] * 3 + ["a person is asked"]
    assert gate.is_stagnant_for("a")
    assert not gate.is_stagnant
    assert [one.theorem for one in gate.certificates] == [STAGNATION_THEOREM]


@pytest.mark.parametrize("kind", ["function", "class", "method", "partial", "lambda", "generator"])
def test_sync_graphs_and_graphs_without_a_thread(kind: str) -> None:
    gate = StagnationGate(board=board())
    graph = looping(gate, NODES[kind])
    config: Any = {"recursion_limit": 12, "configurable": {"thread_id": "b"}}
    assert len(graph.invoke({"said": []}, config)["said"]) == 4
    if kind != "method":
        assert len(graph.invoke({"said": []}, {"recursion_limit": 12})["said"]) == 4
        assert gate.is_stagnant


def test_a_graph_without_the_edge_does_exactly_what_it_does_unguarded() -> None:
    builder = StateGraph(State)
    builder.add_node("think", StagnationGate(board=board()).wrap(stuck))
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", lambda state: "think" if len(state["said"]) < 9 else END)
    assert builder.compile().invoke({"said": []}, {"configurable": {"thread_id": "x"}})["said"] == [SAME] * 9


def test_near_identical_outputs_fire_at_the_third() -> None:
    texts = (
        "Still looking for the policy. Started at 2026-05-01T10:00:01Z.",
        "Still looking for the policy! Started at 2026-05-01T10:00:09Z.",
        "still looking for the  policy... Started at 2026-05-01T10:01:12Z.",
    )
    gate = StagnationGate(board=board())
    assert [gate.observe(text, thread_id="a") for text in texts] == [False, False, True]
    other = StagnationGate(critical_duration=3, board=board())
    assert [other.observe(text) for text in (*texts, texts[0])] == [False, False, False, True]


SLOW_PROGRESS: dict[str, list[str]] = {
    "a counter": [f"Processed {n} of 20 files, nothing unusual so far." for n in range(20)],
    "a draft that grows": [
        " ".join(f"Sentence about {topic} and its {part}." for topic, part in zip("abcdefghijkl"[:n], "mnopqrstuvwx", strict=False))
        + " " + " ".join(f"{word}ing the {word}er" for word in ("bake", "cook", "clean", "sing", "dance", "walk", "jump", "read")[:n])
        for n in range(1, 9)
    ],
    "the next item": [f"Checked {name}: it is in stock." for name in
                      ("red lamp", "blue chair", "old map", "wet paint", "dry goods", "hot soup", "cold tea", "new tool")],
    "a falling loss": [f"epoch done, loss={0.9 - n / 25:.3f}" for n in range(20)],
    "another language": ["注文を確認しています", "在庫がありません", "次の倉庫を調べます", "配送日は月曜日です", "料金は無料になります"],
}  # fmt: skip


@pytest.mark.parametrize("kind", SLOW_PROGRESS)
def test_slow_progress_is_quiet(kind: str) -> None:
    gate = StagnationGate(board=board())
    assert not any(gate.observe(text) for text in SLOW_PROGRESS[kind])
    assert gate.certificates == []
    assert min(gate.integrals_for()) >= 0.2


def test_going_back_and_forth_between_two_outputs_is_standstill() -> None:
    gate = StagnationGate(board=board())
    pair = ("The writer hands the draft to the critic.", "The critic sends it back to the writer.")
    assert [gate.observe(pair[n % 2]) for n in range(5)] == [False, False, False, True, True]


def test_it_recovers_at_something_new_and_certifies_again() -> None:
    gate = StagnationGate(board=board())
    fired = [gate.observe(text) for text in (SAME, SAME, SAME, "The policy says thirty days.", SAME, SAME)]
    assert fired == [False, False, True, False, False, True]
    assert len(gate.certificates) == 2
    assert len(gate.integrals_for()) == 6


def test_threads_are_apart_and_bounded() -> None:
    gate = StagnationGate(board=board(), max_threads=3)
    for _ in range(3):
        for thread in "abc":
            gate.observe(SAME if thread != "b" else f"{thread}{_} {'xyz'[_] * 9}", thread_id=thread)
    assert [gate.is_stagnant_for(thread) for thread in "abc"] == [True, False, True]
    gate.observe("d", thread_id="d")
    assert gate.integrals_for("a") == []
    gate.reset("c")
    assert not gate.is_stagnant_for("c")
    gate.reset()
    assert gate.certificates == []
    assert len(gate._threads) == 0
    for _ in range(1_000):
        gate.observe(SAME, thread_id="a")
    assert len(gate.integrals_for("a")) == 256
    assert len(gate.certificates) == 1


def test_many_threads_at_once() -> None:
    gate = StagnationGate(board=board())
    graph = looping(gate, stuck)
    results: dict[int, list[str]] = {}
    workers = [threading.Thread(target=lambda n=n: results.update({n: run(graph, f"t{n}")})) for n in range(8)]  # type: ignore[misc]
    for one in workers:
        one.start()
    for one in workers:
        one.join(60)
    assert [len(results[n]) for n in range(8)] == [4] * 8
    assert len(gate.certificates) == 8


def test_certificates_are_in_operons_domain() -> None:
    gate = StagnationGate(threshold=0.2, board=board())
    for _ in range(3):
        gate.observe(SAME)
    one = gate.certificates[0]
    assert one.parameters == {"signal_values": (1.0, 1.0), "threshold": 0.8}
    assert (one.source, one.conclusion) == (
        "trajectory_guard.gates.stagnation", "Stagnation at output 3: the last 2 outputs were hardly new.",
    )  # fmt: skip
    assert one.verify().trusted
    assert not one.verify().holds
    assert SAME.split()[2] not in one.to_json()


@given(
    st.lists(st.sampled_from([SAME, SAME + " Now.", "x", "", "Something else, and new: 17."]), max_size=14),
    st.floats(0.01, 1.0),
)
def test_whatever_fires_is_certified_and_verifies(texts: list[str], threshold: float) -> None:
    shared = board()
    gate = StagnationGate(threshold=threshold, board=shared)
    for text in texts:
        gate.observe(text, thread_id="t")
        flag = shared.read("t")
        if flag.verdict is not None and flag.verdict.certificate is not None:
            assert flag.verdict.certificate.verify().trusted
    assert all(one.verify().trusted for one in gate.certificates)
    assert all(0.0 <= one <= 1.0 for one in gate.integrals_for("t"))


@given(st.text(max_size=200), st.lists(st.text(max_size=200), max_size=4))
def test_novelty_is_a_share_and_nothing_for_what_was_said(text: str, before: list[str]) -> None:
    forms = [said(one) for one in before]
    assert 0.0 <= novelty(said(text), forms) <= 1.0
    assert novelty(said(text), [*forms, said(text)]) == 0.0


def test_vectors_of_an_embedder_decide_if_there_is_one() -> None:
    class Embedder:
        def embed(self, text: str) -> list[float]:
            return [1.0, 0.0] if "policy" in text else [0.0, 1.0]

    gate = StagnationGate(embedder=Embedder(), board=board())
    fired = [gate.observe(text) for text in ("the policy", "a policy of theirs", "what policy is it", "dogs")]
    assert fired == [False, False, True, False]
    assert gate.integrals_for() == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "keys", [{"threshold": 0.0}, {"threshold": 2.0}, {"critical_duration": 0}, {"window_size": 0}, {"max_threads": 0}]
)
def test_impossible_parameters_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"threshold|duration|window|max_threads"):
        StagnationGate(**keys)


# --- which text, which thread ----------------------------------------------------------------------------------------


def test_the_text_of_an_output_leaves_out_ids_and_usage() -> None:
    def message(n: int) -> AIMessage:
        return AIMessage(
            [{"type": "text", "text": "Let me look."}], id=f"run-{n}", response_metadata={"n": n},
            tool_calls=[{"name": "search", "args": {"q": "x"}, "id": f"call-{n}"}],
        )  # fmt: skip

    outputs: list[Callable[[int], Any]] = [
        lambda n: {"messages": [message(n)]},
        lambda n: [message(n)],
        lambda n: Command(update={"messages": [message(n)]}, goto="x"),
        lambda n: {"messages": message(n)},
    ]
    for make in outputs:
        assert (
            text_of_output(make(1)) == text_of_output(make(2)) == 'Let me look.\n{"args": {"q": "x"}, "name": "search"}'
        )
    assert text_of_output({"messages": [("assistant", "hi")], "draft": "two"}) == "hi\ndraft: two"
    assert text_of_output(None) == "None"


def test_the_thread_is_read_from_config_and_runtime_only() -> None:
    runtime = SimpleNamespace(config={"configurable": {"thread_id": 7}})
    info = SimpleNamespace(execution_info=SimpleNamespace(thread_id="i"))
    assert thread_of(({"configurable": {"thread_id": "a"}},), {}) == "a"
    assert thread_of((), {"runtime": runtime}) == "7"
    assert thread_of((), {"runtime": info}) == "i"
    assert thread_of((), {"order": {"configurable": {"thread_id": "a"}}}) == EPHEMERAL_THREAD
    for odd in (None, {}, {"configurable": None}, {"configurable": {"thread_id": None}}, 3):
        assert thread_of((odd,), {}) == EPHEMERAL_THREAD


def test_both_gates_around_one_node_and_a_node_that_asks_for_its_config() -> None:
    shared = board()
    stagnation, integrity = StagnationGate(board=shared), IntegrityGate([lambda out: bool(out)], board=shared)

    def think(state: State, config: RunnableConfig, extra: int = 3) -> dict[str, Any]:
        """Thinks."""
        assert config["configurable"]["thread_id"] == "a"
        assert extra == 3
        return {"said": [SAME]}

    wrapped = integrity.wrap(stagnation.wrap(think))
    assert (wrapped.__name__, wrapped.__doc__) == ("think", "Thinks.")
    assert len(run(looping(stagnation, think))) == 4
    builder = StateGraph(State)
    builder.add_node(wrapped)
    builder.add_edge(START, "think")
    builder.compile().invoke({"said": []}, {"configurable": {"thread_id": "a"}})
    assert len(stagnation.integrals_for("a")) == 4


def test_the_input_schema_of_a_node_is_still_read_from_its_annotation() -> None:
    class Private(TypedDict):
        secret: str

    def first(state: State) -> dict[str, Any]:
        return {"secret": "s"}

    def second(state: Private) -> dict[str, Any]:
        assert state == {"secret": "s"}
        return {"said": ["done"]}

    second.__annotations__["state"] = Private
    gate = StagnationGate(board=board())
    builder = StateGraph(State)
    builder.add_node("first", first)
    builder.add_node("second", gate.wrap(second))
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    assert builder.compile().invoke({"said": []})["said"] == ["done"]


def test_a_node_that_raises_raises_and_a_gate_that_fails_is_contained(caplog: pytest.LogCaptureFixture) -> None:
    shared = board()
    gate = StagnationGate(board=shared)

    def fails(state: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gate.wrap(fails)({})
    assert gate.integrals_for() == []
    wrapped = gate.wrap(lambda state: "x", text_extractor=lambda out: out.nothing)
    assert [wrapped({}) for _ in range(3)] == ["x"] * 3
    assert shared.counts["errors.gate"] == 3
    assert len([one for one in caplog.records if "contained" in one.getMessage()]) == 1
    with pytest.raises(TypeError, match="wrap"):
        gate.wrap("node")  # type: ignore[arg-type]


def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    gate = StagnationGate(board=board())
    wrapped = gate.wrap(lambda state: stuck_async(state))
    assert asyncio.run(wrapped({"said": []})) == {"said": [SAME]}
    assert len(gate.integrals_for()) == 1


# --- integrity -------------------------------------------------------------------------------------------------------


def paid_at_most_100(output: Any) -> bool:
    return bool(output["paid"] <= 100)


def known_user(output: Any) -> bool:
    raise LookupError(f"secret {output['user']}")


class Budget(TypedDict):
    paid: int
    user: str


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_violated_invariant_ends_the_loop_and_is_named_without_its_text(
    asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shared = board()
    gate = IntegrityGate([paid_at_most_100, known_user], board=shared)

    def pay(state: Budget) -> dict[str, Any]:
        return {"paid": state["paid"] + 60, "user": "hush-hush"}

    async def pay_async(state: Budget) -> dict[str, Any]:
        return pay(state)

    builder = StateGraph(Budget)
    builder.add_node("pay", gate.wrap(pay_async if asynchronous else pay))
    builder.add_edge(START, "pay")
    builder.add_conditional_edges("pay", gate.edge(forward="pay", break_to=END), ["pay", END])
    config: Any = {"recursion_limit": 9, "configurable": {"thread_id": "a"}}
    with caplog.at_level(logging.DEBUG):
        result = asyncio.run(builder.compile().ainvoke({"paid": 0, "user": ""}, config))
    assert result["paid"] == 60
    assert gate.is_violated_for("a")
    assert not gate.is_violated
    one = gate.certificates[0]
    assert one.theorem == INTEGRITY_THEOREM
    assert one.parameters == {
        "invariant_results": (("paid_at_most_100", True), ("known_user", False)), "all_passed": False,
    }  # fmt: skip
    assert one.verify().trusted
    assert not one.verify().holds
    verdict = shared.read("a").verdict
    assert verdict is not None
    assert verdict.reason == "The output of " + ("pay_async" if asynchronous else "pay") + " violates: known_user."
    assert "stuck" not in str(verdict.nudge)
    everything = caplog.text + one.to_json() + repr(verdict)
    assert "hush" not in everything
    assert "secret" not in everything


def test_a_violation_is_certified_once_until_reset() -> None:
    gate = IntegrityGate([paid_at_most_100], board=board())
    node = gate.wrap(lambda state: {"paid": state})
    for paid in (50, 150, 50, 150):
        assert node(paid) == {"paid": paid}
    assert gate.is_violated
    assert len(gate.certificates) == 1
    gate.reset()
    node(50)
    assert not gate.is_violated
    node(150)
    assert len(gate.certificates) == 1


def test_odd_invariants() -> None:
    with pytest.raises(ValueError, match="at least one"):
        IntegrityGate([])

    async def later(output: Any) -> bool:
        return True

    with pytest.raises(TypeError, match="later"):
        IntegrityGate([later])
    gate = IntegrityGate([lambda out: later(out), lambda out: True, functools.partial(paid_at_most_100)], board=board())
    gate.wrap(lambda state: {"paid": 1})({})
    results = gate.certificates[0].parameters["invariant_results"]
    assert results == (("<lambda>", False), ("<lambda>", True), ("paid_at_most_100", True))


# --- what the others see -----------------------------------------------------------------------------------------


def test_findings_go_through_board_metrics_logs_spans_and_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter, seen = InMemorySpanExporter(), list[Any]()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    shared = board(on_intervention=seen.append)
    pipelines.remember(shared, provider)
    gate = StagnationGate(board=shared)
    node = gate.wrap(stuck)
    config = {"configurable": {"thread_id": "a"}}
    with caplog.at_level(logging.WARNING, telemetry.LOGGER):
        for _ in range(9):
            node({"said": []}, config=config)
    flag = shared.read("a")
    assert (flag.level, flag.verdict.rule if flag.verdict else "") == (Level.STOP, "nothing_new_said")
    assert shared.counts["interventions.NUDGE"] == 2
    assert shared.counts["interventions.STOP"] == 1
    assert shared.counts["episodes.TYPE_VI_MONOLOGUE"] == 1
    assert [one.level for one in seen] == [Level.NUDGE, Level.NUDGE, Level.STOP]
    assert len(caplog.records) == 3
    spans = exporter.get_finished_spans()
    assert [dict(one.attributes or {})[telemetry.LOOP_DETECTED] for one in spans] == [True] * 3
    for span in spans:
        assert telemetry.TAG in dict(span.attributes or {})[telemetry.LANGFUSE_TAGS]  # type: ignore[operator]
        one = Certificate.from_json(str(dict(span.attributes or {})[telemetry.CERTIFICATE]))
        assert one.rule == "nothing_new_said"
        assert one.verify().status == "replayed"
    node_new = gate.wrap(lambda state: "The policy says thirty days, with receipt.")
    node_new({}, config=config)


def test_a_healthy_node_leaves_no_trajectory_on_the_board() -> None:
    shared = board()
    gate = StagnationGate(board=shared)
    for text in SLOW_PROGRESS["the next item"]:
        gate.observe(text, thread_id="a")
    IntegrityGate([bool], board=shared).wrap(lambda state: 1)({})
    assert len(shared) == 0


def test_the_agents_own_run_stays_the_current_one() -> None:
    from tests.helpers import record

    shared = board()
    shared.observe(record("search", {"q": 1}, "found", trajectory="a"))
    gate = StagnationGate(board=shared)
    for _ in range(3):
        gate.observe(SAME, thread_id="a")
    assert shared.read("a").level is Level.OBSERVE
    assert shared.read("a", "stagnation:observe").level is Level.NUDGE
    saved = shared.save("a")
    assert saved is not None
    assert shared.engine.load_state(saved).runs.keys() == {"", "stagnation:observe"}


def test_types_that_are_switched_off_report_nothing() -> None:
    shared = board(weights={"TYPE_VI_MONOLOGUE": 0.0})
    gate = StagnationGate(board=shared)
    assert [gate.observe(SAME, thread_id="a") for _ in range(4)] == [False, False, True, True]
    assert shared.read("a").level is Level.OBSERVE


def test_messages_of_a_model_without_tools_are_evaluated() -> None:
    gate = StagnationGate(board=board())
    builder = StateGraph(MessagesState)
    numbers = iter(range(99))
    builder.add_node("model", gate.wrap(lambda state: {"messages": [AIMessage(SAME, id=f"run-{next(numbers)}")]}))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", gate.edge("model", END), ["model", END])
    result = builder.compile().invoke({"messages": []}, {"configurable": {"thread_id": "m"}})
    assert len(result["messages"]) == 3


def test_findings_about_nodes_stay_where_no_tool_call_hid_anything() -> None:
    """Steps that hid their arguments are read again from the messages; what a gate measured is no such step."""
    board = FlagBoard()
    gate = StagnationGate(board=board)
    for _ in range(4):
        gate.observe("The same as ever.", thread_id="t")
    before = board.read("t", "stagnation:observe").level
    assert before is not Level.OBSERVE
    assert not board.discard_lossy("t")
    assert board.read("t", "stagnation:observe").level is before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IntegrityGate(invariants=bool), "invariants: expected a list of functions, got <class 'bool'>"),
        (
            lambda: IntegrityGate(invariants=len),
            "invariants: expected a list of functions, got <built-in function len>",
        ),
        (lambda: StagnationGate("0.2"), "threshold: expected a number, got '0.2' (str)"),
        (lambda: StagnationGate(critical_duration=2.5), "critical_duration: expected a whole number, got 2.5 (float)"),
        (lambda: StagnationGate(critical_duration=0), "critical_duration: at least 1, got 0"),
        (lambda: StagnationGate(window_size=-1), "window_size: at least 1, got -1"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        make()
