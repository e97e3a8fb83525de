"""The gate inside the agent's own super-step: agents of every kind are nudged and stopped, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt
from langgraph_supervisor import create_supervisor
from pydantic import BaseModel, Field

from trajectory_guard import TrajectoryGuardMiddleware, TrajectoryGuardNode, apply_guard, guarded_invoke
from trajectory_guard.cli.demo.scripted import Policy, ScriptedChatModel
from trajectory_guard.gates.compiled import guard_compiled
from trajectory_guard.gates.graph_gate import namespace_of
from trajectory_guard.gates.messages import is_guard_message
from trajectory_guard.gates.own_keys import MEMORY

from .agents import (
    NUDGED_THEN_FINISHED,
    NUDGED_THEN_STOPPED,
    SEARCHED_IN_VAIN,
    STOP_AT,
    TASK,
    agent_builder,
    agent_node,
    async_context,
    calls,
    lookup,
    new_board,
    nudges,
    obeys,
    outline,
    repeats,
    search,
    thread,
    works,
)

Builder = StateGraph[Any, Any, Any, Any]


class PydanticState(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = Field(default_factory=list)


def append(before: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*before, *new]


@dataclass
class DataclassState:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)


def _graph(agent: Any, state: Any = MessagesState) -> Builder:
    builder: Builder = StateGraph(state)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([search, lookup]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder


def _answer(policy: Policy) -> Callable[[Any], AIMessage]:
    model = ScriptedChatModel(policy=policy)

    def answer(state: Any) -> AIMessage:
        return model.invoke(state["messages"] if isinstance(state, dict) else state.messages)

    return answer


def _message_alone(policy: Policy) -> Builder:
    answer = _answer(policy)
    return _graph(lambda state: {"messages": answer(state)})


def _runnable(policy: Policy) -> Builder:
    answer = _answer(policy)
    return _graph(RunnableLambda(answer) | (lambda message: {"messages": [message]}))


def _command(policy: Policy) -> Builder:
    answer = _answer(policy)
    return _graph(lambda state: Command(update={"messages": [answer(state)]}))


def _commands(policy: Policy) -> Builder:
    answer = _answer(policy)
    return _graph(lambda state: [Command(update={"messages": [answer(state)]}), Command(update={})])


def _pydantic(policy: Policy) -> Builder:
    answer = _answer(policy)
    return _graph(lambda state: PydanticState(messages=[answer(state)]), PydanticState)


def _dataclass(policy: Policy) -> Builder:
    answer = _answer(policy)
    return _graph(lambda state: DataclassState(messages=[answer(state)]), DataclassState)


def _generator(policy: Policy) -> Builder:
    answer = _answer(policy)

    def agent(state: Any) -> Iterator[Any]:
        yield {"messages": [answer(state)]}

    return _graph(agent)


def _sub_graph(policy: Policy) -> Builder:
    inner: Builder = StateGraph(MessagesState)
    inner.add_node("model", agent_node(policy))
    inner.add_edge(START, "model")
    return _graph(inner.compile())


def _class_with_call(policy: Policy) -> Builder:
    class Agent:
        answer = staticmethod(_answer(policy))

        def __call__(self, state: Any) -> Any:
            return {"messages": [self.answer(state)]}

    return _graph(Agent())


def _rewrites_all(policy: Policy) -> Builder:
    """An agent that hands back the whole conversation, as summarizing ones do."""
    answer = _answer(policy)
    return _graph(
        lambda state: {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *state["messages"], answer(state)]}
    )


def _other_input(policy: Policy) -> Builder:
    """An agent whose own input is a part of the state."""

    class Ask(BaseModel):
        messages: list[AnyMessage]

    answer = _answer(policy)

    def agent(state: Ask) -> Any:
        return {"messages": [answer(state)]}

    return _graph(agent)


KINDS = [
    _message_alone, _runnable, _command, _commands, _pydantic, _dataclass, _generator, _sub_graph, _class_with_call,
    _rewrites_all, _other_input,
]  # fmt: skip


@pytest.mark.parametrize("build", KINDS, ids=lambda build: build.__name__.strip("_"))
def test_agents_of_every_kind_are_nudged_before_their_answer_and_stopped(build: Callable[[Policy], Builder]) -> None:
    for policy, expected in ((repeats(), NUDGED_THEN_STOPPED), (obeys, NUDGED_THEN_FINISHED)):
        assert outline(apply_guard(build(policy), board=new_board()).compile().invoke(TASK)["messages"]) == expected


@async_context
@pytest.mark.parametrize(
    "build", [build for build in KINDS if build is not _generator], ids=lambda build: build.__name__.strip("_")
)
async def test_the_same_where_nodes_are_streamed(build: Callable[[Policy], Builder]) -> None:
    graph = apply_guard(build(repeats()), board=new_board()).compile()

    events = [event async for event in graph.astream_events(TASK, version="v2")]

    assert outline(events[-1]["data"]["output"]["messages"]) == NUDGED_THEN_STOPPED


def test_an_agent_that_writes_nothing_still_has_the_nudge_in_the_state() -> None:
    builder = agent_builder(repeats(3))
    builder.nodes["agent"].runnable = RunnableLambda(
        lambda state: None if nudges(state["messages"]) else {"messages": [_answer(repeats())(state)]}
    )

    messages = apply_guard(builder, board=new_board()).compile().invoke(TASK)["messages"]

    assert outline(messages).startswith("hatatatN")


# Found: the agent's unconditional edges were followed after a stop, and the tools ran on.
def test_a_stop_follows_no_edge_of_the_agent() -> None:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(repeats(99)))
    builder.add_node("tools", ToolNode([search]))
    builder.add_node("note", lambda state: None)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    builder.add_edge("agent", "note")
    builder.add_edge("tools", "agent")
    graph = apply_guard(builder, board=new_board()).compile()

    updates = [node for update in graph.stream(TASK, stream_mode="updates") for node in update]

    assert updates[-1] == "agent"
    assert updates.count("note") == updates.count("tools") == STOP_AT


def test_a_nudge_changes_no_form_of_the_updates() -> None:
    graph = apply_guard(agent_builder(repeats()), board=new_board()).compile()

    updates = [change for update in graph.stream(TASK, stream_mode="updates") for change in update.values()]

    assert all(isinstance(change, dict) for change in updates)
    assert outline([m for change in updates for m in change["messages"]]) == NUDGED_THEN_STOPPED[1:]


# --- failing, waiting, going on --------------------------------------------------------------------------------


def _fails_once_nudged(policy: Policy) -> Policy:
    """The model's provider is down just when the nudge has been given."""
    down = iter([True])

    def failing(messages: Any, turn: int) -> AIMessage:
        if nudges(messages) and next(down, False):
            raise ConnectionError("no route to host")
        return policy(messages, turn)

    return failing


