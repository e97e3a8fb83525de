"""The run that a step belongs to, and the boundaries between runs.

A *run* is one agent instance working towards one answer. Two labels name it: ``run`` the instance (an agent span, a
checkpoint namespace) and ``turn`` the user turn in which it works; spans show the turn where the input of a model call
is captured (``asked``). Another label is another run: a *certain* boundary, across which no finding extends. Where
labels are missing, a new trace of the same conversation and a long pause are *uncertain* boundaries: steps before them
are weaker evidence and never lead to a stop.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from trajectory_guard.core.fingerprints import digest64
from trajectory_guard.core.run import UNKNOWN_RHYTHM, Run
from trajectory_guard.core.steps import StepRecord

ASKED: Final = "?"
"""Prefix of the labels of user turns that were read from the input of model calls."""
ANEW: Final = "~"
"""Begins the part by which the label of a user turn is longer that was begun anew."""
GRAPH: Final = "^"
"""Begins the label of an instance that is one invocation of a graph, in a trace that may show several."""
CODE: Final = "<"
"""Begins the label of a batch whose calls are those of a block of code, which may make one in a loop."""
RHYTHM_FACTOR: Final = 8
"""A pause this many times as long as the run's rhythm is a boundary."""
LEAST_PAUSE_S: Final = 30.0
"""Minimum length in seconds of a pause that is a boundary, whatever the rhythm."""
PACED_S: Final = 20.0
"""Idle seconds before a repeat from which on it may be deliberate polling."""
PAUSE_S: Final = 120.0
"""Idle seconds from which on a pause is deliberate whatever the run's rhythm."""
RETRY_PAUSE_S: Final = 5.0
"""Idle seconds before a repeat from which on it may be a deliberate back-off."""
PACED_FACTOR: Final = 4
"""Minimum ratio of a deliberate pause to the run's rhythm."""
SUPERSTEP_CHARS: Final = 6
"""Length of the number of a super-step at the end of the label of a batch, blanks before it included."""


def label_of(instance: str, turn: str | None) -> str:
    """Label of the run of an agent instance in a user turn.

    >>> label_of("billing", "2")
    'billing/2'
    """
    return instance if turn is None else f"{instance}/{turn}"


def asked_label(place: int, words: str) -> str:
    """Label of the user turn that a message begins.

    Parameters:
        place: of the message in the input of the model call; words: its text.
    """
    return f"{ASKED}{digest64(words.encode('utf-8', 'replace')).hex()}.{place}"


def in_other_words(asked: str, before: str) -> bool:
    """Whether two labels of user turns that were read from spans stand for different texts.

    >>> in_other_words(asked_label(1, "Where is it?"), asked_label(7, "Where is it?"))
    False
    """
    return asked.rpartition(".")[0] != before.rpartition(".")[0]


def place_of(asked: str) -> int:
    """Place of the message in the input of the model call that the label of a user turn was read from.

    >>> place_of(asked_label(7, "Where is it?"))
    7
    """
    place = asked.rpartition(".")[2]
    return int(place) if place.isdecimal() else 0


def instance_in(label: str) -> str:
    """Agent instance in the label of a run whose turn, if it has one, was read from spans.

    >>> instance_in(label_of("a/b", ASKED + "5f"))
    'a/b'
    """
    instance, mark, _ = label.rpartition(f"/{ASKED}")
    return instance if mark else label


def graph_instance(label: str) -> str:
    """The part of a run's label that names the graph instance, as gates write it; empty at the top of the graph.

    >>> graph_instance("alice:1/turn"), graph_instance("/turn"), graph_instance("")
    ('alice:1', '', '')
    """
    return label.partition("/")[0]


def graph_turn(label: str) -> str:
    """The user turn in a run's label, as gates write it; empty if it has none.

    >>> graph_turn("alice:1/turn"), graph_turn("/turn"), graph_turn("alice:1")
    ('turn', 'turn', '')
    """
    return label.partition("/")[2]


def are_siblings(first: str, second: str) -> bool:
    """Whether two labels name runs of different graph instances, neither of them inside the other.

    >>> are_siblings("work:1/a", "work:2/b"), are_siblings("work:1/a", "work:1|tools:2"), are_siblings("work:1", "")
    (True, False, False)
    """
    one, other = graph_instance(first), graph_instance(second)
    if one == other or ":" not in one or ":" not in other:
        return False
    return not one.startswith(f"{other}|") and not other.startswith(f"{one}|")


def turn_of(step: StepRecord, turns: dict[str, str]) -> str | None:
    """Label of the user turn in which a step is taken; None if unknown.

    The step's own label comes first (gates, recordings), then the user message its trace answers (captured input of
    model calls), then the turn that its agent instance is in.

    Parameters:
        turns: label of the current user turn by agent instance.
    """
    named = step.turn if step.turn is not None else step.asked
    return named if named is not None else turns.get(step.run or "")


