"""One step as the detectors read it: the record, and the values that the engine computed from it."""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

from trajectory_guard.core.content.http_requests import endpoint_of
from trajectory_guard.core.content.masking import mask_text, masked_hash
from trajectory_guard.core.content.outcome import ERROR_STEMS, ends_in_error, looks_like_error
from trajectory_guard.core.content.restatement import names_call, names_click, restates
from trajectory_guard.core.content.result_text import (
    carries_content,
    describes_state,
    is_acknowledgement,
    is_timetable,
    values_of,
)
from trajectory_guard.core.fingerprints import UNKNOWN, Symbol, call_symbol, result_symbol, text_digest
from trajectory_guard.core.plain import Plain
from trajectory_guard.core.steps import EMPTY, ERROR, PACE, SUCCESS, Certainty, StepRecord
from trajectory_guard.core.text import both_ends
from trajectory_guard.core.tools import (
    acts_on_view,
    changes_database,
    enters_text,
    is_lookup,
    is_thinking,
    moves_cursor,
    scrolls,
)
from trajectory_guard.core.wordlists import may_hold

MAX_DENIALS: Final = 8
"""Refusals of one call that are remembered, and calls with refusals."""
MAX_THOUGHT_CHARS: Final = 2_000
_IN_IDS: Final = b"0123456789abcdefABCDEF"
_SHAPE_CHARS: Final = 24
"""Shorter results are values: an id or a figure may be all there is to them."""
_NOT_IN_IDS: Final = re.compile(rb"[g-zG-Z\x80-\xff]")
_LETTERS: Final = 12
"""A result with fewer letters beside its ids and figures is made of them: a checksum, a dump of memory."""
_READ_CHARS: Final = 4_096
_TRIES: Final = 2
_RETRY_STEPS: Final = 16
_RETRIES: Final = 3
_KEPT_SHAPES: Final = 8
_MORE_CHARS: Final = 64
_NOT_MASKED: Final = bytes(8)
_WORDS: Final = 4
_SIZE: Final = 8
_TRIED: Final = 10
_MASKED: Final = 11
_SYMBOL: Final = 19
_ENTRY: Final = 27
"""Where the parts begin of what is remembered of a result, and where it ends: ``SameResultRun.shown``."""
_COUNTS: Final = (b"\0", b"\1", b"\2")
_KEPT_CALLS: Final = 5
_KEPT_TOOLS: Final = 4