def test_a_retried_agent_gets_the_nudge_again() -> None:
    builder = agent_builder(_fails_once_nudged(obeys))
    builder.nodes["agent"].retry_policy = RetryPolicy(initial_interval=0.001, jitter=False)

    messages = apply_guard(builder, board=new_board()).compile().invoke(TASK)["messages"]

    assert outline(messages) == NUDGED_THEN_FINISHED


def test_a_run_that_is_taken_up_after_an_error_gets_the_nudge_again() -> None:
    graph = apply_guard(agent_builder(_fails_once_nudged(obeys)), board=new_board()).compile(
        checkpointer=InMemorySaver()
    )

    with pytest.raises(ConnectionError):
        graph.invoke(TASK, thread())

    assert outline(graph.invoke(None, thread())["messages"]) == NUDGED_THEN_FINISHED


def test_a_model_call_that_middleware_retries_gets_the_nudge_again() -> None:
    agent = create_agent(
        ScriptedChatModel(policy=_fails_once_nudged(obeys)),
        [search],
        middleware=[ModelRetryMiddleware(initial_delay=0.0), TrajectoryGuardMiddleware(board=new_board())],
    )

    assert outline(agent.invoke(TASK)["messages"]) == NUDGED_THEN_FINISHED


def test_questions_of_the_gate_and_of_the_agent_get_their_own_answers() -> None:
    """The agent asks a person too, in the same super-step, after the gate has."""
    given: list[Any] = []
    answer = _answer(repeats(6))

    def agent(state: Any) -> Any:
        if sum(message.type == "tool" for message in state["messages"]) == STOP_AT:
            given.append(interrupt("the agent asks"))
        return {"messages": [answer(state)]}

    builder = apply_guard(_graph(agent), on_stop="interrupt", board=new_board())
    graph = builder.compile(checkpointer=InMemorySaver())

    first = graph.invoke(TASK, thread())["__interrupt__"][0].value
    second = graph.invoke(Command(resume=True), thread())["__interrupt__"][0].value
    graph.invoke(Command(resume="for the agent"), thread())

    assert (first["status"], second, given) == ("guardrail_triggered", "the agent asks", ["for the agent"])