def run_label(step: StepRecord, turns: dict[str, str]) -> str:
    """Label of the step's run; ``turns`` as in ``turn_of``.

    >>> run_label(StepRecord("1", "t", "search", turn="2", run="billing"), {})
    'billing/2'
    """
    instance, turn = step.run or "", step.turn if step.turn is not None else step.asked
    if turn is None and turns:
        turn = turns.get(instance)
    return instance if turn is None else f"{instance}/{turn}"


def run_of_model_call(
    call: StepRecord, turns: dict[str, str], runs: Container[str]
) -> tuple[StepRecord, str]:  # fmt: skip
    """A model call and the label of its run: that of an invocation of a graph only if tools were called in it.

    A program that has no tools may invoke a graph, or a chain, once for each of the calls that repeat.

    Parameters:
        turns: as in ``turn_of``; runs: labels of the runs in which tools were called.
    """
    label = run_label(call, turns)
    if call.run is not None and call.run[:1] == GRAPH and label not in runs:
        call = call._replace(run=None)
        label = run_label(call, turns)
    return call, label


def idle_s(run: Run, step: StepRecord) -> float:
    """Idle seconds between the newest step of the run and this one, the model's own time aside; 0 if unknown."""
    if not step.timestamp or run.index == 0:
        return 0.0
    thinking = step.usage.seconds if step.usage is not None else 0.0
    gap_s = step.timestamp - run.last_end - thinking
    return gap_s if gap_s > 0.0 else 0.0


def is_boundary(run: Run, step: StepRecord, gap_s: float, pause_s: float) -> bool:
    """Whether an uncertain boundary lies before the step.

    Parameters:
        gap_s: idle seconds before the step.
        pause_s: idle seconds from which on a pause is a boundary whatever the rhythm.
    """
    if run.index == 0:
        return False
    if step.turn is None and step.trace_id is not None and run.trace_id is not None and step.trace_id != run.trace_id:
        return True
    before = run.batch_label
    if before is not None and step.batch is not None and step.batch < before and falls(before, step.batch):
        return True
    if gap_s >= pause_s:
        return True
    return gap_s >= LEAST_PAUSE_S and run.rhythm_s >= 0.0 and gap_s >= RHYTHM_FACTOR * max(run.rhythm_s, 1.0)


def may_go_on(run: Run | None, step: StepRecord) -> bool:
    """Whether a run may go on behind a step of another user turn, if spans show both in one trace.

    A text that looks like another message may come from the code of a tool, which asks a model meanwhile.
    """
    return run is not None and run.trace_id == step.trace_id and step.turn is None


def superstep(batch: str | None) -> int:
    """The number of a LangGraph super-step at the end of the label of a batch; -1 if it has none.

    >>> superstep("4bf9/shop/billing/    12"), superstep("message-1")
    (12, -1)
    """
    _, mark, number = (batch or "").rpartition("/")
    return int(number) if mark and len(number) == SUPERSTEP_CHARS and number.strip().isdecimal() else -1


def falls(before: str, batch: str) -> bool:
    """Whether the super-step of a batch has a lower number than that of the batch before it, in one trace and graph.

    LangGraph counts the super-steps of a graph from its start, so the graph has been started again, or runs several
    times side by side, by a program that names no thread.
    """
    same_graph = before.rpartition("/")[0] == batch.rpartition("/")[0]
    return same_graph and -1 < superstep(batch) < superstep(before)


def is_restart(run: Run, batch: str) -> bool:
    """Whether a graph has been started again, which ends the run: its super-steps count from where they began."""
    before = run.batch_label
    return before is not None and superstep(batch) <= run.first_superstep and falls(before, batch)


def is_paced(run: Run, gap_s: float) -> bool:
    """Whether a repeat comes after a pause that looks deliberate: longer than thinking takes, at all or in this run."""
    unknown = run.rhythm_s == UNKNOWN_RHYTHM
    return gap_s >= PAUSE_S or (gap_s >= PACED_S and (unknown or gap_s >= PACED_FACTOR * abs(run.rhythm_s)))


def may_be_paced(run: Run, gap_s: float) -> bool:
    """Whether a repeat comes after a long pause, and nothing but one such pause shows the run's rhythm so far."""
    return gap_s >= PACED_S and run.rhythm_s < 0.0


def next_rhythm(run: Run, gap_s: float) -> float:
    """The run's rhythm in seconds after a call that was no repeat: an exponential running mean of idle seconds.

    A step that comes much sooner shows that what was taken for the rhythm was a pause. One long gap alone is none: it
    may be the pause before a first look at something under way. Until the next one it is kept, negative.
    """
    known = run.rhythm_s
    if known == UNKNOWN_RHYTHM and gap_s >= PACED_S:
        return -gap_s
    if known < 0.0 or PACED_FACTOR * gap_s < known:
        return gap_s
    most = PACED_FACTOR * (known if known > 1.0 else 1.0)
    return 0.75 * known + 0.25 * (gap_s if gap_s < most else most)