class SameResultRun(Plain):
    """The current series of consecutive steps with one and the same result, volatile parts aside.

    Attributes:
        result: symbol of that result, hex; empty if the last result is unknown.
        first: index of the first step of the series.
        distinct: number of different calls in the series, those of one batch counted once; different: counted each.
        calls: those calls (the newest five); tools: their tools, case-folded (the newest four).
        shown: what is remembered of the newest eight results that were new: checksums of their beginning and of the
            whole, both without digits and the letters of ids, their length, the number of comparisons in vain, the
            masked form (zeros if it was not computed), and the symbol.
    """

    __slots__ = ("calls", "different", "distinct", "first", "result", "shown", "tools")

    def __init__(self) -> None:
        self.result = ""
        self.first = -1
        self.distinct = self.different = 0
        self.calls: tuple[str, ...] = ()
        self.tools: tuple[str, ...] = ()
        self.shown = b""

    def update(self, seen: Observation, previous: int) -> None:
        """Add a step; an unknown call or result ends the series.

        Parameters:
            previous: index of the step that made this call last, -1 if none is remembered.
        """
        if not seen.result or not seen.call:
            self.result = ""
            self.distinct, self.different, self.calls, self.tools = 0, 0, (), ()
            return
        result = (seen.listed or seen.result).hex()
        if result != self.result:
            looks_again = not seen.step.args and not seen.progress and seen.made > 1
            if self.result and (looks_again or is_thinking(seen.step.tool_name)):
                return  # neither a look that shows what it showed before nor a thought ends a series
            self.result, self.first, self.distinct, self.calls, self.tools = result, seen.index, 0, (), ()
            self.different = 0
        name = seen.call.hex()
        # older calls of the series than ``calls`` show by their repeats; those of a hand-over are not counted
        again = (seen.repeated_at[-2] if len(seen.repeated_at) > 1 else previous) >= self.first
        if name not in self.calls and not again:
            self.distinct += not seen.same_batch or not self.calls  # parallel siblings are one step
            self.different += 1
            self.calls = (*self.calls[1 - _KEPT_CALLS :], name)
        if seen.tool not in self.tools:
            self.tools = (*self.tools[1 - _KEPT_TOOLS :], seen.tool)

    def recognise(self, seen: Observation, previous: int, *, is_new: bool) -> None:
        """Let a result that repeats an earlier one but for volatile parts stand for that: then it is nothing new.

        Parameters:
            previous: as for ``update``; is_new: no result had this form without the words of its request.
        """
        result = seen.step.result or ""
        known = self.known_as(seen.index, result, seen.result)
        if not known:
            return
        seen.result = known
        if is_new:
            seen.listed = UNKNOWN  # no list of hits, but lines that hold an id
        if not seen.result_changed:
            seen.progress = previous < 0 and changes_database(seen.step.args, result)

    def known_as(self, index: int, text: str, symbol: Symbol) -> Symbol:
        """The symbol of one of the newest results if this one differs from it in nothing but volatile parts.

        Else it is ``UNKNOWN``. Masking every result would cost too much: it begins at the second one of a shape, so
        that the third is the first that can be recognised. Where results of one shape differed, only three of sixteen
        steps are compared again.

        Parameters:
            index: of the step in its run; text, symbol: its result, which is remembered unless it is recognised.
        """
        if not text[_SHAPE_CHARS:]:
            return UNKNOWN
        data = both_ends(text, _READ_CHARS).encode("utf-8", "replace").translate(None, _IN_IDS)
        size = len(text) // _MORE_CHARS & 0xFFFF
        shape = (crc32(data[:_SHAPE_CHARS]) << 48 | crc32(data) << 16 | size).to_bytes(_TRIED, "big")
        head, words, length, masked = shape[:_WORDS], shape[_WORDS:_SIZE], shape[_SIZE:], _NOT_MASKED
        end = len(self.shown) if head in self.shown else 0
        entries = [self.shown[at : at + _ENTRY] for at in range(0, end, _ENTRY)]
        alike = [
            one
            for one in entries
            if one[:_WORDS] == head and (one[_WORDS:_SIZE] == words or one[_SIZE:_TRIED] == length)
        ]
        tries = alike[-1][_TRIED] if alike else 0
        if alike and (tries < _TRIES or index % _RETRY_STEPS < _RETRIES) and not is_timetable(text):
            masked = masked_hash(text, error=True)
            for one in alike:
                if one[_MASKED:_SYMBOL] == masked and len(_NOT_IN_IDS.findall(data)) >= _LETTERS:
                    self.shown = self.shown.replace(one, one[:_TRIED] + b"\0" + one[_MASKED:])
                    return one[_SYMBOL:]
                if one[_MASKED:_SYMBOL] != _NOT_MASKED:
                    tries = min(one[_TRIED] + 1, _TRIES)
        self.shown = (self.shown + shape + _COUNTS[tries] + masked + symbol)[-_KEPT_SHAPES * _ENTRY :]
        return UNKNOWN


LONG_PAUSE_S: Final = 45.0
"""Idle seconds (``gap_s``) that no model takes for each of its calls: the agent waits for something."""
BATCH_MASK: Final = 0xFFFF
"""Ordinals of batches are kept in two bytes."""


