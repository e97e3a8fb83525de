"""``IntegrityGate``: checks invariants on what the nodes of a graph return."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config.messages import wrong_type
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.detectors.reported import STATE_INVARIANT, TYPE_INTEGRITY
from trajectory_guard.core.explain.certificates import FROZEN, Certificate, fingerprint
from trajectory_guard.core.steps import Certainty
from trajectory_guard.gates.wrapping import (
    EPHEMERAL_THREAD,
    MAX_THREADS,
    OutputGate,
    ThreadMemory,
    is_async,
)
from trajectory_guard.process.containment import let_through

INTEGRITY_THEOREM: Final = "langgraph_state_integrity"
"""Intact: every invariant of the state holds. Named as operon-langgraph-gates names it."""
_SOURCE: Final = "trajectory_guard.gates.integrity"
_MAX_LABEL: Final = 80


class IntegrityGate(OutputGate[ThreadMemory]):
    """Fires when an output of a wrapped node violates an invariant, and stays so until ``reset``.

    An invariant that raises counts as violated. It is named by the name of its function; neither the output nor the
    text of an exception is kept, logged or certified. The certificate is frozen: it states which invariants held.

    Parameters:
        invariants: functions of the output (not of the merged state); each returns whether the invariant holds.
        board: where findings go; by default the board of the process.
        max_threads: threads remembered; the one unused for longest is forgotten first.
    """

    name = "integrity"

    def __init__(
        self,
        invariants: Iterable[Callable[[Any], Any]],
        *,
        board: FlagBoard | None = None,
        max_threads: int = MAX_THREADS,
    ) -> None:
        if not isinstance(invariants, Iterable):
            raise wrong_type("invariants", "a list of functions", invariants)
        self._invariants = tuple((_label(one), one) for one in invariants)
        if not self._invariants:
            raise ValueError("invariants: at least one is needed")
        for label, one in self._invariants:
            if not callable(one) or is_async(one):
                raise TypeError(f"invariants: {label} must be a plain function that returns whether it holds")
        super().__init__(board=board, max_threads=max_threads)

    @property
    def is_violated(self) -> bool:
        """Whether an output without a thread id violated an invariant; see ``is_violated_for``."""
        return self._fired(EPHEMERAL_THREAD)

    def is_violated_for(self, thread_id: str) -> bool:
        """Whether an output of a thread violated an invariant."""
        return self._fired(thread_id)

    def wrap(self, node: Callable[..., Any]) -> Callable[..., Any]:
        """A node for ``add_node`` that returns what ``node`` returns."""
        return self._wrap(node, self._check)

    def _new_memory(self) -> ThreadMemory:
        return ThreadMemory()

    def _check(self, output: Any, thread: str, node: str) -> None:
        if self._fired(thread):
            return  # the certificate of the first violation has all the evidence there is
        results = tuple((label, _holds(one, output)) for label, one in self._invariants)
        if all(held for _, held in results):
            return
        measured = {"invariant_results": results, "all_passed": False}
        with self._lock:
            memory = self._memory(thread)
            if memory.fired:
                return
            memory.certificates.append(_certificate(measured, thread))
            memory.fired = True
        violated = tuple(label for label, held in results if not held)
        self._report(thread, node, None, _finding(violated), measured)


def _holds(invariant: Callable[[Any], Any], output: Any) -> bool:
    try:
        held = invariant(output)
        if inspect.iscoroutine(held):
            held.close()
            return False
        return bool(held)
    except Exception:  # noqa: BLE001  an invariant that fails to answer does not hold
        let_through()
        return False


def _label(invariant: Any) -> str:
    """A name for people; two invariants may have the same."""
    while isinstance(invariant, functools.partial):
        invariant = invariant.func
    return str(getattr(invariant, "__name__", None) or type(invariant).__name__)[:_MAX_LABEL]


def _finding(violated: tuple[str, ...]) -> DetectionResult:
    return DetectionResult(TYPE_INTEGRITY, 1.0, STATE_INVARIANT, Certainty.CERTAIN, 1, 0, (0,), violated)


def _certificate(measured: Mapping[str, Any], thread: str) -> Certificate:
    results = measured["invariant_results"]
    failed = [label for label, held in results if not held]
    facts = {
        "theorem": INTEGRITY_THEOREM,
        "conclusion": f"{len(failed)} of {len(results)} invariants are violated: {', '.join(failed)}.",
        "source": _SOURCE,
        "thread": fingerprint(thread),
    }
    return Certificate.made(STATE_INVARIANT, FROZEN, measured, facts)
