"""A guarded graph does what the unguarded one does, under every way LangGraph has of running it.

Messages, tool executions, final state, stream chunks, events, errors and checkpoints are compared. Only the guard's own
state keys may be there in addition.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Command, Send, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from trajectory_guard import (
    BudgetGate,
    FlagBoard,
    IntegrityGate,
    StagnationGate,
    TrajectoryGuardMiddleware,
    apply_guard,
    guarded_ainvoke,
    guarded_astream,
    guarded_invoke,
    guarded_stream,
)
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.compiled import guard_compiled
from trajectory_guard.gates.own_keys import MEMORY

from .agents import TASK, agent_node, async_context, calls, new_board, rounds, thread

pytestmark = [pytest.mark.filterwarnings("ignore"), async_context]

OURS = {"loop_status", "trajectory_scratchpad", MEMORY}
PASSING = {
    "id", "timestamp", "config", "parent_config", "checkpoint_ns", "checkpoint_id", "run_id", "parent_ids", "task_id",
    "langgraph_checkpoint_ns", "thread_id", "checkpoint", "ls_run_id", "lc_versions", "message_id", "event_id", "seq",
}  # fmt: skip
"""Keys whose values differ between any two runs."""


class Ran(list[str]):
    """The tools that really ran."""

    def tool(self) -> BaseTool:
        @tool
        def lookup(key: str) -> str:
            """Look up a record: every key has its own."""
            if key == "broken":
                raise ConnectionError("no route to host")
            self.append(key)
            return f"record of {key}"

        return lookup


def healthy(messages: Any, turn: int) -> AIMessage:
    """Three rounds, the second of two calls at once."""
    done = rounds(messages)
    if done == 3:
        return AIMessage("Done.")
    keys = [f"item {done}", f"more {done}"] if done == 1 else [f"item {done}"]
    return calls(messages, *(("lookup", {"key": key}) for key in keys))


def failing(messages: Any, turn: int) -> AIMessage:
    """The tool raises at the second call."""
    return calls(messages, ("lookup", {"key": "broken" if rounds(messages) else "item"}))


Builder = StateGraph[Any, Any, Any, Any]
Build = Callable[[Policy, Ran, Any], tuple[Any, Any]]
"""From a policy, a list of tool runs and a checkpointer: the unguarded graph, and the guarded one."""


def _builder(agent: Any, tools: Any, *, fan_out: bool = False) -> Builder:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    if fan_out:
        builder.add_conditional_edges("agent", _one_task_a_call, ["tools", END])
    else:
        builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder


def _one_task_a_call(state: MessagesState) -> list[Send] | str:
    return [Send("tools", [one]) for one in state["messages"][-1].tool_calls] or END


def _tools(ran: Ran) -> ToolNode:
    return ToolNode([ran.tool()], handle_tool_errors=False)


def _applied(builder: Callable[[], Builder], saver: Any) -> tuple[Any, Any]:
    guarded = apply_guard(builder(), board=new_board())
    return builder().compile(checkpointer=saver()), guarded.compile(checkpointer=saver())


def _recompiled(graph: Callable[[], Any]) -> tuple[Any, Any]:
    return graph(), guard_compiled(graph(), board=new_board())


def plain_builder(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    return _applied(lambda: _builder(agent_node(policy), _tools(ran)), saver)


def function_tools(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    return _applied(lambda: _builder(agent_node(policy), lambda state: _tools(ran).invoke(state)), saver)


def async_functions(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    model = ScriptedChatModel(policy=policy)

    async def agent(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def tools(state: Any) -> Any:
        return await _tools(ran).ainvoke(state)

    return _applied(lambda: _builder(agent, tools), saver)


def commands(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    """The agent routes by a list of ``Command``, the tools by one."""
    model = ScriptedChatModel(policy=policy)

    def agent(state: Any) -> list[Command[Any]]:
        answer = model.invoke(state["messages"])
        return [Command(update={"messages": [answer]}), Command(goto="tools" if answer.tool_calls else END)]

    def build() -> Builder:
        builder: Builder = StateGraph(MessagesState)
        builder.add_node("agent", agent, destinations=("tools", END))
        builder.add_node("tools", lambda state: Command(goto="agent", update=_tools(ran).invoke(state)))
        builder.add_edge(START, "agent")
        return builder

    return _applied(build, saver)


def fan_out(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    return _applied(lambda: _builder(agent_node(policy), _tools(ran), fan_out=True), saver)


def compiled(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    return _recompiled(lambda: _builder(agent_node(policy), _tools(ran)).compile(checkpointer=saver()))


def react_v1(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    model = ScriptedChatModel(policy=policy)
    return _recompiled(lambda: create_react_agent(model, _tools(ran), version="v1", checkpointer=saver()))


def react_v2(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    model = ScriptedChatModel(policy=policy)
    return _recompiled(lambda: create_react_agent(model, _tools(ran), version="v2", checkpointer=saver()))


def agent_compiled(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    return _recompiled(lambda: create_agent(ScriptedChatModel(policy=policy), [ran.tool()], checkpointer=saver()))


def agent_middleware(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    def build(*middleware: Any) -> Any:
        model = ScriptedChatModel(policy=policy)
        return create_agent(model, [ran.tool()], middleware=middleware, checkpointer=saver())

    return build(), build(TrajectoryGuardMiddleware(board=new_board()))


def sub_graph(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    def build() -> Any:
        outer: Builder = StateGraph(MessagesState)
        outer.add_node("research", _builder(agent_node(policy), _tools(ran)).compile())
        outer.add_node("report", lambda state: None)
        outer.add_edge(START, "research")
        outer.add_edge("research", "report")
        return outer.compile(checkpointer=saver())

    return _recompiled(build)


def _hands_over_once(to: str, policy: Policy) -> Policy:
    def hands_over(messages: Any, turn: int) -> AIMessage:
        if any(message.name == to for message in messages):
            return AIMessage("All done.")
        return calls(messages, (f"transfer_to_{to}", {}))

    return hands_over


def supervisor(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    def build() -> Builder:
        worker = create_agent(ScriptedChatModel(policy=_from_its_task(policy)), [ran.tool()], name="worker")
        return create_supervisor([worker], model=ScriptedChatModel(policy=_hands_over_once("worker", policy)))

    return _applied(build, saver)


def swarm(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    def build() -> Builder:
        alice = ScriptedChatModel(policy=lambda messages, turn: calls(messages, ("transfer_to_bob", {})))
        bob = ScriptedChatModel(policy=_from_its_task(policy))
        return create_swarm(
            [
                create_agent(alice, [create_handoff_tool(agent_name="bob")], name="alice"),
                create_agent(bob, [ran.tool()], name="bob"),
            ],
            default_active_agent="alice",
        )

    return _applied(build, saver)


def _from_its_task(policy: Policy) -> Policy:
    """The policy of a worker, who counts its own rounds only."""
    return lambda messages, turn: policy([m for m in messages if not _is_hand_over(m)], turn)


def _is_hand_over(message: BaseMessage) -> bool:
    named = [one["name"] for one in getattr(message, "tool_calls", None) or []]
    return any("transfer" in str(name) for name in (*named, message.name))


# --- with all that can be switched on ---------------------------------------------------------------------------


def _everything(**more: Any) -> FlagBoard:
    budget = {"scope": "day", "tokens": 10**9}
    return new_board(required_actions=("lookup",), track_quality=True, track_spending=True, budgets=[budget], **more)


def _every_gate(node: Any, board: FlagBoard) -> Any:
    sound = IntegrityGate([lambda output: True], board=board)
    return BudgetGate(board=board).wrap(StagnationGate(board=board).wrap(sound.wrap(node)))


def builder_with_everything(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    board = _everything(recall=True)
    guarded = _builder(_every_gate(agent_node(policy), board), _tools(ran))
    guarded = apply_guard(guarded, refuse_pointless=True, state_of=lambda state: None, board=board)
    return plain_builder(policy, ran, saver)[0], guarded.compile(checkpointer=saver())


def async_functions_with_everything(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    board, model = _everything(), ScriptedChatModel(policy=policy)

    async def agent(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    guarded = _builder(_every_gate(agent, board), _tools(ran))
    guarded = apply_guard(guarded, refuse_pointless=True, board=board)
    return _builder(agent, _tools(ran)).compile(checkpointer=saver()), guarded.compile(checkpointer=saver())


def compiled_with_everything(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    def graph() -> Any:
        return _builder(agent_node(policy), _tools(ran)).compile(checkpointer=saver())

    return graph(), guard_compiled(graph(), board=_everything(recall=True))


def middleware_with_everything(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    def build(*middleware: Any) -> Any:
        model = ScriptedChatModel(policy=policy)
        return create_agent(model, [ran.tool()], middleware=middleware, checkpointer=saver())

    cheaper = ScriptedChatModel(policy=policy)
    # without recall, which the model reads with every call: the script would see a message more
    guard = TrajectoryGuardMiddleware(
        refuse_pointless=True, cheaper=cheaper, state_of=lambda state: None, board=_everything()
    )
    return build(), build(guard)


GRAPHS: list[Build] = [
    plain_builder, function_tools, async_functions, commands, fan_out, compiled, react_v1, react_v2, agent_compiled,
    agent_middleware, sub_graph, supervisor, swarm,
    builder_with_everything, async_functions_with_everything, compiled_with_everything, middleware_with_everything,
]  # fmt: skip
ONLY_ASYNC = (async_functions, async_functions_with_everything)


# --- ways of running ------------------------------------------------------------------------------------------


async def _all(chunks: Any) -> list[Any]:
    if hasattr(chunks, "__await__"):
        chunks = await chunks
    return [chunk async for chunk in chunks]


async def _first(chunks: Any, count: int) -> list[Any]:
    found = []
    async for chunk in chunks:
        found.append(chunk)
        if len(found) == count:
            break
    await chunks.aclose()
    return found


def _first_sync(chunks: Any, count: int) -> list[Any]:
    found = [next(chunks) for _ in range(count)]
    chunks.close()
    return found


MODES = ["values", "updates", "messages", ["custom", "debug", "tasks", "checkpoints", "updates", "values", "messages"]]
Way = Callable[[Any, Any, Any], Awaitable[Any]]


def _stream(mode: Any, **options: Any) -> Way:
    async def way(graph: Any, state: Any, config: Any) -> Any:
        return list(graph.stream(state, config, stream_mode=mode, **options))

    return way


def _astream(mode: Any, **options: Any) -> Way:
    async def way(graph: Any, state: Any, config: Any) -> Any:
        return await _all(graph.astream(state, config, stream_mode=mode, **options))

    return way


async def invoke(graph: Any, state: Any, config: Any) -> Any:
    return graph.invoke(state, config)


async def ainvoke(graph: Any, state: Any, config: Any) -> Any:
    return await graph.ainvoke(state, config)


def _beside(config: Any) -> dict[str, Any]:
    return thread(f"beside {config['configurable']['thread_id']}")


async def batch(graph: Any, state: Any, config: Any) -> Any:
    return graph.batch([state, state], [config, _beside(config)])


async def abatch(graph: Any, state: Any, config: Any) -> Any:
    return await graph.abatch([state, state], [config, _beside(config)])


async def events_v1(graph: Any, state: Any, config: Any) -> Any:
    return await _all(graph.astream_events(state, config, version="v1"))


async def events_v2(graph: Any, state: Any, config: Any) -> Any:
    return await _all(graph.astream_events(state, config, version="v2"))


async def events_v3(graph: Any, state: Any, config: Any) -> Any:
    return [event.get("method") for event in await _all(graph.astream_events(state, config, version="v3"))]


async def sync_events_v3(graph: Any, state: Any, config: Any) -> Any:
    return [event.get("method") for event in graph.stream_events(state, config, version="v3")]


async def log(graph: Any, state: Any, config: Any) -> Any:
    return sorted(
        op["path"].split("/")[1] for patch in await _all(graph.astream_log(state, config)) for op in patch.ops
    )


async def closed_early(graph: Any, state: Any, config: Any) -> Any:
    return await _first(graph.astream(state, config, stream_mode="updates"), 2)


async def closed_early_sync(graph: Any, state: Any, config: Any) -> Any:
    return _first_sync(graph.stream(state, config, stream_mode="updates"), 2)


async def events_closed_early(graph: Any, state: Any, config: Any) -> Any:
    return await _first(graph.astream_events(state, config, version="v2"), 8)


SYNC: dict[str, Way] = {
    "invoke": invoke, "batch": batch, "sync_events_v3": sync_events_v3, "closed_early_sync": closed_early_sync,
    **{f"stream {mode if isinstance(mode, str) else 'all modes'}": _stream(mode) for mode in MODES},
    "stream subgraphs": _stream("updates", subgraphs=True),
}  # fmt: skip
ASYNC: dict[str, Way] = {
    "ainvoke": ainvoke, "abatch": abatch, "events_v1": events_v1, "events_v2": events_v2, "events_v3": events_v3,
    "log": log, "closed_early": closed_early, "events_closed_early": events_closed_early,
    **{f"astream {mode if isinstance(mode, str) else 'all modes'}": _astream(mode) for mode in MODES},
    "astream subgraphs": _astream("updates", subgraphs=True),
}  # fmt: skip
WAYS = SYNC | ASYNC
ALSO_FAST = {
    "invoke", "ainvoke", "batch", "sync_events_v3", "events_v2", "events_v3", "closed_early", "closed_early_sync",
    "stream all modes", "astream all modes", "astream subgraphs",
}  # fmt: skip
"""Ways of the fast part, with a checkpointer; the slow part takes all of them, with and without."""


def ways_and_savers() -> list[Any]:
    return [
        pytest.param(
            way, saver, id=f"{way}-{'saver' * saver}", marks=() if saver and way in ALSO_FAST else pytest.mark.slow
        )
        for way in WAYS
        for saver in (False, True)
    ]


# --- comparing ------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """``value`` without the guard's keys, and without what differs between any two runs."""
    if isinstance(value, BaseMessage):
        asked = [(one["name"], one["args"], _known(one["id"])) for one in getattr(value, "tool_calls", None) or []]
        return (value.type, value.name, value.content, asked, _known(getattr(value, "tool_call_id", None)))
    if isinstance(value, Command):
        return plain({"goto": value.goto or None, "update": value.update, "graph": value.graph})
    if isinstance(value, Mapping):
        kept = {str(key): plain(held) for key, held in value.items() if key not in OURS | PASSING}
        kept = {key: held for key, held in kept.items() if held is not None}
        return kept or None  # a node that writes nothing of its own
    if isinstance(value, (list, tuple)):
        found = [plain(one) for one in value]
        if len(found) == 2 and isinstance(found[0], str) and found[0] in OURS:
            return None  # a write, as (key, value)
        return [one for one in found if one is not None]
    if isinstance(value, (str, int, float, bool, type(None))):
        return _without_ids(value)
    return type(value).__name__


