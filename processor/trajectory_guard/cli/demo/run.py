"""``trajectory-guard demo``: four agents under real instrumentation, offline, with measured savings."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from langgraph.errors import GraphRecursionError
from opentelemetry.sdk.trace import TracerProvider
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.cli.demo.agents import AGENTS, STUBBORN, DemoAgent, build_graph
from trajectory_guard.cli.output import make_console
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.policy import Level
from trajectory_guard.core.text import clip
from trajectory_guard.gates.langgraph import apply_guard
from trajectory_guard.gates.messages import is_guard_message
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.spending.prices import look_up

RECURSION_LIMIT: Final = 60
MODEL: Final = "gpt-4o"
_INSTRUMENTATIONS: Final = (
    ("OpenLLMetry", "opentelemetry.instrumentation.langchain", "LangchainInstrumentor"),
    ("OpenInference", "openinference.instrumentation.langchain", "LangChainInstrumentor"),
    ("OpenTelemetry GenAI", "opentelemetry.instrumentation.genai.langchain", "LangChainInstrumentor"),
)
_COLOURS: Final = {Level.OBSERVE: "green", Level.NUDGE: "yellow", Level.STOP: "red"}


class Usage(NamedTuple):
    """Consumption of a run: model calls, tool calls and tokens."""

    steps: int
    tokens: int
    cost_usd: float


def run_demo(svg: str | None = None) -> int:
    """Run all four agents and print what happened. Returns 0 if each did what it shows.

    Parameters:
        svg: file to draw the first agent's run into, instead of the whole demo.
    """
    console: Console = make_console(record=svg is not None, width=100 if svg else None)
    provider = TracerProvider()
    board = FlagBoard(GuardConfig())
    provider.add_span_processor(TrajectoryGuardProcessor(board=board, tracer_provider=provider))
    with _quiet(), _instrumented(provider) as name:
        console.print(f"[bold]trajectory_guard[/] · tool spans from [bold]{name}[/bold] · model scripted, no network\n")
        return _show_agents(console, board, svg)


def _show_agents(console: Console, board: FlagBoard, svg: str | None) -> int:
    if svg is not None:
        outcome = _run(console, AGENTS[0], board)
        drawing = console.export_svg(title="trajectory-guard demo")
        Path(svg).write_text(_without_font_downloads(drawing), encoding="utf-8")
        return 0 if outcome == "nudged" else 1
    expected = ("nudged", "stopped", "ok", "ok")
    outcomes = [_run(console, agent, board) for agent in AGENTS]
    _savings(console, board)
    return 0 if tuple(outcomes) == expected else 1


def _without_font_downloads(svg: str) -> str:
    """A picture must not fetch anything."""
    first, *rest = svg.split("@font-face {")
    return "".join([first, *(part.partition("}")[2].lstrip() for part in rest)])


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop log records: the demo prints the same verdicts itself."""
    loggers = [logging.getLogger(name) for name in ("trajectory_guard", "opentelemetry", "openinference")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _instrumented(provider: TracerProvider) -> Iterator[str]:
    """Instrument LangChain for the duration of the demo; yields the name of the installed instrumentation."""
    for name, module, instrumentor in _INSTRUMENTATIONS:
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        instrumentation = getattr(found, instrumentor)()
        instrumentation.instrument(tracer_provider=provider)
        try:
            yield name
        finally:
            instrumentation.uninstrument()
        return
    raise ModuleNotFoundError(name=_INSTRUMENTATIONS[0][1])


# --- one agent -----------------------------------------------------------------------------------------------


def _run(console: Console, agent: DemoAgent, board: FlagBoard) -> str:
    console.print(Panel(Text(agent.shows), title=f"[bold]{agent.title}[/bold]", title_align="left", expand=False))
    graph = apply_guard(build_graph(agent.policy, agent.tools()), board=board).compile()
    config: Any = {"configurable": {"thread_id": agent.title}, "recursion_limit": RECURSION_LIMIT}
    worst, number = "ok", 0
    for update in graph.stream({"messages": [("user", agent.task)]}, config, stream_mode="updates"):
        for change in update.values():
            number = _show(console, change or {}, number, board)
            status = (change or {}).get("loop_status", {}).get("status", "ok")
            worst = max(worst, status, key=("ok", "nudged", "stopped").index)
    console.print()
    return worst


def _show(console: Console, change: dict[str, Any], number: int, board: FlagBoard) -> int:
    messages = change.get("messages") or []
    if "loop_status" in change:
        _show_guard(console, change["loop_status"], [one for one in messages if is_guard_message(one)], board)
    for message in messages:
        if message.type == "tool":
            number += 1
            answer = escape(clip(str(message.content), 60)) or "nothing"
            console.print(f"  [dim]step {number:>2}[/dim]  {message.name} → [dim]{answer}[/dim]")
        elif message.type == "ai" and not is_guard_message(message):
            for one in message.tool_calls:
                thought, args = (escape(clip(str(text), 48)) for text in (message.content, one["args"]))
                console.print(f"  [cyan]agent[/cyan]    {thought} [bold]{one['name']}[/bold] {args}")
            if not message.tool_calls:
                console.print(f"  [cyan]agent[/cyan]    [bold]{escape(str(message.content))}[/bold]")
    return number


def _show_guard(console: Console, status: dict[str, Any], messages: list[Any], board: FlagBoard) -> None:
    level = _level(status, board)
    colour = _COLOURS[level]
    console.print(f"  [{colour}]guard[/{colour}]    score {status['score']:.2f}  [{colour}]{level}[/{colour}]")
    for message in messages:
        console.print(Text("           " + str(message.content).replace("\n", "\n           "), style=colour))


def _level(status: dict[str, Any], board: FlagBoard) -> Level:
    """The level of the newest verdict: it stays while the loop goes on, with nothing for the gate to do."""
    if status["status"] == "stopped":  # the board has cleared the flag that the gate has taken
        return Level.STOP
    verdict = board.last_verdict(status["trajectory_id"])
    return verdict.level if verdict is not None and verdict.step_index == status["steps_taken"] - 1 else Level.OBSERVE


# --- savings -------------------------------------------------------------------------------------------------


def _savings(console: Console, board: FlagBoard) -> None:
    """Run the stubborn agent with and without the guard, to the same recursion limit, and compare."""
    with_guard, without = _measure(board), _measure(None)
    table = Table(
        title=f"Measured: the agent that ignores the nudge, to a recursion limit of {RECURSION_LIMIT}",
        title_justify="left",
    )
    for column in ("", "tool calls", "tokens", f"cost ({MODEL} prices)"):
        table.add_column(column, justify="left" if not column else "right")
    for label, usage in (("without guard", without), ("with guard", with_guard)):
        table.add_row(label, str(usage.steps), f"{usage.tokens:,}", f"${usage.cost_usd:.4f}")
    table.add_row(
        "[bold]saved[/bold]",
        *(f"[bold]{1 - ours / theirs:.0%}[/bold]" for ours, theirs in zip(with_guard, without, strict=True)),
    )
    console.print(table)


def _measure(board: FlagBoard | None) -> Usage:
    builder = build_graph(STUBBORN.policy, STUBBORN.tools())
    graph = (apply_guard(builder, board=board) if board is not None else builder).compile()
    config: Any = {"configurable": {"thread_id": f"measure-{board is not None}"}, "recursion_limit": RECURSION_LIMIT}
    messages: list[Any] = []
    try:
        for state in graph.stream({"messages": [("user", STUBBORN.task)]}, config, stream_mode="values"):
            messages = state["messages"]
    except GraphRecursionError:
        pass  # that is how an unguarded loop ends
    used = [message.usage_metadata for message in messages if getattr(message, "usage_metadata", None)]
    read, wrote = (sum(usage[key] for usage in used) for key in ("input_tokens", "output_tokens"))
    price = look_up(MODEL)
    return Usage(sum(message.type == "tool" for message in messages), read + wrote, price.cost(read, wrote))
