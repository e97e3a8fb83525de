"""A loop that nobody stops ends soon in these tests. Read by LangGraph when it is imported."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

os.environ.setdefault("LANGGRAPH_DEFAULT_RECURSION_LIMIT", "200")


@pytest.fixture(params=["invoke", "ainvoke"])
def run(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Runs a graph, by default with the task of these tests."""
    from tests.gates.agents import TASK

    def invoke(graph: Any, state: Any = TASK, config: Any = None) -> dict[str, Any]:
        if request.param == "invoke":
            return graph.invoke(state, config)
        return asyncio.run(graph.ainvoke(state, config))

    return invoke


@pytest.fixture
def traced() -> Iterator[Callable[..., Any]]:
    """Makes a board that a real instrumentation feeds, too."""
    from openinference.instrumentation.langchain import LangChainInstrumentor
    from opentelemetry.sdk.trace import TracerProvider

    from tests.gates.agents import new_board
    from trajectory_guard.otel.processor import TrajectoryGuardProcessor

    instrumentor = LangChainInstrumentor()

    def begin(**config: Any) -> Any:
        board = new_board(**config)
        provider = TracerProvider()
        provider.add_span_processor(TrajectoryGuardProcessor(board=board))
        instrumentor.instrument(tracer_provider=provider)
        return board

    yield begin
    instrumentor.uninstrument()
