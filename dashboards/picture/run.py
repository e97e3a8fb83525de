"""A fleet lives for some minutes under a real collector and a real Prometheus; what *Fleet* asks for is kept in a file.

From the root of the repository: ``python -m dashboards.picture.run OUT.json [SECONDS]``, then in this folder
``npm install`` and ``node draw.mjs OUT.json ../../docs/figures/fleet-dashboard.png``. Needs Prometheus, as the tests
do, and Chromium.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.dashboards import load
from tests.dashboards.panels import board, filled, panels
from tests.dashboards.programs import Prometheus, backend, collector, prometheus, until

STEP_S: Final = 5
Calls = Callable[[random.Random], list[load.Call]]


class Agent(NamedTuple):
    """One agent: how often it is fine, recovers, goes on; what it does when stuck, and the call it is nudged at."""

    service: str
    name: str
    weights: tuple[float, float, float]
    stuck: Calls
    nudged_at: int = 3


def _same(tool: str, result: str) -> Calls:
    return lambda chance: [load.Call(tool, {"of": "the same"}, result, model=True)] * chance.randint(4, 9)


AGENTS: Final = (
    Agent("support-bot", "planner", (0.75, 0.2, 0.05), _same("search", "No results found")),
    Agent("research", "scout", (0.7, 0.2, 0.1), lambda chance: load.rewording(), 4),
    Agent("coding", "editor", (0.75, 0.15, 0.1), _same("run_tests", "3 failed: test_tax, test_total, test_round")),
    Agent("billing", "clerk", (0.9, 0.08, 0.02), _same("query_ledger", "[]")),
    Agent("library", "reader", (1.0, 0.0, 0.0), _same("search", "")),
)
DEPLOYED: Final = Agent("support-bot", "planner", (0.35, 0.25, 0.4), AGENTS[0].stuck)
"""The first agent in the middle of the time: a bad deployment, rolled back."""


def live(http: str, seconds: float) -> None:
    """Send conversations, some a second."""
    chance = random.Random(7)
    through = load.exporter(http=http)
    begin = time.time()
    for number in itertools.count():
        passed = (time.time() - begin) / seconds
        if passed > 1:
            return
        agent = chance.choice(AGENTS)
        if agent is AGENTS[0] and 0.4 < passed < 0.65:
            agent = DEPLOYED
        load.send(
            through, load.conversation(agent.service, f"{agent.service}-{number}", agent.name, _calls(agent, chance))
        )
        time.sleep(chance.uniform(0.2, 0.9))


def _calls(agent: Agent, chance: random.Random) -> list[load.Call]:
    (fate,) = chance.choices(("fine", "recovers", "goes on"), agent.weights)
    if fate == "fine":
        return load.reading(chance.randint(4, 12))
    stuck = agent.stuck(chance)
    return stuck if fate == "goes on" else stuck[: agent.nudged_at] + load.reading(6)


def answers(server: Prometheus, seconds: int) -> dict[str, Any]:
    """All that the page needs: the dashboard, and what each of its Prometheus queries gave."""
    end = time.time() // STEP_S * STEP_S
    times = {"__interval": f"{STEP_S}s", "__range": f"{seconds}s", "__rate_interval": f"{STEP_S}s"}
    found = {
        str(one["id"]): [_answer(server, target, times, end, seconds) for target in one["targets"]]
        for one in panels("fleet").values()
        if one["datasource"]["type"] == "prometheus"
    }
    return {"dashboard": board("fleet"), "answers": found, "from": (end - seconds) * 1000, "to": end * 1000}


def _answer(server: Prometheus, target: Any, times: dict[str, str], end: float, seconds: int) -> Sequence[Any]:
    expression = filled(target["expr"], **times)
    if target["instant"]:
        result: Sequence[Any] = server.get("query", query=expression, time=end)["result"]
    else:
        result = server.get("query_range", query=expression, start=end - seconds, end=end, step=STEP_S)["result"]
    return result


def main() -> None:
    """Live, ask, write."""
    out, seconds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 300
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        output = {"otlphttp": {"endpoint": f"{stack.enter_context(backend())}/takes"}}
        one = stack.enter_context(collector(folder, "collector", exporters=output))
        server = stack.enter_context(prometheus(folder, {"collector": one.telemetry}, {"groups": []}))
        until(lambda: server.query("up == 1"), "the collector is scraped")
        live(one.http, seconds)
        time.sleep(STEP_S)
        out.write_text(json.dumps(answers(server, seconds)), encoding="utf-8")


if __name__ == "__main__":
    main()