class Observation:
    """One step as the detectors read it: the record plus the values that the engine computed from it.

    The attributes stand in the order in which ``core.reading.Reader`` sets them.

    Attributes:
        step: the record; name: its tool name, case-folded; tool: the same, with a digest of the endpoint of HTTP
            that it writes to; outcome: its outcome, "empty" too where a success says so.
        index: ordinal of the step in its run, from 0.
        call, result: symbols of the call and of its result; empty if unknown.
        same_results: the series of steps with this very result, this step included.
        waiting_pace: as ``pace``, for a step that can only prove waiting.
        same_batch: the step overlaps or shares a model turn with the one before it; batch: ordinal of that turn, modulo
            65,536.
        gap_s: idle seconds before this step, the model's own time aside; 0 if unknown.
        segment: index of the first step after the last uncertain boundary.
        counted: the model counts this step aloud, as one of several that it has planned.
        signature: masked error class, None unless the outcome is an error, or a result seen before reads like one.
        killed: the result says that the call was ended by a time limit.
        twice: as of the state: unknown results say nothing, since another record of each call shows them.
        may_be_new: the call succeeded, and nothing shows what it returned.
        last_progress: index of the newest step of progress, -1 if there was none.
        delivers: the step hands over, and something new was done since the hand-over before it; idle: it hands over
            behind an answer that brought nothing new; unclear: since the same hand-over before it new words have come
            back, which may be work, or reasons to pass it on.
        denied_times: number of refusals of this call in these words in this user turn, this step included, as far as
            they are remembered; 0 if it was not refused; denied_otherwise: they are many, and all refusals count,
            in whatever words.
        denied_at: indices of those steps, as far as they belong to this run.
        form: symbol of the result without the words of the request; empty if it was not computed.
        listed: symbol of the result where it is a list of hits: without their order and scores; empty otherwise.
        echo: the result holds the request's own words only.
        echoes: the result is short and quotes a value of the request.
        progress: the result is new; resets every suspicion. Without progress a step was unproductive: it returned an
            error seen before, nothing, or a result that was returned before.
        in_a_row: the step before this one was the same call.
        noisy: the call was made before, and the results are equal but for volatile parts.
        fails_otherwise: the call failed in a row, and reports another error than before.
        under_way: the results of this call show an age that grows by the time that passes between the calls.
        counts_calls: one figure moves by the same amount with each call, and nothing else does.
        result_changed: the call was made before, and this time it returned another result; differs: it did so as to the
            last time, and may have returned this result earlier; takes_entry: it returned another entry of a queue.
        failed_alike_at: indices of the series of failures of this call, this one included, that differ in nothing but
            figures which go up and down; empty if they are few.
        varies: the newest steps were this very call, and returned a few values in no order, this one among them.
        repeats: number of times this call returned this result since the last progress, this step included. Eight
            equal calls of one model message are one time, each further one is another.
        repeated_at: indices of those steps as far as remembered, oldest first; first_repeat: the first, -1 if none.
        made: number of times that this call was made, copies in one batch included, this step too; made_alike: how
            often it returned this very result.
        memory: number of steps that the run remembers; forgets: the call may have been made before them, and so more
            often than ``made``.
        copy_of: index of the step that this one is a copy of: equal call and result in one batch; -1 if it is none.
        is_surplus: there are more copies in its model message than may be of use.
        recurrences: number of times this call returned this result within memory, whatever progress was made in
            between; recurred_at: indices of those steps, oldest first.
        others_progress: other agents made progress since this call was made last.
        new_calls_since_repeat: a call that had not been made before came between this repeat and the one before it.
        new_work_since_repeat: one of those calls handed over content or brought something new; acted_since_repeat: one
            succeeded in something else than a look or an action on a view; entered_since_repeat: it ended a record.
        completes_entry: one of them entered a text, and the answer neither is that of the step before nor refuses it.
        may_be_meant: one of the newest answers equals an earlier one, not the last, but for a duration, of several
            variants in turn; or the call was made before, and a new file was worked on since: the next of a list.
        moves_on: since the last equal call an action without arguments may have led to another place, and no answer to
            a call that names what it asks for says otherwise; has_effect: this is an action, and what a look shows has
            changed since it was made last.
        certainty: the strongest evidence that this step can give.
        pace: factor on the number of repeats that a rule requires at this step.
        unseen_work: calls that may be new lie between this repeat and the one before it, and nothing shows what they
            brought.
        unseen: number of model turns in a row, this one included, with nothing but calls that were made before and
            whose results are unknown; unseen_first: index of the first of these steps; unseen_waits: one is a wait.
        held_up: the error says that somebody else holds what the call needs.
        lap: steps of the lap that came round for the third time (``core.laps``), 0 if none did; lapped: how many of the
            newest steps had the results of the lap before.
        old_states_in_a_row: steps in a row that described nothing but states that were there before, whatever the
            calls; known_lines: this one returned three lines or more, all of which were there before.
        advances: number of unproductive calls in a row that went on from the one before, to a next page or the like;
            same_pages: the newest of them that returned one result, its figures included.
        counts_up: unproductive calls in a row count up the number beside a word: day 1, day 2.
        asks_anew: an unproductive call asks for something that its series has not asked for: the next entry of a list.
        request: checksum of what an unproductive call asks for, ids and times aside; 0 if it was not looked at.
        writes: it hands over texts, and its answer names a file of the request.
        alike: number of different calls of this tool in a row, without progress in between, with one answer, whatever
            it quotes of the request; alike_list: they are entries of a list; alike_items: each gives several values,
            all of them new; alike_table: cells of a table; alike_first: index of the first.
        has_found: the tool returned something new in this run.
        shows_elements: the result is a page whose elements have names, and it is compared without them (``Page``).
    """

    # Defaults on the class: most steps change few of them, and an observation is made for every step.
    # Reader.read and _place: where the step stands in its run
    same_batch = False
    batch = 0
    shows_elements = False
    gap_s = 0.0
    segment = 0
    counted = False
    # failures.read_outcome
    signature: str | None = None
    killed = False
    # Reader.read
    twice = False
    may_be_new = False
    last_progress = -1
    # _has_worked
    delivers = False
    idle = False
    unclear = False
    # _denials
    denied_times = 0
    denied_at: tuple[int, ...] = ()
    denied_otherwise = False
    # _read_new and _form, for a call that was not made before; a repeat takes over the form
    form: Symbol = UNKNOWN
    listed: Symbol = UNKNOWN
    echo = False
    echoes = False
    progress = False  # set by both, and taken back where SameResultRun.recognise finds that only volatile parts are new
    # _read_repeat, _normalise_volatile and _count_repeats, for a call that was made before
    in_a_row = False
    noisy = False
    fails_otherwise = False
    under_way = False
    counts_calls = False
    result_changed = False
    takes_entry = False
    differs = False
    failed_alike_at: tuple[int, ...] = ()
    varies = False
    repeats = 0
    made = 1
    made_alike = 1
    copy_of = -1
    is_surplus = False
    repeated_at: tuple[int, ...] = ()
    first_repeat = -1
    recurrences = 0
    recurred_at: tuple[int, ...] = ()
    others_progress = False
    new_calls_since_repeat = False
    new_work_since_repeat = False
    acted_since_repeat = False
    entered_since_repeat = False
    completes_entry = False
    # Reader.read
    may_be_meant = False
    # Run.follow
    moves_on = False
    has_effect = False
    # weigh, without progress: also ``certainty``
    pace = 1.0
    unseen_work = False
    # Reader.read, for a call that was made before
    unseen = 0
    unseen_first = -1
    unseen_waits = False
    # _count_old_states
    old_states_in_a_row = 0
    lap = 0
    lapped = 0
    held_up = False
    known_lines = False
    # _inquire
    advances = 0
    same_pages = 0
    counts_up = False
    asks_anew = False
    request = 0
    writes = False
    alike = 0
    alike_list = False
    alike_items = False
    alike_table = False
    alike_first = -1
    has_found = False
    # Run.note_memory
    memory = 0
    forgets = False
    # computed where a rule asks for them
    only_says_done: bool | None = None  # by ``insanity.only_says_done``
    _values: tuple[str, ...] | None = None
    _thought_key: str | None = None
    _fails_in_words: bool | None = None
    _is_bare_acknowledgement: bool | None = None
    _describes_state: bool | None = None
    _looks_like_error: bool | None = None

    def __init__(self, step: StepRecord, index: int, same_results: SameResultRun) -> None:
        self.step = step
        self.tool = self.name = step.tool_name.casefold()
        args = step.args
        if type(args) is dict and ("method" in args or "request" in args):
            endpoint = endpoint_of(args)
            if endpoint:  # saved with the state, where no argument may stand
                self.tool += f" {text_digest(endpoint)}"
        self.outcome: str = step.outcome_type
        self.index = index
        self.call = call_symbol(step)
        self.result = result_symbol(step)
        self.same_results = same_results
        self.waiting_pace = float(PACE[Certainty.WAITING])
        self.certainty = Certainty.CERTAIN

    @property
    def values(self) -> tuple[str, ...]:
        """Texts and numbers of the arguments, in order."""
        if self._values is None:
            self._values = values_of(self.step.args)
        return self._values

    @property
    def variation(self) -> Certainty:
        """The strongest evidence for rules over *changing* calls: an action's acknowledgement weakens none of them.

        An error that may pass does: the call that is retried is one and the same.
        """
        weak = self.certainty is Certainty.WAITING or (
            self.certainty is Certainty.ACKNOWLEDGED and self.in_a_row and (self.outcome == ERROR or self.held_up)
        )
        return self.certainty if weak else Certainty.CERTAIN

    @property
    def variation_pace(self) -> float:
        """As ``pace``, for rules over changing calls."""
        return self.pace if self.certainty is Certainty.WAITING else 1.0

    @property
    def pace_after_work(self) -> float:
        """The pace of a repeat after new calls: doubled for a gesture of each piece of work.

        Such a call acts, other actions came in between, and its answer says no more than that it was done: it holds no
        id of what was made.
        """
        text = self.step.result or ""
        is_gesture = self.acted_since_repeat and self.acts and is_acknowledgement(text)
        return 2 * self.pace if is_gesture and not any(map(str.isdigit, text)) else self.pace

    def pace_of(self, certainty: Certainty) -> float:
        """Factor on the number of repeats that evidence of this strength requires."""
        return self.waiting_pace if certainty is Certainty.WAITING else float(PACE[certainty])

    @property
    def thought_key(self) -> str:
        """Digest, hex, of the model's message before the call, volatile parts aside; empty without one."""
        if self._thought_key is None:
            text = (self.step.thought or "")[:MAX_THOUGHT_CHARS]
            self._thought_key = text_digest(mask_text(text).casefold()) if text.strip() else ""
        return self._thought_key

    @property
    def asks(self) -> bool:
        """Whether the call names what it asks for. A look around, or an action, belongs to each piece of work."""
        step = self.step
        found_nothing = self.outcome == EMPTY or self.signature is not None
        return bool(step.args) and (found_nothing or is_lookup(step.tool_name))

    @property
    def fails_in_words(self) -> bool:
        """Whether the last lines of a success report an error, as the output of a test run does."""
        if self._fails_in_words is None:
            plain_success = self.outcome == SUCCESS and not self.step.stated
            self._fails_in_words = plain_success and ends_in_error(self.step.result or "")
        return self._fails_in_words

    @property
    def acts(self) -> bool:
        """Whether the call names something in its arguments, and says that it was done; a view would show it itself."""
        step = self.step
        if not step.args or is_lookup(step.tool_name) or acts_on_view(step.tool_name):
            return False
        done_in_silence = self.outcome in (SUCCESS, EMPTY) and enters_text(step.args)
        return self.outcome == SUCCESS if (step.result or "").strip() else done_in_silence

    @property
    def belongs_to_work(self) -> bool:
        """Whether a repeat after other calls may be a part of each piece of work: it is silent, or looks something up.

        A command that fails again after each piece of work is none: the work was to mend it.
        """
        looks_up = self.new_work_since_repeat and self.asks and self.outcome == SUCCESS
        return looks_up or not (self.step.result or "").strip()

    @property
    def is_bare_acknowledgement(self) -> bool:
        """Whether the step repeats an action whose results only acknowledge it."""
        if self._is_bare_acknowledgement is None:
            self._is_bare_acknowledgement = self._only_acknowledges()
        return self._is_bare_acknowledgement

    def _only_acknowledges(self) -> bool:
        step = self.step
        if self.outcome == EMPTY:
            return moves_cursor(step.tool_name, step.args)
        if self.outcome != SUCCESS or not self.in_a_row or is_lookup(step.tool_name):
            return False
        text, moves = (step.result or "").strip(), scrolls(step.tool_name, step.args)
        if carries_content(step.args, self.values) and not moves:
            return False
        if (names_call if moves else names_click)(text, step.tool_name, step.args):
            return True  # it says where the move was made, too, or what was clicked
        return is_acknowledgement(text) or restates(text, step.tool_name, step.args)

    @property
    def is_acknowledged_move(self) -> bool:
        """Whether a step of acknowledged evidence moves some position by one once more."""
        step = self.step
        return self.outcome == SUCCESS and self.is_bare_acknowledgement and scrolls(step.tool_name, step.args)

    @property
    def looks_like_error(self) -> bool:
        """Whether a short result that was reported as a success reads like an error message."""
        if self._looks_like_error is None:
            result = self.step.result or ""
            self._looks_like_error = may_hold(ERROR_STEMS, result) and looks_like_error(result)
        return self.outcome == SUCCESS and self._looks_like_error

    @property
    def describes_state(self) -> bool:
        """Whether the result describes a state, rather than a value or an acknowledgement."""
        if self._describes_state is None:
            step, text = self.step, (self.step.result or "").strip()
            shows = self.signature is None and describes_state(text)
            self._describes_state = self.outcome == SUCCESS and (
                step.stated or (shows and not names_click(text, step.tool_name, step.args))
            )
        return self._describes_state
