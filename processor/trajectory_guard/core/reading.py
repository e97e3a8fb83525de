"""From a step to an observation: repeats, progress, and the strongest evidence that a repeat can give at this step."""

from __future__ import annotations

from itertools import islice
from typing import Final

from trajectory_guard.core import policy as ladder_policy
from trajectory_guard.core.alike_failures import AlikeFailures
from trajectory_guard.core.content.durations import ages_in, keep_falling, measures, times_in
from trajectory_guard.core.content.envelope import NO_PAGE, page_in, unfiltered, without_element
from trajectory_guard.core.content.error_text import raises
from trajectory_guard.core.content.grids import NO_GRID
from trajectory_guard.core.content.listings import hits_form, lines_of
from trajectory_guard.core.content.onward import fetches_next, only_names_one
from trajectory_guard.core.content.outcome import complaint_of
from trajectory_guard.core.content.paraphrase import Vocabulary
from trajectory_guard.core.content.pending import rejects
from trajectory_guard.core.content.result_text import (
    MAX_FORM_CHARS,
    answer_form,
    is_brief,
    is_echo,
    is_reading,
    is_token,
    quotes,
    width,
)
from trajectory_guard.core.content.volatile import (
    REPEATS_BESIDE_WORK,
    REPEATS_TO_LEARN,
    NoiseProfile,
    holds_stamp,
    is_checksum,
    is_volatile_throughout,
    learn,
    masked_answer,
    shares_in,
    with_profile,
)
from trajectory_guard.core.failures import complains, may_pass, read_outcome, reads_as_error, signature_of
from trajectory_guard.core.fingerprints import UNKNOWN, Symbol, checksum, digest64, text_bytes, text_digest
from trajectory_guard.core.inquiry import ADVANCES, BRIEF, reads_tables, things_in, values_asked
from trajectory_guard.core.observation import BATCH_MASK, MAX_DENIALS, Observation
from trajectory_guard.core.run import NO_FAILURE, Run
from trajectory_guard.core.settings import EngineSettings, ToolSettings
from trajectory_guard.core.state import Denial, TrajectoryState
from trajectory_guard.core.steps import DENIED, EMPTY, ERROR, SUCCESS, StepRecord, is_refused_by_guard
from trajectory_guard.core.text import is_numbered
from trajectory_guard.core.tools import (
    MAX_COUNT_CHARS,
    changes_database,
    is_communication,
    is_handoff,
    is_lookup,
    is_thinking,
    makes_something,
    takes_a_batch,
    takes_next,
)
from trajectory_guard.core.tracking import scope
from trajectory_guard.core.weighing import weigh
from trajectory_guard.core.written import figures_of, handed_over, was_written, without_request

_KEPT_FIGURES: Final = 64
_ANSWER_WORDS: Final = 3  # less than a short sentence is a value, or the prompt of a terminal
_LAP_OF_MEASURES: Final = 8
_BETWEEN_DRAWS: Final = 2


