"""Loops between agents are evaluated on the turn: the sequence of agents, not the sum of their calls (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.helpers import REPLACES_CODE, evaluate, record
from trajectory_guard.core.detectors import PingPong
from trajectory_guard.core.engine import Engine, Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.state import MAX_BUSY_RUNS
from trajectory_guard.core.steps import Evidence, StepRecord, Usage

RELAY = (("writer", "ask_critic"), ("critic", "ask_writer"))


def visits(
    count: int, agents: tuple[tuple[str, str], ...] = RELAY, *, news: bool = False, every_s: float = 1.0
) -> list[StepRecord]:
    """Agents that take turns, each time as another instance in a trace of its own."""
    steps = []
    for at in range(count):
        agent, tool = agents[at % len(agents)]
        result = f"please revise paragraph {at}" if news else "please revise"
        step = record(tool, {"draft": "v1"}, result, agent=agent, run=f"{agent} {at}", t=1 + at * every_s)
        steps.append(step._replace(trace_id=f"{at:032x}"))
    return steps


def outline(verdicts: Iterable[Verdict | None]) -> str:
    """N: a nudge became due, S: a stop."""
    return "".join("N" if one and one.nudge else "S" if one and one.stop_due else "." for one in verdicts)


def test_work_that_goes_round_between_fresh_agents_is_nudged_twice_and_stopped() -> None:
    verdicts = evaluate(visits(16))
    assert outline(verdicts) == "......N..N..S..."
    reported = verdicts[6]
    assert reported is not None
    assert (reported.run, reported.types, str(reported.certainty)) == ("agents", ["TYPE_IV_PINGPONG"], "likely")
    assert "writer → critic" in reported.reason
    assert reported.first_step == 0


@pytest.mark.parametrize("tools", [("delegate_to_critic", "ask_writer"), ("escalate", "reply"), ("ask", "handoff")])
def test_a_circle_is_found_whatever_the_tools_are_called(tools: tuple[str, str]) -> None:
    agents = (("writer", tools[0]), ("critic", tools[1]))
    assert "S" in outline(evaluate(visits(24, agents)))
    assert outline(evaluate(visits(24, agents, news=True))).strip(".") == ""


def test_three_agents_in_a_circle_are_found() -> None:
    assert "S" in outline(evaluate(visits(30, (*RELAY, ("editor", "ask_both")))))


@pytest.mark.parametrize(
    "steps",
    [
        visits(40, news=True),
        visits(40, (("writer", "ask_critic"),)),
        visits(40, (("worker", "fetch"), ("worker", "store"))),
        visits(40, every_s=3600.0),
        [step._replace(turn=str(at // 4)) for at, step in enumerate(visits(40))],
        [step._replace(asked=f"?{at // 4}", trace_id=f"{at // 4}") for at, step in enumerate(visits(40))],
    ],
    ids=[
        "something new each time",
        "one agent called again and again",
        "instances of one agent side by side",
        "an hourly job",
        "few visits in each user turn",
        "few visits for each user message",
    ],
)
def test_is_quiet(steps: list[StepRecord]) -> None:
    rooted = [step._replace(run="") if step.turn and not at % 4 else step for at, step in enumerate(steps)]
    assert all(verdict is None or verdict.level is Level.OBSERVE for verdict in evaluate(rooted))


def test_a_visit_is_all_that_the_agent_did() -> None:
    steps = []
    for at, step in enumerate(visits(40)):
        steps += [step, record("read", {"page": at}, f"page {at}", agent=step.agent_id, run=step.run)]
    assert outline(evaluate(steps)).strip(".") == ""


def test_an_agent_whose_user_turn_is_known_from_its_second_step_on_makes_one_visit() -> None:
    steps = []
    for at in range(12):
        first = record("search", {"q": 1}, "a page of text", agent="helper", run=f"helper {at}", t=2.0 * at + 1)
        second = record("read", {"page": 1}, "another page", agent="helper", run=f"helper {at}", t=2.0 * at + 2)
        steps += [first._replace(trace_id=f"{at}"), second._replace(trace_id=f"{at}", asked="?again")]
    assert outline(evaluate(steps)).strip(".") == ""


def one_by_one(steps: Iterable[StepRecord]) -> list[Verdict | None]:
    """Verdicts of an engine whose state is saved and loaded after each step."""
    engine = Engine()
    state = engine.new_state("t")
    found = []
    for step in steps:
        found.append(engine.observe(state, step))
        state = engine.load_state(state.to_bytes())
    return found


def test_is_saved_and_goes_on() -> None:
    assert outline(one_by_one(visits(16))) == "......N..N..S..."


def spoken(steps: list[StepRecord], *speakers: int) -> list[StepRecord]:
    """The steps with an answer of an agent before those at these places of each lap."""
    usage = [Usage(answers=int(at % 2 in speakers)) for at in range(len(steps))]
    return [step._replace(usage=one) for step, one in zip(steps, usage, strict=True)]


@pytest.mark.parametrize("speakers", [(0,), (1,), (0, 1)])
def test_agents_that_write_in_each_lap_are_nudged_and_not_stopped(speakers: tuple[int, ...]) -> None:
    """A draft is new each time, and the guide that its reviewers look up is not."""
    steps = spoken(visits(40), *speakers)
    assert outline(evaluate(steps)).strip(".") == "N..N.....N...........N"
    assert one_by_one(steps) == evaluate(steps)


def test_agents_that_write_for_ever_are_stopped_some_day() -> None:
    assert 60 < outline(evaluate(spoken(visits(200), 0))).index("S") < 120


def test_a_call_that_is_repeated_within_a_visit_makes_no_other_visit_of_it() -> None:
    """As an agent does that is nudged: it goes on, and tries once more before it hands over."""
    steps = visits(30)
    twice = [step._replace(step_id=f"{step.step_id} again", timestamp=step.timestamp + 0.5) for step in steps]
    mixed = [one for at, step in enumerate(steps) for one in (step, *twice[at : at + (at % 5 == 0)])]
    assert outline(evaluate(mixed)).replace(".", "") == outline(evaluate(steps)).replace(".", "") == "NNS"


@pytest.mark.parametrize(
    "answer, levels",
    [("The orders of May are in the archive.", "OOOOOONNNNNNS"), ("please revise", "OOOOOSSSSSSSS")],
    ids=["something new", "nothing new"],
)
def test_another_agent_that_brings_something_new_ends_the_stop(answer: str, levels: str) -> None:
    """Visits are known by digests alone; one that was not there before is something new."""
    circle = visits(26)
    helped = [*circle[:13], record("search", {"for": "orders"}, answer, agent="helper", run="helper"), *circle[13:]]
    steps = [step._replace(step_id=f"step {at}", timestamp=1.0 + at) for at, step in enumerate(helped)]
    seen = "".join(str(verdict.level)[0] for verdict in evaluate(steps) if verdict is not None)
    assert seen == "OOOOOONNNNNNSS" + levels


def test_a_request_that_begins_with_the_agent_that_ended_the_one_before_is_another_one() -> None:
    one = [step._replace(turn="first") for step in visits(13)]
    other = [
        step._replace(turn="second", step_id=f"other {at}", run=f"{step.agent_id} {at + 20}", timestamp=20.0 + at)
        for at, step in enumerate(visits(8))
    ]
    assert outline(evaluate([*one, *other])) == "......N..N..S" + outline(evaluate(other)) == "......N..N..S......N."


def test_agents_that_are_given_item_after_item_are_never_stopped() -> None:
    """Each agent answers a message of its own in a trace of its own: the guide that it looks up is always the same."""
    steps = [step._replace(usage=Usage(asked=f"?{at}")) for at, step in enumerate(visits(300))]
    assert "S" not in outline(evaluate(steps))
    assert outline(evaluate(steps)).count("N") <= 8
    within_one_trace = [step._replace(trace_id="one") for step in steps]
    assert "S" in outline(evaluate(within_one_trace))
    assert one_by_one(steps[:40]) == evaluate(steps[:40])


LOOKS = {
    "a status that is under way": ("get_deployment", "Deployment in progress, not finished yet."),
    "the status of a job": ("get_job_status", "The build of the third image of release seven goes on."),
    "a server that is busy": ("fetch_prices", "HTTP 503 Service Unavailable"),
    "a pause": ("sleep", "Slept for ten seconds."),
}


@pytest.mark.parametrize(("tool", "answer"), LOOKS.values(), ids=LOOKS.keys())
@pytest.mark.parametrize("failed", [False, True])
def test_agents_that_wait_for_something_in_turn_are_not_stopped(tool: str, answer: str, failed: bool) -> None:
    steps = [
        record(
            *((tool, {}, answer) if at % 2 else ("read_plan", {}, "The plan has four stages, and each has an owner.")),
            outcome="error" if failed and at % 2 else "success", agent=f"agent {at % 2}", run=f"run {at}", t=1.0 + at,
        )._replace(trace_id="one")
        for at in range(80)
    ]  # fmt: skip
    seen = outline(evaluate(steps))
    assert "S" not in seen
    assert "N" not in seen[:16]
    assert one_by_one(steps[:50]) == evaluate(steps[:50])


def test_agents_that_have_spoken_once_are_stopped_like_any_other() -> None:
    assert "S" in outline(evaluate([*spoken(visits(4), 0), *visits(30)[4:]]))


def test_an_agent_that_a_nameless_one_has_named_is_expected_after_the_state_was_saved() -> None:
    around = [(None, "ann"), ("ann", "ben"), ("ben", "ann")]
    steps = [record("ask", {"to": to}, "noted", agent=agent) for agent, to in [("ann", "ben"), *around * 4]]
    verdicts = one_by_one(steps)
    assert verdicts == evaluate(steps)
    assert any("handoffs" in [one.rule for one in verdict.detections] for verdict in verdicts if verdict is not None)


def test_the_messages_that_agents_have_answered_are_saved() -> None:
    steps = [step._replace(asked=f"?{at // 4}", trace_id=f"{at // 4}") for at, step in enumerate(visits(24))]
    assert outline(one_by_one(steps)).strip(".") == ""


def test_a_task_that_agents_give_each_other_within_a_trace_is_no_new_user_turn() -> None:
    steps = [step._replace(asked=f"?{at}", trace_id="one") for at, step in enumerate(visits(16))]
    assert outline(evaluate(steps)) == "......N..N..S..."


def test_a_circle_through_traces_of_one_message_is_found() -> None:
    steps = [step._replace(asked="?the draft") for step in visits(16)]
    assert outline(evaluate(steps)) == "......N..N..S..."


class Sabotage(Exception):
    """Raised at one place of a step."""


@REPLACES_CODE
@pytest.mark.parametrize("place", ["PingPong.update", "PingPong.explain"])
def test_a_step_that_fails_as_a_visit_ends_leaves_the_state_as_it_was(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = place.split(".")[1]
    original, armed = getattr(PingPong, name), [False]

    def fails(*args: Any) -> Any:
        if armed[0] and (name == "explain" or args[1].tool in dict(RELAY)):  # a visit is named after its agent
            raise Sabotage
        return original(*args) if name == "update" else original(*args[1:])

    monkeypatch.setattr(PingPong, name, fails if name == "update" else classmethod(fails))
    engine, failures = Engine(), 0
    state, undisturbed = engine.new_state("t"), engine.new_state("t")
    for step in visits(16):
        before, relay, visit = state.to_bytes(), state.relay, state.visit
        armed[0] = True
        try:
            verdict = engine.observe(state, step)
        except Sabotage:
            failures += 1
            assert state.relay is relay
            assert state.visit is visit
            assert state.to_bytes() == before
            armed[0] = False
            verdict = engine.observe(state, step)
        assert verdict == engine.observe(undisturbed, step)
    assert failures == (15 if name == "update" else 11)
    assert state.to_bytes() == undisturbed.to_bytes()


def request(number: int, agents: tuple[tuple[str, str], ...] = RELAY) -> list[StepRecord]:
    """Agents that take turns within one request, which has a trace of its own."""
    steps = visits(len(agents), agents)
    return [
        one._replace(
            step_id=f"{number}.{at}", run=f"{number}.{at}", timestamp=number * 10.0 + at, trace_id=f"{number:032x}"
        )
        for at, one in enumerate(steps)
    ]


def test_requests_that_pass_the_same_agents_are_no_circle() -> None:
    """A conversation: each question of the user passes the same two agents, which look the same things up."""
    steps = [step for number in range(20) for step in request(number, (("triage", "classify"), ("billing", "account")))]
    assert outline(evaluate(steps)).strip(".") == ""


def test_a_circle_within_one_request_is_found_after_healthy_ones() -> None:
    healthy = [step for number in range(6) for step in request(number)]
    verdicts = evaluate([*healthy, *request(7, RELAY * 8)])
    assert outline(verdicts[: len(healthy)]).strip(".") == ""
    assert outline(verdicts[len(healthy) :]).replace(".", "") == "NNS"


def test_requests_are_told_apart_after_the_state_was_saved() -> None:
    engine = Engine()
    state = engine.new_state("t")
    for number in range(20):
        for step in request(number):
            verdict = engine.observe(state, step)
            assert verdict is None or verdict.level is Level.OBSERVE
            state = engine.load_state(state.to_bytes())


def test_agents_whose_work_is_hidden_may_have_done_something_before_they_hand_over() -> None:
    steps = []
    for at in range(40):
        agent = ("writer", "critic")[at % 2]
        for tool, hidden in (("look_up", True), ("handoff_to_agent", False)):
            step = record(tool, None if hidden else {"agent_name": "x"}, None if hidden else "Handing off", agent=agent)
            steps.append(step._replace(run=f"{agent} {at}", timestamp=1.0 + len(steps), trace_id="a" * 32))
    assert outline(evaluate(steps)) == "." * 80
    assert "N" in outline(evaluate([step for step in steps if step.tool_name == "handoff_to_agent"]))


WORK = {
    "a file each": ("write_file", lambda n: {"path": f"out/part{n}.md", "content": f"chapter {n} of the report"}, "ok"),
    "a mail each": ("send_email", lambda n: {"to": f"k{n}@example.org", "body": "Your order is on its way."}, "sent"),
    "a ticket each": ("close_ticket", lambda n: {"id": 4_000 + n}, "closed"),
}


def handed_round(tool: str, args: Any, result: str, *, laps: int = 20) -> list[StepRecord]:
    """A supervisor hands over to a worker, who calls a tool once and hands back."""
    steps = []
    for lap in range(laps):
        steps += [
            record("transfer_to_worker", {}, "Successfully transferred to worker", agent="supervisor"),
            record(tool, args(lap), result, agent="worker"),
            record("transfer_back_to_supervisor", {}, "Successfully transferred back to supervisor", agent="worker"),
        ]
    return steps


@pytest.mark.parametrize("form", WORK)
def test_other_work_in_each_lap_is_work_although_it_is_only_acknowledged(form: str) -> None:
    assert set(outline(evaluate(handed_round(*WORK[form])))) == {"."}


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("close_ticket", lambda n: {"id": 4_000}),
        ("think", lambda n: {"thought": f"Let me see once more, for the {n}th time."}),
        ("reply", lambda n: {"text": f"One moment please, I ask again, number {n}."}),
    ],
)
def test_the_same_work_and_mere_words_in_each_lap_are_none(tool: str, args: Any) -> None:
    assert "N" in outline(evaluate(handed_round(tool, args, "ok")))


def in_vain(count: int, *, says: bool, same: bool = True) -> list[StepRecord]:
    """One agent whose visits all find nothing; ``says``: somebody writes an answer before each."""
    usage = Usage(answers=1) if says else None
    steps = [
        record("search", {"query": "x" if same else f"item {at}"}, "No results found.", outcome="empty", t=1.0 + at,
               agent="researcher", run=f"researcher {at}")
        for at in range(count)
    ]  # fmt: skip
    return [step._replace(usage=usage) for step in steps]


@pytest.mark.parametrize(("says", "first"), [(True, 9), (False, 17)])
def test_an_agent_that_finds_nothing_whenever_it_is_called_is_nudged(says: bool, first: int) -> None:
    """Not stopped: instances that are called side by side, each for other work, may look the same."""
    steps = in_vain(200, says=says)
    verdicts = evaluate(steps)
    seen = outline(verdicts)
    assert seen.index("N") == first
    assert "S" not in seen
    found = verdicts[first]
    assert found is not None
    assert found.detections[0].rule == "same_visits"
    assert found.reason == f"researcher has made the same calls {first} times with the same results."
    assert one_by_one(steps) == verdicts


@pytest.mark.parametrize("questions", [1, 100])
def test_turns_of_one_agent_that_each_are_an_instance_are_nudged_if_they_answer_one_message(questions: int) -> None:
    """AG2 and AutoGen open a span of the agent for each of its turns; a program may call it for a list of questions."""
    steps = visits(100, (("shop", "search"),))
    steps = [step._replace(usage=Usage(asked=f"?{at % questions}")) for at, step in enumerate(steps)]
    seen = outline(evaluate(steps))
    assert (seen.find("N"), "S" in seen) == (10 if questions == 1 else -1, False)
    assert one_by_one(steps) == evaluate(steps)


def test_visits_in_vain_that_ask_for_something_else_are_left_alone() -> None:
    assert outline(evaluate(in_vain(60, says=True, same=False))).strip(".") == ""


def test_the_user_turn_of_the_agent_at_the_top_outlives_many_instances() -> None:
    state = Engine().new_state("t")
    state.begin_turn("", "question")
    for number in range(2 * MAX_BUSY_RUNS):
        state.begin_turn(f"worker {number}", "task")
    assert state.turns[""] == "question"
    assert len(state.turns) == MAX_BUSY_RUNS


def asked_one_by_one(questions: int, *, of: int = 1) -> list[StepRecord]:
    """A program answers questions in one trace: the same two agents look the same up for each.

    Parameters:
        of: number of different questions.
    """
    steps = [step._replace(trace_id="1" * 32) for step in visits(2 * questions)]
    return [step._replace(usage=Usage(asked=f"?question {at // 2 % of}")) for at, step in enumerate(steps)]


def test_questions_that_a_program_answers_in_one_trace_are_no_circle() -> None:
    steps = asked_one_by_one(60, of=60)
    assert outline(evaluate(steps)).strip(".") == ""
    assert one_by_one(steps) == evaluate(steps)
    assert "S" in outline(evaluate(asked_one_by_one(60)))


def test_agents_that_ask_each_other_in_new_words_are_nudged_later() -> None:
    """Frameworks give an agent what another one has said as a message of the user."""
    steps = [step._replace(usage=Usage(asked=f"?please revise {at}")) for at, step in enumerate(visits(40))]
    assert outline(evaluate(steps)).index("N") == outline(evaluate(spoken(visits(40), 0))).index("N")


# --- what the arguments of hand-offs say ------------------------------------------------------------------------

NAMES = ("Anna Berg", "Luis Prado", "Mei Lin", "Omar Haddad", "Ida Holm", "Jan Novak", "Rosa Klein", "Tom Ashe")
DRAFTS = (
    "I wrote an introduction about coral reefs and their role as nurseries for fish.",
    "The section on bleaching explains how warm water makes corals expel algae.",
    "Added a paragraph on ocean acidification with aragonite saturation and shells.",
    "Rewrote the chapter on overfishing: parrotfish, grazing, seaweed cover.",
    "New part on tourism: anchors, sunscreen chemicals, marine parks and entrance fees.",
    "Included restoration: larval seeding, artificial reefs, community nurseries.",
    "Policy covers protected zones, local enforcement, fines and fishing licences.",
    "Conclusion summarises threats and hopes; references list every source.",
)


def handed(key: str, texts: Iterable[str], *, own_runs: bool = False) -> list[StepRecord]:
    """Two agents that hand over to each other with these texts as arguments."""
    desks = ("billing", "triage")
    return [
        record(
            f"transfer_to_{desks[at % 2]}", {key: text}, f"Successfully transferred to {desks[at % 2]}", t=1.0 + at,
            agent=desks[1 - at % 2], run=f"{desks[1 - at % 2]}:{at}" if own_runs else None, batch=str(at),
        )
        for at, text in enumerate(texts)
    ]  # fmt: skip


@pytest.mark.parametrize("own_runs", [False, True])
@pytest.mark.parametrize("key", ["task_description", "request", "message"])
@pytest.mark.parametrize(
    "texts",
    [
        [f"{'Check ticket' if at % 2 == 0 else 'Approved for ticket'} T-{1000 + at // 2 * 7}" for at in range(28)],
        [text for name in NAMES for text in (f"Call back {name}", f"{name} has been called back")],
        [text for draft in DRAFTS for text in (draft, "Fine, now the next one.")],
        [text for at in range(20) for text in (f"Translate page {at}", f"Page {at} is translated")],
    ],
    ids=["tickets", "names", "drafts", "pages"],
)
def test_hand_offs_that_each_give_another_piece_of_work_are_left_alone(
    texts: list[str], key: str, own_runs: bool
) -> None:
    assert outline(evaluate(handed(key, texts, own_runs=own_runs))).strip(".") == ""


PASSED_ON = (
    "Customer disputes a double charge for order 7731, please take over.", "Order 7731 looks like a technical matter.",
    "Logs are clean, this belongs to billing.", "We cannot see that. Please check.", "Routing the complaint to you.",
    "Nothing wrong on our side. Back to you.", "The client was charged twice.", "Not ours, please assign it.",
    "This one is yours, I believe.", "Returning the case.", "Kindly look again.", "Please ask the right team.",
    "Once more to you.", "We have no view of it.", "Could you handle it?", "It should be yours.",
)  # fmt: skip


@pytest.mark.parametrize("own_runs", [False, True])
@pytest.mark.parametrize("key", ["reason", "message", "task"])
def test_hand_offs_that_only_pass_one_piece_of_work_on_are_stopped(key: str, own_runs: bool) -> None:
    found = outline(evaluate(handed(key, PASSED_ON, own_runs=own_runs)))
    assert "N" in found[:12]
    assert "S" in found


def test_attempts_that_a_reason_counts_are_no_work() -> None:
    assert "S" in outline(evaluate(handed("reason", [f"attempt {at // 2}" for at in range(24)])))


def test_hand_offs_are_acknowledged_in_whatever_words() -> None:
    ways = ("Transferred to {} Agent. Adopt persona immediately.", '{{"assistant": "{} Agent"}}', "{}")
    steps = [
        step._replace(result=ways[at * at % 3].format(("Billing", "Triage")[at % 2]))
        for at, step in enumerate(handed("reason", ["not ours"] * 20))
    ]
    assert "S" in outline(evaluate(steps))


@pytest.mark.parametrize("key", ["reason", "task"])
def test_drafts_and_remarks_are_work_wherever_they_stand(key: str) -> None:
    """LlamaIndex hands over with a reason alone, and its acknowledgement repeats it."""
    remarks = (
        "Mention how many people depend on reefs for food and give a source.",
        "Explain in plain words what happens to the animals when their partners leave.",
        "This paragraph wants a diagram, fewer formulas and one example from daily life.",
        "Say what managers could do about grazers instead of describing problems alone.",
        "Tourism sounds one-sided: add benefits for villages, schools and guides.",
        "Name projects that survived five years, honestly, with costs and failures.",
        "Compare Belize briefly with Australia, Kenya and the Philippines.",
        "Years are missing among your citations; shorten every closing sentence.",
    )
    texts = [text for pair in zip(DRAFTS, remarks, strict=True) for text in pair]
    long = "Agent {} is now handling the request due to the following reason: {}.\nPlease continue with the current request."
    steps = [
        one._replace(result=long.format(one.tool_name[12:], text))
        for one, text in zip(handed(key, texts), texts, strict=True)
    ]
    assert "S" not in outline(evaluate(steps))


# --- visits for the questions of users ---------------------------------------------------------------------------


def questions(count: int, *, traces: bool) -> list[StepRecord]:
    """One agent that is asked something else each time, and finds nothing at its one look."""
    return [
        record(
            "search_incidents", {"status": "open"}, "[]", "empty", agent="desk", run=f"desk:{at}", t=10.0 * at,
            trace_id=f"{at if traces else 7:032x}", asked=f"?{at:016x}.0", batch=str(at),
            usage=Usage(answers=1 if at else 0, asked=f"?{at:016x}.0"),
        )
        for at in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("traces", [True, False])
def test_an_agent_that_finds_nothing_for_each_question_of_another_user_is_left_alone(traces: bool) -> None:
    assert outline(evaluate(questions(30, traces=traces))).strip(".") == ""


def test_an_agent_that_finds_nothing_for_one_question_is_nudged() -> None:
    again = [one._replace(asked="?7.0", usage=Usage(answers=1, asked="?7.0")) for one in questions(30, traces=True)]
    assert "N" in outline(evaluate(again))


def test_hand_offs_of_which_nothing_is_recorded_but_the_agents_are_nudged_and_stopped_very_late() -> None:
    """As those of the OpenAI Agents SDK: each may have given another piece of work."""
    steps = [
        record(
            "handoff", {"to_agent": ("billing", "triage")[at % 2]}, None, agent=("triage", "billing")[at % 2], t=1.0 + at,
            evidence=Evidence.NO_RESULT, batch=str(at),
        )
        for at in range(400)
    ]  # fmt: skip
    found = outline(evaluate(steps))
    assert "N" in found[:12]
    assert "S" not in found[:64]
    assert "S" in found
