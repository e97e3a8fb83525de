"""Published guards on the same inputs, in the same rounds as ours. None of them needs to be installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from tests.bench import gate, shapes
from tests.bench.measure import Effort, Probe, interleave
from tests.bench.report import Row
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.steps import StepRecord

BATCH = 50
OBSERVED_CHARS = 50
_numbers = count()


class Peer(NamedTuple):
    """One row: a peer's probe, and the probe of ours that does the same work."""

    what: str
    ours: str
    build: Callable[[], Probe]


def _numbered() -> list[int]:
    return [next(_numbers) for _ in range(BATCH)]


def _calls() -> list[tuple[int, dict[str, Any], str]]:
    return [(number, shapes.arguments(number), shapes.answer(number)) for number in _numbered()]


def _our_step() -> Probe:
    engine = Engine()
    state = engine.new_state("bench")
    return Probe(
        "observe", lambda: [shapes.healthy(number) for number in _numbered()], lambda step: engine.observe(state, step)
    )


def _our_whole_step() -> Probe:
    engine = Engine()
    state = engine.new_state("bench")

    def whole(item: tuple[int, dict[str, Any], str]) -> object:
        number, args, text = item
        return engine.observe(state, _record(number, args, text))

    return Probe("hash and observe", _calls, whole)


def _record(number: int, args: dict[str, Any], text: str) -> StepRecord:
    from trajectory_guard.core.content.masking import result_hash
    from trajectory_guard.core.fingerprints import args_hash

    return StepRecord(
        f"{number + 1:016x}", "bench", shapes.TOOL, args_hash(args), result_hash("success", text), "success", "support",
        1.0 + number, 0.2, args=args, result=text,
    )  # fmt: skip


def _our_node() -> Probe:
    turns, call = gate.fresh_calls()
    return Probe("gate", turns, call)


# --- the peers -----------------------------------------------------------------------------------------------


def _reivo() -> Probe:
    from reivo_guard import Guard

    guard = Guard(budget_limit_usd=1e9)

    def pair(messages: Any) -> None:
        guard.before(messages=messages)
        guard.after(cost_usd=0.001)

    return Probe("reivo", lambda: [[{"role": "tool", "content": text}] for _, _, text in _calls()], pair)


def _nudgeops_record(item: tuple[int, dict[str, Any], str]) -> Any:
    from nudgeops.core.state import create_step_record
    from nudgeops.embedding.utils import compute_hash

    _, args, text = item
    return create_step_record(
        shapes.TOOL, compute_hash(args), [], state_snapshot_hash=compute_hash({"result": text}), agent_id="support",
        outcome_type="success", raw_tool_args=args,
    )  # fmt: skip


def _nudgeops_step() -> Probe:
    from nudgeops import UniversalGuard

    guard = UniversalGuard()
    return Probe("nudgeops on_step", lambda: [_nudgeops_record(item) for item in _calls()], guard.on_step)


def _nudgeops_whole_step() -> Probe:
    from nudgeops import UniversalGuard

    guard = UniversalGuard()
    return Probe("nudgeops whole", _calls, lambda item: guard.on_step(_nudgeops_record(item)))


def _nudgeops_node() -> Probe:
    from nudgeops import NudgeOpsNode

    node = NudgeOpsNode()

    def states() -> list[Any]:
        said = [{"role": "assistant", "content": f"I look at page {number}."} for number in range(20)]
        return [
            {"messages": said, "tool_results": [{"tool_name": shapes.TOOL, "tool_args": args, "content": text}]}
            for _, args, text in _calls()[:10]
        ]

    return Probe("nudgeops node", states, node)


def _operon() -> Probe:
    from operon_langgraph_gates import StagnationGate

    gate = StagnationGate()

    def texts() -> list[str]:
        return [f"{number}: {json.dumps(args)}"[:OBSERVED_CHARS] for number, args, _ in _calls()[:20]]

    return Probe("operon", texts, lambda text: gate.observe(text, thread_id="bench"))


_OURS: dict[str, Callable[[], Probe]] = {"observe": _our_step, "hash and observe": _our_whole_step, "gate": _our_node}
PEERS = (
    Peer("engine, hash and observe | reivo-guard before(1 message) + after", "hash and observe", _reivo),
    Peer("engine, observe | nudgeops on_step, no vectors", "observe", _nudgeops_step),
    Peer("engine, hash and observe | nudgeops record, hash and on_step", "hash and observe", _nudgeops_whole_step),
    Peer("gate, no spans | nudgeops node, placeholder vectors", "gate", _nudgeops_node),
    Peer(f"engine, hash and observe | operon observe, {OBSERVED_CHARS} characters", "hash and observe", _operon),
)


def rows(effort: Effort) -> Iterator[Row]:
    """One row per peer; ours alone where the peer is not installed."""
    ours = {name: build() for name, build in _OURS.items()}
    built = {peer.what: _try(peer.build) for peer in PEERS}
    probes = [*ours.values(), *(probe for probe in built.values() if probe is not None)]
    figures = interleave(probes, effort.times(0.5))
    for peer in PEERS:
        probe = built[peer.what]
        theirs = figures.median(probe.name) if probe is not None else None
        yield Row(peer.what, figures.median(peer.ours), "us", theirs, "peer" if probe is not None else "not installed")


def _try(build: Callable[[], Probe]) -> Probe | None:
    try:
        return build()
    except ImportError:
        return None