def _known(call_id: str | None) -> str | None:
    """Ids of the script; those that a supervisor makes up differ between any two runs."""
    return call_id if call_id and call_id.startswith("call_") else None


def _without_ids(value: Any) -> Any:
    return "…" if isinstance(value, str) and (":" in value and len(value) > 36) else value


def _sorted(result: Any) -> Any:
    """Parallel tasks end in any order."""
    return sorted(map(repr, result)) if isinstance(result, list) else result


@cache
def built(build: Build, policy: Policy, saver: bool) -> tuple[Any, Any, Ran]:
    """The unguarded graph, the guarded one, and their tools' runs: built once, since each way runs in a thread of its own."""
    ran = Ran()
    return (*build(policy, ran, InMemorySaver if saver else lambda: None), ran)


async def outcome(way: str, graph: Any, ran: Ran, saver: bool) -> dict[str, Any]:
    ran.clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = _sorted(plain(await WAYS[way](graph, TASK, thread(way, recursion_limit=40))))
        error = None
    except Exception as raised:
        result, error = None, (type(raised), str(raised))
    found = {"result": result, "error": error, "ran": sorted(ran)}
    if saver:
        state = await graph.aget_state(thread(way))
        history = [one async for one in graph.aget_state_history(thread(way))]
        found |= {"state": plain(state.values), "next": state.next, "super-steps": len(history)}
    return found


