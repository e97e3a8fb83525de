"""The same looping agent under each of five real instrumentations: nudged and stopped at the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from .processes import run_agent

GENAI = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only",
}
LANGFUSE = {
    "LANGFUSE_PUBLIC_KEY": "pk-lf-x",
    "LANGFUSE_SECRET_KEY": "sk-lf-x",
    "LANGFUSE_HOST": "http://127.0.0.1:9",
    "LANGFUSE_TIMEOUT": "1",
}
WITH_CONTENT: dict[str, tuple[str, dict[str, str]]] = {
    "OpenLLMetry": ("openllmetry", {}),
    "OpenInference": ("openinference", {}),
    "OpenTelemetry GenAI": ("genai", GENAI),
    "Langfuse": ("langfuse", LANGFUSE),
    "OpenLIT": ("openlit", {}),
}
WITHOUT_CONTENT: dict[str, tuple[str, dict[str, str]]] = {
    "OpenLLMetry, hidden": ("openllmetry", {"TRACELOOP_TRACE_CONTENT": "false"}),
    "OpenInference, hidden": (
        "openinference",
        {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"},
    ),
    "OpenTelemetry GenAI, hidden": (
        "genai",
        {**GENAI, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "no_content"},
    ),
    "OpenLIT, hidden": ("openlit", {"OPENLIT_CONTENT": "false"}),
}
TWO_AT_ONCE: dict[str, tuple[str, dict[str, str]]] = {
    "OpenLLMetry and OpenInference": ("openllmetry,openinference", {}),
    "OpenInference and OpenTelemetry GenAI": ("openinference,genai", GENAI),
}
CASES = {**WITH_CONTENT, **WITHOUT_CONTENT, **TWO_AT_ONCE}
ONE_JOB: dict[str, tuple[str, dict[str, str]]] = {
    "OpenLLMetry in one job": ("openllmetry", {"ONE_JOB": "1"}),
    "OpenTelemetry GenAI in one job": ("genai", {**GENAI, "ONE_JOB": "1"}),
}
NAMES_ITS_THREADS = "OpenLLMetry in one job"
HOW = ("invoke", "ainvoke", "stream", "no thread id")
NUDGED_THEN_STOPPED = "hatatatNatatS"
CALLS = 5
"""Tool calls until the stop."""

Reported = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def reported() -> Iterator[Reported]:
    """All programs are started at once, two at a time; a test waits for the one it asks for."""
    pool = ThreadPoolExecutor(2)
    running: dict[str, Future[dict[str, Any]]] = {
        name: pool.submit(run_agent, *case) for name, case in {**CASES, **ONE_JOB}.items()
    }
    yield lambda name: running[name].result()
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CASES)
def test_nudged_and_stopped_at_the_same_step_however_it_is_run(name: str, reported: Reported) -> None:
    assert reported(name)["runs"] == dict.fromkeys(HOW, NUDGED_THEN_STOPPED)


@pytest.mark.parametrize("name", CASES)
def test_each_intervention_is_exported_as_one_span(name: str, reported: Reported) -> None:
    """Without a thread id two instrumentations make two traces of a run: only named conversations count here."""
    named = [entry for entry in reported(name)["interventions"] if entry[0] in ("one", "two", "three")]

    assert named == [[thread, level, "True"] for thread in ("one", "two", "three") for level in ("NUDGE", "STOP")]


@pytest.mark.parametrize("name", [*WITH_CONTENT, *WITHOUT_CONTENT])
def test_one_instrumentation_tells_each_intervention_once_without_a_thread_id(name: str, reported: Reported) -> None:
    """The trajectory goes by the trace id then, or by a name the gate made up."""
    nameless = [entry for entry in reported(name)["interventions"] if entry[0] not in ("one", "two", "three")]

    assert [level for _, level, _ in nameless] == ["NUDGE", "STOP"]
    assert len({trajectory for trajectory, _, _ in nameless}) == 1


@pytest.mark.parametrize("name", CASES)
def test_content_is_visible_or_hidden_as_the_test_claims(name: str, reported: Reported) -> None:
    """Guards the tests above: with the switch off there must be nothing to read in the tool spans."""
    assert reported(name)["content"] == (name not in WITHOUT_CONTENT)
    assert reported(name)["tool_spans"] == CALLS * len(HOW) * (2 if name in TWO_AT_ONCE else 1)


# Found: a gate that read back its own saved state evaluated, and counted, the newest step a second time.
@pytest.mark.parametrize("name", [*WITH_CONTENT, "OpenLLMetry and OpenInference"])
def test_each_call_is_counted_once(name: str, reported: Reported) -> None:
    counts = reported(name)["counts"]

    assert counts["steps"] == CALLS * len(HOW)
    assert counts["interventions.NUDGE"] == counts["interventions.STOP"] == len(HOW)
    assert counts["detections.TYPE_I_STUTTER"] == (CALLS - 1) * len(HOW)


def test_the_second_record_of_a_call_is_counted_as_a_duplicate(reported: Reported) -> None:
    counts = reported("OpenLLMetry and OpenInference")["counts"]

    assert counts["duplicates"] == CALLS * len(HOW)


# Found: where two instrumentations report a model call, its tokens counted twice.
def test_tokens_spent_in_a_loop_are_counted_once(reported: Reported) -> None:
    alone, both = (reported(name)["counts"]["loop_tokens"] for name in ("OpenLLMetry", "OpenLLMetry and OpenInference"))

    assert alone > 0
    assert both == alone


# Found: a span of the application around several runs (a batch job, one request) puts all of them into one trace. The
# trace is linked to the first thread, so later threads' calls were evaluated there, and a run without thread id was
# stopped for what the others had done.
@pytest.mark.parametrize("name", ONE_JOB)
def test_conversations_in_one_trace_do_not_hear_each_other(name: str, reported: Reported) -> None:
    assert reported(name)["runs"] == dict.fromkeys(HOW, NUDGED_THEN_STOPPED)
    if name == NAMES_ITS_THREADS:  # where tool spans do not name the thread, the spans of a shared trace name the trace
        reported_of = [entry[:2] for entry in reported(name)["interventions"] if entry[0] in ("one", "two", "three")]
        assert reported_of == [[thread, level] for thread in ("one", "two", "three") for level in ("NUDGE", "STOP")]


@pytest.mark.parametrize("name", CASES)
def test_no_error_of_the_guard(name: str, reported: Reported) -> None:
    counted = [key for key in reported(name)["counts"] if key.startswith(("errors", "evicted", "expired"))]

    assert counted == []
