"""The records of a trajectory cursor: one entry per boundary, and what the entries say of each call and each task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

from trajectory_guard.core.fingerprints import text_digest
from trajectory_guard.core.steps import EMPTY, SUCCESS

PROPOSAL: Final = "proposal"
DECISION: Final = "decision"
EXECUTION: Final = "execution"
DENIAL: Final = "denial"
RESULT: Final = "result"
RETRY: Final = "retry"
FEEDBACK: Final = "feedback"
EntryKind = Literal["proposal", "decision", "execution", "denial", "result", "retry", "feedback"]
KINDS: Final[tuple[str, ...]] = get_args(EntryKind)

ALLOWED: Final = "allowed"
ASKED: Final = "asked"
PERSON: Final = "person"
GUARD: Final = "guard"
APPLICATION: Final = "application"

PLANNED: Final = "planned"
EXECUTED: Final = "executed"
DENIED_STATUS: Final = "denied"
SKIPPED: Final = "skipped"
ERRORED: Final = "errored"


class Boundary(NamedTuple):
    """One entry: something that happened to a call, or that was said to the agent.

    Fields:
        kind: ``proposal`` (the model requested the call), ``decision`` (somebody allowed or denied it, or a person is
            asked), ``execution`` (it ran), ``result`` (what came of it), ``denial`` (it did not run), ``retry`` (it
            had failed or been denied before), ``feedback`` (a nudge, a stop, a person's words).
        index: ordinal of the entry in its trajectory, from 0; entries that were dropped count.
        task: label of the task, as ``StepRecord.run`` and the user turn name it; empty if neither is known.
        call: the model's id of the call, else a digest of its arguments, else the id of its span; empty for feedback.
        tool, agent: names; the agent is None if it is unknown.
        outcome: of a decision ``allowed``, ``denied`` or ``asked``; of an execution ``interrupted`` or empty; of a
            result that of the step; of a retry the outcome of the call before; of feedback ``nudge`` or ``stop``.
        by: ``person``, ``guard`` or ``application``; empty if it is unknown.
        note: an excerpt: the arguments of a proposal, the reason of a denial, the error of a result. Empty if redacted.
    """

    kind: str
    index: int  # type: ignore[assignment]  # the name of a method of tuples, which nobody calls here
    task: str = ""
    call: str = ""
    tool: str = ""
    agent: str | None = None
    outcome: str = ""
    by: str = ""
    note: str = ""


class Sighting(NamedTuple):
    """A call as one source shows it.

    Fields:
        tool: as the source spells it.
        source: ``messages``, ``span`` (of the tool), ``model`` (span of the model), ``gate`` (before the tool), or
            empty for entries appended by hand.
        key: distinguishes calls of this source.
        call_id: the model's id of the call, empty if unknown. Some models use an id again in every turn.
        digest: digest of the arguments, empty if unknown.
        single: digest of the only argument, if it is a text: some instrumentations drop its name.
        args: excerpt of the arguments.
        task, instance: label of the task, and the agent instance in it.
        agent: name, None if unknown.
        batch: label of the model message that requested it, empty if unknown.
        start: start of the call in seconds, 0 if unknown.
        live: this process saw the model request it, and would see it run.
    """

    tool: str
    source: str = ""
    key: str = ""
    call_id: str = ""
    digest: str = ""
    single: str = ""
    args: str = ""
    task: str = ""
    instance: str = ""
    agent: str | None = None
    batch: str = ""
    start: float = 0.0
    live: bool = False


@dataclass
class Call:
    """The knowledge of one call.

    Attributes:
        number: ordinal of the call in its trajectory, from 1.
        tool, call_id, digest, single, args, task, agent, batch: as in ``Sighting``.
        seen: key of the call by source.
        first: index of its first entry.
        retries: outcome of the equal call before it that failed or was denied, and who denied it; empty once the retry
            is entered.
        proposed, executed: there is such an entry; interrupted: an execution was, and may go on.
        decision: the newest decision, empty if there is none.
        outcome: of its result, ``denied``, or empty while it is open.
        by: who denied it, or answered in place of the tool.
        note: excerpt of the error or of the reason.
        end: end of the call in seconds, 0 if unknown.
        live: as in ``Sighting``; not saved.
    """

    number: int
    tool: str
    call_id: str = ""
    digest: str = ""
    single: str = ""
    args: str = ""
    task: str = ""
    agent: str | None = None
    batch: str = ""
    seen: dict[str, str] = field(default_factory=dict)
    first: int = 0
    retries: list[str] = field(default_factory=list)
    proposed: bool = False
    executed: bool = False
    interrupted: bool = False
    decision: str = ""
    outcome: str = ""
    by: str = ""
    note: str = ""
    end: float = 0.0
    live: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        """The call in entries."""
        return self.call_id or self.digest or next(iter(self.seen.values()), "")

    @property
    def signature(self) -> tuple[str, str] | None:
        """Equal for equal calls; None if the arguments are unknown, which equal no others."""
        return (self.tool.casefold(), self.digest) if self.digest else None

    @property
    def succeeded(self) -> bool:
        """Whether it ran, and no error came back."""
        return self.executed and self.outcome in (SUCCESS, EMPTY)


@dataclass
class Task:
    """One agent instance in one user turn.

    Attributes:
        label: as in ``Boundary.task``.
        instance: the agent instance, empty at the top.
        number: ordinal of the task in its trajectory, from 1.
        began: index of its first entry.
        position: number of its calls with an outcome.
        gone: executed calls that are no longer kept, each as the tool and whether it succeeded.
        gone_repeats: number of those that repeat the one before; gone_last: the last of them, tool and digest.
        read: the newest model message of which all calls have been read to their end.
        asked: stands for the newest model message whose calls have been entered, and for what followed it then.
        batches: labels of the newest two model messages; a message has one in its span and one in the graph state.
    """

    label: str
    instance: str = ""
    number: int = 1
    began: int = 0
    position: int = 0
    gone: list[list[str | bool]] = field(default_factory=list)
    gone_repeats: int = 0
    gone_last: list[str] = field(default_factory=list)
    read: str = ""
    asked: str = ""
    batches: list[str] = field(default_factory=list)

    def requested_by(self, batch: str) -> None:
        """Note that a model message of the task has requested a call."""
        if batch and batch not in self.batches:
            self.batches = [*self.batches[-1:], batch]


def batch_digest(batch: str) -> str:
    """Stands for a model message in ``Cursor.gone_batches``; empty without a label."""
    return text_digest(batch) if batch else ""


def may_be(call: Call, seen: Sighting) -> bool:
    """Whether a source shows this call, and not another one with the same id: some models reuse ids."""
    known = call.seen.get(seen.source)
    if known is not None and known != seen.key:
        if seen.source == "messages" and seen.batch and seen.batch == call.batch:
            return False  # parallel calls share the id
        bare = seen.call_id in (known, seen.key)  # a message that had no id yet
        return not call.outcome or (bare and seen.source == "messages")
    if known is None and call.outcome and call.digest and seen.digest and not _has_arguments(call, seen):
        return seen.source == "messages" and call.decision == ALLOWED  # edited on its way
    return seen.source != "" or not call.outcome


def shown_by(calls: Iterable[Call], seen: Sighting) -> Call | None:
    """The first of ``calls`` with the id of a sighting that ``may_be`` the call; None if none may.

    Parallel calls may share the id: of those of one model message the first with these arguments, if there is one.
    """
    found: Call | None = None
    for call in calls:
        if found is not None and (not found.batch or call.batch != found.batch):
            break
        if may_be(call, seen) and (found is None or _has_arguments(call, seen)):
            found = call
            if _has_arguments(call, seen):
                break
    return found


def is_free(call: Call, seen: Sighting) -> bool:
    """Whether a source that names no id may show this call: equal arguments, and not yet shown by this source."""
    if not seen.source:
        return not seen.call_id and not call.outcome
    known = call.seen.get(seen.source)
    if known is not None:
        return known == seen.key
    return _has_arguments(call, seen)


def _has_arguments(call: Call, seen: Sighting) -> bool:
    """Whether both show equal arguments, or one text under an argument name that one of them dropped."""
    return (seen.digest != "" and seen.digest == call.digest) or (seen.single != "" and seen.single == call.single)


def overlap(before: Call, seen: Sighting) -> bool:
    """Whether a call began before an earlier one had ended."""
    return seen.start > 0.0 and seen.start < before.end