class Reader:
    """Computes one observation from a step and the state. It replaces values of the state and never mutates them."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    def read(self, state: TrajectoryState, run: Run, step: StepRecord, policy: ToolSettings | None) -> Observation:
        """Compute the observation of a step of ``run``; begin a segment if an uncertain boundary precedes it.

        Each part reads what the parts before it have left in ``run``, so their order counts: the boundary before the
        step, its outcome, refusals, the comparison with earlier calls, the series of equal results, the strength of
        the evidence, and last the series of old states and of fruitless calls. The engine remembers the step itself
        (``Run.remember``) only behind all detectors.
        """
        seen = Observation(step, run.index, run.same_results)
        seen.waiting_pace = float(self.settings.poll_patience)
        by_guard = is_refused_by_guard(step)
        if run.index:
            self._place(run, seen)
        seen.segment = run.boundary
        run.note_count(seen)
        read_outcome(seen, by_guard=by_guard)
        plain = unfiltered(step.args)
        page = page_in(step.result) if step.result and seen.outcome == SUCCESS and not step.stated else NO_PAGE
        if page.symbol:
            if page.follows(run.page):
                seen.result, seen.shows_elements = page.symbol, True
                plain = without_element(plain)
            run.page = page
        seen.twice = state.twice
        seen.may_be_new = not state.twice and not seen.result and seen.signature is None
        seen.last_progress = run.last_progress
        if plain is not step.args:
            run.name_command(seen, plain)
        if state.denied or step.outcome_type == DENIED:
            self._denials(state, run, seen, by_guard=by_guard)
        previous = run.history.calls.last(seen.call)
        if previous >= 0:
            seen.made += run.history.made_at(previous, max(run.boundary, run.dismissed))
            if not seen.result and seen.outcome == SUCCESS and step.args:
                seen.unseen, seen.unseen_first = run.unseen_repeats(seen.batch)
                seen.unseen_waits = run.last_waiting >= seen.unseen_first
        if is_handoff(step.tool_name) and _has_worked(state, run, seen, previous):
            run.last_new_call = run.index
        elif previous >= 0:
            self._read_repeat(state, run, seen, previous, policy, by_guard=by_guard)
        else:
            self._read_new(run, seen)
            run.note_new_call(seen)
        seen.takes_entry = seen.result_changed and fetches_next(step.tool_name, step.args)
        if step.result and seen.result and not (step.stated or seen.takes_entry or seen.result in run.history.results):
            run.same_results.recognise(seen, previous, is_new=seen.form not in run.history.forms)
        unread = seen.signature is None and not by_guard and not seen.progress and seen.outcome != EMPTY
        if unread and step.result and reads_as_error(step.result, seen.values):
            seen.signature = signature_of(seen)
        run.same_results.update(seen, previous)
        seen.entered_since_repeat |= run.last_record >= 0 and run.has_just_entered(seen)
        run.follow(seen, previous)
        seen.may_be_meant = -1 < previous < run.last_touched or 0 <= run.last_timed > seen.index - _LAP_OF_MEASURES
        if not seen.progress:
            weigh(run, seen, policy, self.settings.poll_patience)
        aside = run.inquiry.tool not in ("", seen.tool) and is_thinking(step.tool_name)
        if step.model_scope is None and not aside:
            self._count_old_states(run, seen)
            _inquire(run, seen)
        run.failure = checksum(seen.signature or "") if seen.outcome == ERROR else NO_FAILURE
        return seen

    def _place(self, run: Run, seen: Observation) -> None:
        """Place a step after the one before it: in its batch, after a pause, or behind an uncertain boundary."""
        step = seen.step
        if step.batch is not None or run.batch_label is not None:
            seen.same_batch = step.batch is not None and step.batch == run.batch_label
        else:
            seen.same_batch = step.timestamp < run.batch_end and step.duration > 0
        seen.batch = (run.score.batch + (not seen.same_batch)) & BATCH_MASK
        seen.gap_s = 0.0 if seen.same_batch else scope.idle_s(run, step)
        if scope.is_boundary(run, step, seen.gap_s, self.settings.slow_gap_s):
            run.boundary = run.index
            run.score.decay(self.settings.decay)
            ladder_policy.begin_segment(run.ladder)

    # --- calls that were refused -----------------------------------------------------------------------------

    def _denials(self, state: TrajectoryState, run: Run, seen: Observation, *, by_guard: bool) -> None:
        """Count refusals of this call in this user turn; the counts outlive the run and end with the turn.

        One in new words is an answer of its own: a person who says what is missing, or when to ask again, is heard.
        """
        step = seen.step
        if not step.run and (known := state.turns.get("")) is not None and known != scope.turn_of(step, state.turns):
            state.denied = {}
        key = seen.call.hex()
        # a gate's answer to a call that a person refused is one more proposal of it, and nobody has allowed it
        refused = key in state.denied if by_guard else step.outcome_type == DENIED
        if not seen.call or not (refused or state.denied):
            return
        others = {call: refusals for call, refusals in state.denied.items() if call != key}
        if refused:
            before = state.denied.get(key, ())
            words = before[-1].words if by_guard and before else Denial.words_of(step.result)
            if not (seen.same_batch and before):
                before = (*before[1 - MAX_DENIALS :], Denial(run.label, run.index, words))
            state.denied = dict(list({**others, key: before}.items())[-MAX_DENIALS:])
            alike = tuple(one for one in before if one.words == words)
            seen.denied_otherwise = len(alike) < len(before) == MAX_DENIALS
            counted = before if seen.denied_otherwise else alike
            seen.denied_times, seen.denied_at = len(counted), tuple(one.at for one in counted if one.run == run.label)
        elif key in state.denied:
            state.denied = others

    # --- a call not made before ------------------------------------------------------------------------------

    def _read_new(self, run: Run, seen: Observation) -> None:
        """A call not made before is progress unless its result is empty, an echo, or was returned before."""
        if not is_lookup(seen.step.tool_name) and (written := figures_of("\n".join(seen.values))):
            run.written = tuple(dict.fromkeys((*run.written, *written)))[-_KEPT_FIGURES:]
        run.last_new_call = run.index if seen.call else run.last_new_call
        result, step = seen.step.result, seen.step
        if not seen.result:
            return
        if result is None:  # a digest alone, as of all that an agent has found in its visit
            seen.progress = seen.outcome == SUCCESS and seen.result not in run.history.results
            return
        if step.stated:
            seen.progress = seen.result not in run.history.results
            return
        if holds_stamp(result):
            run.note_dated(seen.call, masked_answer(result))
        if seen.outcome != EMPTY:
            self._form(seen, result)
        if result and seen.outcome not in (EMPTY, DENIED) and not seen.echo:
            seen.progress = seen.result not in run.history.results and seen.form not in run.history.forms
        if not seen.progress and seen.signature is None:
            seen.progress = changes_database(step.args, result)  # rows are not what it is made for
        elif seen.progress and (raises(result) or (len(result) <= MAX_FORM_CHARS and seen.looks_like_error)):
            seen.progress = seen.outcome != SUCCESS or not run.knows_complaint(signature_of(seen) or "")

    def _form(self, seen: Observation, result: str) -> None:
        """Compute the symbol of the result without order, scores and the words of the request."""
        form = hits_form(result, seen.values)
        if form:
            seen.listed = digest64(text_bytes(form))
        elif len(result) <= MAX_FORM_CHARS:
            error = seen.signature is not None or seen.looks_like_error
            form = answer_form(result, seen.values, error=error, scores=not error and is_reading(result))
            form = form or answer_form(result, seen.values, error=error, scores=True)  # a figure is all there is
            if not error and is_token(form):
                form = result  # an id or a checksum is what was asked for
            seen.echo = not form
            seen.echoes = quotes(result, seen.values)
        else:
            form = complaint_of(result, seen.values)
        if form:
            seen.form = _form_symbol(seen, form)
        elif not seen.echo:
            seen.echo = is_echo(result, seen.values)

    # --- a call made before ----------------------------------------------------------------------------------

    def _read_repeat(
        self, state: TrajectoryState, run: Run, seen: Observation, previous: int, policy: ToolSettings | None, *,
        by_guard: bool,
    ) -> None:  # fmt: skip
        """Compare the result of a repeated call with its earlier results, volatile parts aside."""
        history, step = run.history, seen.step
        seen.form, seen.in_a_row = history.forms[previous], previous == seen.index - 1
        if by_guard:
            seen.result = history.results[previous]
        elif (
            (result := step.result)
            and seen.outcome == SUCCESS
            and not result[MAX_COUNT_CHARS:]
            and takes_a_batch(step.args, result)
        ):
            seen.result = UNKNOWN  # the rows that it took before are not among those of this time
        if not seen.result:
            return
        other = history.results[previous] != seen.result
        if other and self._lists_the_same(run, seen, previous):
            seen.result, seen.noisy, other = history.results[previous], True, False
        if (
            (other or seen.outcome == ERROR)  # of an error the symbol is that of its masked form
            and run.last_new_call > previous
            and not (by_guard or step.stated)
            and _gets_faster(state, seen)
        ):
            seen.progress = seen.result_changed = True
            seen.form = UNKNOWN
            return
        if other and not history.returned(seen.call, seen.result):
            failed_again = seen.in_a_row and run.failure != NO_FAILURE and seen.outcome == ERROR and not step.stated
            seen.fails_otherwise = failed_again and checksum(seen.signature or "") != run.failure
            put_off = not seen.in_a_row and _is_put_off_again(run, seen) and not _has_advanced(state, seen)
            exact = seen.result
            # nothing was done between two failures of one call: other words for the failure are nothing new
            if failed_again and not _has_advanced(state, seen):
                seen.result = history.results[previous]
            else:
                seen.result = self._normalise_volatile(state, run, seen, previous)
            seen.noisy = history.results[previous] == seen.result or seen.result not in (exact, UNKNOWN)
            reads = seen.noisy and seen.outcome == SUCCESS and not is_communication(step.tool_name)
            if reads and not reads_as_error(step.result or "", seen.values) and measures((step.result or "").strip()):
                run.last_timed = seen.index
            seen.result_changed = not (seen.noisy or put_off) and seen.outcome != DENIED
            seen.progress = seen.result_changed and not (seen.outcome == ERROR and seen.result in history.results)
            if seen.result_changed or put_off:
                seen.form = UNKNOWN
        seen.differs = other and not (seen.noisy or step.stated)
        if seen.progress or not seen.result:
            return  # a result that this call returned before, though not the last time, is no progress
        drawn = seen.index - previous <= _BETWEEN_DRAWS and seen.outcome == SUCCESS and not seen.noisy
        seen.varies = drawn and history.varies(seen.call, seen.result)
        self._count_repeats(run, seen, previous)
        if policy is not None and policy.idempotent and seen.repeats == 2:
            seen.repeats = 3

    def _lists_the_same(self, run: Run, seen: Observation, previous: int) -> bool:
        """Whether a list of hits differs from that of the same call before it in order and scores only."""
        worked = max(run.last_work, run.last_act) > previous and run.inquiry.tool != seen.tool
        if not seen.form or seen.step.stated or worked:
            return False
        form = hits_form(seen.step.result or "", seen.values)
        return bool(form) and _form_symbol(seen, form) == seen.form

    def _count_repeats(self, run: Run, seen: Observation, previous: int) -> None:
        own_progress = run.progress_of(seen.step.agent_id)
        within_memory, since_progress = max(run.boundary, run.dismissed), max(0, own_progress)
        every = run.history.since(min(within_memory, since_progress), seen.call, seen.result)
        before = every
        if within_memory != since_progress:
            before = [at for at in every if at >= since_progress]
            every = [at for at in every if at >= within_memory]
        seen.others_progress = run.last_progress > max(own_progress, previous)
        seen.first_repeat = before[-1] if before else seen.index
        seen.repeated_at = (*reversed(before), seen.index)
        current = seen.batch  # copies within one model turn count once, unless they are many
        seen.repeats = seen.recurrences = len(run.history.batches_of(before) | {current})
        seen.recurred_at = (*reversed(every), seen.index)
        if every is not before:
            seen.recurrences = len(run.history.batches_of(every) | {current})
        run.history.tally(seen, every, current)
        if run.history.tallies and seen.step.batch is not None and seen.step.batch[:1] != scope.CODE:
            surplus = run.history.surplus_of(before, seen.copy_of)
            seen.repeats += surplus
            seen.is_surplus = surplus > 0 and seen.copy_of >= 0
        if run.is_ahead_of_work(seen, before):
            previous, seen.in_a_row = before[1], False
        seen.new_calls_since_repeat, seen.new_work_since_repeat = run.last_new_call > previous, run.last_work > previous
        seen.acted_since_repeat, seen.entered_since_repeat = run.last_act > previous, run.last_record > previous
        if run.last_entry > previous and run.history.results[seen.index - 1] != seen.result:
            seen.completes_entry = not rejects(seen.step.result or "")
        key = (seen.call + seen.result).hex()
        known, count, first, last_batch = run.repeat_streak
        if key == known and own_progress <= first:  # a long stutter, beyond the window of remembered steps
            count += current != last_batch
            seen.repeats, seen.first_repeat = max(seen.repeats, count), min(seen.first_repeat, first)
        if before or seen.copy_of < 0:  # no streak begins at a copy: it has no index of its own
            run.repeat_streak = (key, seen.repeats, seen.first_repeat, current)

    def _normalise_volatile(self, state: TrajectoryState, run: Run, seen: Observation, previous: int) -> Symbol:
        """The symbol of a result that differs from the last one: the old symbol if only volatile parts differ.

        Masking every result would cost as much as the rest of the engine: only of results with a clock or a uuid is the
        masked form of the very first one known. Of others the third result is the first that can be recognised. A
        result that is volatile throughout, as that of a generator of ids, is unknown: it cannot repeat.
        """
        step, text = seen.step, seen.step.result
        if text is None or step.stated:
            return seen.result  # a supplied state is masked already, and the text says nothing of it
        if is_volatile_throughout(text):
            return UNKNOWN
        if is_checksum(text) or (takes_next(step.tool_name) and only_names_one(text)):
            return seen.result  # what was asked for
        key, masked = seen.call.hex(), masked_answer(text)
        saved, new_calls = state.noise.get(key), run.last_new_call > previous
        known = NoiseProfile(*saved) if saved is not None else None
        repeats = REPEATS_BESIDE_WORK if new_calls else REPEATS_TO_LEARN
        makes = makes_something(step.tool_name, step.args)
        profile, noise = learn(known, masked.hex(), text, repeats, makes=makes)
        profile = profile.at_time(known, text, seen.step.timestamp)
        if (known is None or not known.masked) and holds_stamp(text):
            may_be_under_way = max(profile.ages, default=0.0) >= 1.0  # seconds: for so long already
            noise = run.dated_as(seen.call) == masked and not may_be_under_way
            run.note_dated(seen.call, masked)
        noise = noise and not (new_calls and was_written(run.written, text))
        noise = (noise and (makes or not profile.moves_on)) or profile.is_timed or (profile.reordered and not new_calls)
        noise = noise and not profile.steps_on(known)
        if seen.in_a_row:
            before = Vocabulary(*known.vocabulary) if known is not None else Vocabulary()
            vocabulary, is_paraphrase = before.add(text)
            profile, noise = profile._replace(vocabulary=list(vocabulary)), noise or is_paraphrase
        if noise and fetches_next(step.tool_name, step.args):
            noise = known is not None and known.masked == profile.masked  # another number is another entry, no clock is
        seen.under_way = noise and profile.shows_age
        if not noise and profile.counts_calls(asks=seen.asks):
            noise, seen.counts_calls = True, seen.outcome == SUCCESS
        symbol = run.history.results[previous] if noise else seen.result
        if not noise and known is not None and known.masked != profile.masked:
            earlier = known.symbol_of(profile.masked)
            if earlier and not (new_calls and was_written(run.written, text)):
                symbol = earlier
                if ages_in(text) and not reads_as_error(text, seen.values):
                    run.last_timed = seen.index
        if seen.outcome == ERROR and not seen.in_a_row:
            failures = AlikeFailures.from_plain(known.failures if known is not None else [])
            failures = failures.with_failure(text, run.written)
            profile = profile._replace(failures=failures.to_plain())
            if failures.says_nothing_new:
                calls = islice(run.history.calls.occurrences(seen.call), failures.times - 1)
                seen.failed_alike_at = (*reversed(tuple(calls)), seen.index)
        state.noise = with_profile(state.noise, key, profile.with_answer(known, symbol))
        return symbol

    def _count_old_states(self, run: Run, seen: Observation) -> None:
        """Count the steps in a row that described nothing but states that were there before."""
        result = seen.step.result
        lines = lines_of(result, seen.values) if result and "\n" in result and not seen.step.stated else b""
        seen.known_lines = bool(lines) and run.knows_all(lines) and not seen.result_changed
        if seen.completes_entry:
            run.old_states_in_a_row = 0  # the next of many records
        elif (seen.result in run.history.results and seen.describes_state) or seen.known_lines:
            run.old_states_in_a_row += not seen.same_batch
        elif seen.progress or run.history.calls.last(seen.call) < 0:
            run.old_states_in_a_row = 0  # something new was seen, or something was done
        seen.old_states_in_a_row = run.old_states_in_a_row


def _form_symbol(seen: Observation, form: str) -> Symbol:
    return digest64(f"{seen.tool}\0{seen.outcome}\0{form}".encode("utf-8", "replace"))


def _is_put_off_again(run: Run, seen: Observation) -> bool:
    """Whether a call fails as the step before it did, with an error that passes, such as a limit of the rate.

    A change in such an error, as of the seconds to wait or the id of the request, is no progress of the calls between.
    """
    if seen.outcome != ERROR or run.failure != checksum(seen.signature or "") or seen.step.stated:
        return False
    return may_pass(seen)


def _gets_faster(state: TrajectoryState, seen: Observation) -> bool:
    """Take in the durations of a result, since whose predecessor something else was done; whether one keeps falling."""
    key, times = seen.call.hex(), times_in(seen.step.result or "")
    if not times:
        return False
    profile = NoiseProfile(*state.noise.get(key, [""])).with_times(times)
    state.noise = with_profile(state.noise, key, profile)
    return keep_falling(profile.times)


def _has_worked(state: TrajectoryState, run: Run, seen: Observation, previous: int) -> bool:
    """Whether something new was done or is handed over, so that the acknowledgement of a hand-over proves nothing.

    Since the newest hand-over it is progress; since the same hand-over before it, it only excuses this one.
    """
    if seen.outcome != SUCCESS or not is_brief(without_request(seen.step.result or "", seen.values)):
        return False
    state.note_handed_words(seen.step)
    seen.delivers = seen.progress = state.worked_at > state.handed_at
    seen.idle = state.idle_at > state.handed_at
    before = run.history.place_of(previous, state.index) if previous >= 0 else state.handed_at
    seen.unclear = state.spoke_at > before
    if proves_nothing := seen.delivers or (previous >= 0 and state.worked_at > before):
        seen.result = UNKNOWN
    return proves_nothing


def _has_advanced(state: TrajectoryState, seen: Observation) -> bool:
    """Whether a call that failed again, as a wait that ran out of time does, says that more has been done meanwhile."""
    shares, key = shares_in(seen.step.result or ""), seen.call.hex()
    if not shares:
        return False
    saved = state.noise.get(key)
    known = NoiseProfile(*saved) if saved is not None else None
    state.noise = with_profile(state.noise, key, (known or NoiseProfile(""))._replace(shares=shares))
    return known is not None and known.has_advanced(shares)


def _inquire(run: Run, seen: Observation) -> None:
    """Add the step to the series of unproductive calls, or end the series where something new was found, or may be."""
    inquiry = run.inquiry
    if (seen.progress and seen.signature is None) or seen.may_be_new:
        inquiry.end(seen.tool)
        if not inquiry.has_found(seen.tool) and not complains(seen.step.result or "", seen.values):
            inquiry.note_found(seen.tool)
        if run.advance.tool == seen.tool:
            run.advance.end()
            run.grid = NO_GRID
        return
    if not seen.result or not seen.call:
        seen.has_found = inquiry.has_found(seen.tool)
        return
    if seen.repeats < 2 or seen.call.hex() not in inquiry.calls:  # a repeat asks what was asked already
        failed = seen.signature is not None
        answer = f"!{seen.signature}" if failed else _answer(seen)
        mark, answer = ("", answer) if answer else (BRIEF, f"={(seen.form or seen.result).hex()}")
        asked = values_asked(seen)
        advances = run.advance.update(seen.tool, asked, seen.step.result or "", failed=failed)
        seen.advances = 0 if failed else advances
        seen.same_pages = run.advance.pages
        seen.counts_up = advances >= ADVANCES and any(map(is_numbered, seen.values))
        handed = handed_over(seen, asked)
        seen.writes = bool(handed)
        seen.asks_anew = inquiry.update(
            seen, asked, mark + text_digest(answer), further=seen.advances >= ADVANCES, nearby=run.advance.nearby,
            handed=handed, things=things_in(seen),
        )  # fmt: skip
        run.grid = NO_GRID if failed else run.grid.after(seen.tool, asked)
        if run.grid.is_walked and not complains(seen.step.result or "", seen.values):
            inquiry.entries = inquiry.paired = inquiry.count
    if not inquiry.answer.startswith(BRIEF):
        seen.alike, seen.alike_list, seen.alike_first = inquiry.count, inquiry.is_list(), inquiry.first
    elif reads_tables(seen.values):
        seen.alike_list = inquiry.is_list()
    seen.alike_items = inquiry.is_of_items()
    seen.alike_table = inquiry.is_table()
    seen.has_found = inquiry.has_found(seen.tool)


def _answer(seen: Observation) -> str:
    """The result of an unproductive call without the words of its request; empty if that is unknown."""
    result, empty = seen.step.result, seen.outcome == EMPTY
    if empty and result is not None and result[:1] == "{" and not seen.step.stated:
        return EMPTY  # nothing was found, whatever the ids, clocks and numbers of pages around it
    if seen.listed or result is None or len(result) > MAX_FORM_CHARS or empty or seen.step.stated:
        return (seen.listed or seen.result).hex()
    answer = answer_form(result, seen.values, error=False, scores=True)
    return answer if len(set(answer.split())) >= _ANSWER_WORDS or width(answer) > len(answer) else ""