@pytest.mark.parametrize(("way", "saver"), ways_and_savers())
@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
async def test_a_guarded_run_is_like_an_unguarded_one(build: Build, way: str, saver: bool) -> None:
    if build in ONLY_ASYNC and way in SYNC:
        pytest.skip("its nodes are coroutines")
    graph, guarded, ran = built(build, healthy, saver)

    expected = await outcome(way, graph, ran, saver)
    found = await outcome(way, guarded, ran, saver)

    assert expected["ran"] or "early" in way
    assert found == expected


@pytest.mark.parametrize(
    "way",
    [
        *("invoke", "astream updates", "events_v2"),
        *(pytest.param(way, marks=pytest.mark.slow) for way in ("ainvoke", "stream updates", "batch")),
    ],
)
@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
async def test_an_error_of_the_application_comes_through_as_it_is(build: Build, way: str) -> None:
    if build in ONLY_ASYNC and way in SYNC:
        pytest.skip("its nodes are coroutines")
    graph, guarded, ran = built(build, failing, saver=True)

    expected = await outcome(way, graph, ran, saver=True)

    assert expected["error"] is not None
    assert await outcome(way, guarded, ran, saver=True) == expected


def asks_twice(policy: Policy, ran: Ran, saver: Any) -> tuple[Any, Any]:
    """The agent asks a person two questions, one after the other, once a tool has answered."""
    model = ScriptedChatModel(policy=policy)

    def agent(state: MessagesState) -> dict[str, Any]:
        if rounds(state["messages"]) == 1:
            interrupt("Is this right?")
            interrupt("Really?")
        return {"messages": [model.invoke(state["messages"])]}

    return _applied(lambda: _builder(agent, _tools(ran)), saver)