# --- what it costs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["apply_guard", "guarded_invoke", "middleware"])
def test_ten_tool_calls_fit_into_the_recursion_limit_they_fit_into_unguarded(kind: str) -> None:
    config, policy, board = {"recursion_limit": 22}, works(10), new_board()
    if kind == "middleware":
        middleware = [TrajectoryGuardMiddleware(board=board)]
        result = create_agent(ScriptedChatModel(policy=policy), [lookup], middleware=middleware).invoke(TASK, config)
    elif kind == "guarded_invoke":
        result = guarded_invoke(agent_builder(policy).compile(), TASK, config, board=board)
    else:
        result = apply_guard(agent_builder(policy), board=board).compile().invoke(TASK, config)

    assert result["messages"][-1].content == "Done."


def _saved_bytes(place: Path, builder: Builder) -> int:
    with SqliteSaver.from_conn_string(str(place)) as saver:
        builder.compile(checkpointer=saver).invoke(TASK, thread(recursion_limit=200))
        (size,) = saver.conn.execute("SELECT sum(length(checkpoint)) FROM checkpoints").fetchone()
        (writes,) = saver.conn.execute("SELECT sum(length(value)) FROM writes").fetchone()
    return int(size + writes)


def test_forty_steps_grow_the_checkpoints_by_less_than_they_hold_messages(tmp_path: Path) -> None:
    unguarded = _saved_bytes(tmp_path / "unguarded.db", agent_builder(works(40)))
    guarded = _saved_bytes(tmp_path / "guarded.db", apply_guard(agent_builder(works(40)), board=new_board()))

    assert guarded - unguarded < 1_000_000  # 81 checkpoints: 12 kB each


def test_the_engines_state_is_text_in_the_checkpoint_and_in_no_stream_and_no_result() -> None:
    saver = InMemorySaver()
    graph = apply_guard(agent_builder(works(2)), board=new_board()).compile(checkpointer=saver)

    chunks = list(graph.stream(TASK, thread(), stream_mode=["values", "updates", "debug"]))

    saved = saver.get(thread())
    assert saved is not None
    assert isinstance(saved["channel_values"][MEMORY]["state"], str)
    assert MEMORY not in str(chunks)
    assert MEMORY not in graph.get_state(thread()).values
    assert graph.get_state(thread()).values["loop_status"]["steps_taken"] == 2