def test_an_agent_that_asks_more_than_once_streams_what_it_does_unguarded() -> None:
    """The last chunk before an answer holds the question: clients look for it there."""
    graph, guarded = asks_twice(healthy, Ran(), InMemorySaver)

    for given in (TASK, Command(resume="yes"), Command(resume="yes")):
        expected = plain(list(graph.stream(given, in_turn("a"), stream_mode="values")))
        assert plain(list(guarded.stream(given, in_turn("a"), stream_mode="values"))) == expected

    assert not guarded.get_state(in_turn("a")).next


@pytest.mark.parametrize("build", [plain_builder, commands, compiled, react_v2, sub_graph, agent_middleware])
async def test_events_and_messages_have_the_metadata_that_they_have_unguarded(build: Build) -> None:
    """Tracers and front ends file by it: ``model`` of the configuration is not the model that a node calls."""
    found = []
    for graph in build(healthy, Ran(), InMemorySaver)[:2]:
        config = in_turn("a")
        config["configurable"] |= {"model": "from the caller", "tenant": "acme"}
        events = await _all(graph.astream_events(TASK, config, version="v2"))
        chunks = await _all(graph.astream({"messages": [("user", "And now?")]}, config, stream_mode="messages"))
        seen = [(event["event"], event["name"], event["metadata"]) for event in events]
        seen += [("message", message.type, metadata) for message, metadata in chunks]
        found.append(sorted((kind, name, sorted(keys), keys.get("model") or "") for kind, name, keys in seen))

    assert found[1] == found[0]