class JsonOnly:
    """A serializer of an application that saves its checkpoints as JSON."""

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        """The value as JSON, messages by their fields."""

        def default(held: Any) -> Any:
            if isinstance(held, BaseMessage):
                return {"message": message_to_dict(held)}
            raise TypeError(f"no JSON: {type(held).__name__}")

        return "json", json.dumps(value, default=default).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value again."""
        return json.loads(data[1], object_hook=lambda one: _message(one["message"]) if "message" in one else one)


def _message(plain: Any) -> BaseMessage:
    (message,) = messages_from_dict([plain])
    return message


@pytest.mark.parametrize("options", [{}, {"cursor": True}], ids=["", "cursor"])
def test_checkpoints_that_are_json_hold_what_a_gate_remembers(options: Any) -> None:
    saver = InMemorySaver(serde=JsonOnly())
    state: Any = TASK
    for _ in range(30):  # each super-step in another process
        builder = apply_guard(agent_builder(repeats(8)), board=new_board(**options))
        graph = builder.compile(checkpointer=saver)
        values = graph.invoke(state, thread(), interrupt_after=["agent"])
        state = None
        if not graph.get_state(thread()).next:
            break

    assert outline(values["messages"]) == NUDGED_THEN_STOPPED


# --- streams that users read -----------------------------------------------------------------------------------


def _shown(chunks: Any) -> list[Any]:
    return [message for message, _ in chunks if message.type in ("human", "ai", "AIMessageChunk")]


def _guarded(kind: str, policy: Policy) -> Any:
    board = new_board()
    if kind == "middleware":
        middleware = [TrajectoryGuardMiddleware(board=board)]
        return create_agent(ScriptedChatModel(policy=policy), [search], middleware=middleware)
    if kind == "sub-graph":
        return apply_guard(_sub_graph(policy), board=board).compile()
    if kind in ("agent as a node", "agent in a function"):
        agent = agent_builder(policy).compile()
        parent: Builder = StateGraph(MessagesState)
        parent.add_node("research", agent if kind == "agent as a node" else lambda state: agent.invoke(state))
        parent.add_edge(START, "research")
        return guard_compiled(parent.compile(), board=board)
    if kind == "supervisor":
        worker = create_agent(ScriptedChatModel(policy=policy), [search], name="worker")
        boss = create_supervisor([worker], model=ScriptedChatModel(policy=_hands_over), output_mode="full_history")
        return apply_guard(boss, board=board).compile()
    return apply_guard(agent_builder(policy), board=board).compile()


def _hands_over(messages: Any, turn: int) -> AIMessage:
    if any(message.type == "tool" for message in messages):
        return AIMessage("The worker has answered.")
    return calls(messages, ("transfer_to_worker", {}))


@pytest.mark.parametrize(
    "kind",
    [
        "apply_guard",
        "sub-graph",
        "agent as a node",  # here and in a function, the stream has the messages that the parent's node returns
        *(pytest.param(kind, marks=async_context) for kind in ("agent in a function", "supervisor", "middleware")),
    ],
)
def test_a_stream_of_messages_shows_users_the_closing_message_and_no_nudge(kind: str) -> None:
    graph = _guarded(kind, repeats())

    shown = _shown(graph.stream(TASK, stream_mode="messages"))
    ashown = _shown(asyncio.run(_list(_guarded(kind, repeats()).astream(TASK, stream_mode="messages"))))

    for messages in (shown, ashown):
        assert [message for message in messages if isinstance(message, HumanMessage)] == []
        assert [type(message) for message in messages if is_guard_message(message)] in ([AIMessage], [AIMessageChunk])


def test_the_nudge_node_by_hand_shows_the_nudge_and_one_line_leaves_it_out() -> None:
    builder: Builder = StateGraph(MessagesState)
    builder.add_node("agent", agent_node(obeys))
    builder.add_node("tools", ToolNode([search]))
    builder.add_node("guard", TrajectoryGuardNode(board=new_board()))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "guard")

    chunks = list(builder.compile().stream(TASK, stream_mode="messages"))

    assert any(is_guard_message(message) for message in _shown(chunks))
    kept = [message for message, _ in chunks if "trajectory_guard" not in message.additional_kwargs]
    assert not any(is_guard_message(message) for message in kept)
    assert len(kept) == len(chunks) - 1


async def _list(chunks: Any) -> list[Any]:
    return [chunk async for chunk in chunks]


# --- states with other messages --------------------------------------------------------------------------------


def test_messages_as_plain_dicts_are_read_and_nudged_in_their_own_form() -> None:
    """``{"role", "content"}``, as OpenAI's own client has them, under a reducer that only appends."""

    class Talk(BaseModel):
        messages: Annotated[list[dict[str, Any]], append]

    def agent(state: Talk) -> Any:
        called = [{"id": f"c{len(state.messages)}", "type": "function", "function": {"name": "s", "arguments": "{}"}}]
        return {"messages": [{"role": "assistant", "content": "", "tool_calls": called}]}

    def tools(state: Talk) -> Any:
        answered = state.messages[-1]["tool_calls"][0]["id"]
        return {"messages": [{"role": "tool", "tool_call_id": answered, "content": "No results found"}]}

    builder: Builder = StateGraph(Talk)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "tools" if len(state.messages) < 30 else END, ["tools", END])
    builder.add_edge("tools", "agent")

    messages = (
        apply_guard(builder, board=new_board()).compile().invoke({"messages": [{"role": "user", "content": "?"}]})
    )

    roles = [message["role"] for message in messages["messages"]]
    assert roles[:8] == ["user", *["assistant", "tool"] * 3, "user"]
    assert messages["messages"][-1]["content"] == SEARCHED_IN_VAIN.replace("search was", "s was")


@pytest.mark.parametrize(
    ("path", "expected"),
    [(None, ""), ("", ""), ("agent:1", ""), ("team:1|agent:2", "team:1"), ("a:1|b:2|agent:3", "a:1|b:2")],
)
def test_the_namespace_of_a_node_is_that_of_the_graph_run_it_is_in(path: str | None, expected: str) -> None:
    assert namespace_of({"configurable": {} if path is None else {"checkpoint_ns": path}}) == expected