def in_turn(name: str) -> dict[str, Any]:
    """A thread whose parallel tools run one after the other: chunks come in the order in which tasks end."""
    return {**thread(name), "max_concurrency": 1}


async def test_the_four_functions_give_what_the_methods_give() -> None:
    board = FlagBoard()
    graph, _ = react_v2(healthy, Ran(), InMemorySaver)

    assert plain(guarded_invoke(graph, TASK, in_turn("g1"), board=board)) == plain(graph.invoke(TASK, in_turn("a")))
    final = await guarded_ainvoke(graph, TASK, in_turn("g2"), board=board)
    assert plain(final) == plain(graph.invoke(TASK, in_turn("b")))
    streamed = list(guarded_stream(graph, TASK, in_turn("g3"), board=board))
    assert plain(streamed) == plain(list(graph.stream(TASK, in_turn("c"))))
    chunks = await _all(guarded_astream(graph, TASK, in_turn("g4"), board=board))
    assert plain(chunks) == plain(list(graph.stream(TASK, in_turn("d"))))


def test_what_is_left_out_of_the_comparison_is_not_everything() -> None:
    kept: Iterable[Any] = plain({"messages": [AIMessage("x", id="1")], "budget": 3, "loop_status": {}})

    assert kept == {"messages": [("ai", None, "x", [], None)], "budget": 3}
