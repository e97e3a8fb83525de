"""What is said when an agent is stuck: the reason, the nudge, and the payload of a stop."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from trajectory_guard.core.detectors import (
    TYPE_I,
    TYPE_II,
    TYPE_III,
    TYPE_IV,
    TYPE_V,
    TYPE_VI,
    DetectionResult,
)
from trajectory_guard.core.steps import StepRecord

MAX_EXCERPT_CHARS: Final = 120


class Spent(NamedTuple):
    """What a loop has consumed since its first step: repeats, seconds, and the tokens and USD behind the repeats."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    cost_usd: float = 0.0


def clip(text: str, limit: int = MAX_EXCERPT_CHARS) -> str:
    """``text`` on one line, at most ``limit`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _call(step: StepRecord, excerpt: bool) -> str:
    if not excerpt or step.args is None:
        return step.tool_name
    return f"{step.tool_name}({args_excerpt(step.args)})"


def args_excerpt(args: Any) -> str:
    """Arguments as a short text: JSON, or the bare value where the instrumentation dropped its name."""
    if isinstance(args, dict) and list(args) == ["__single__"]:
        args = args["__single__"]
    if isinstance(args, str):
        return clip(args)
    try:
        return clip(json.dumps(args, ensure_ascii=False, default=repr))
    except (ValueError, RecursionError):
        return "…"


def _answer(step: StepRecord, excerpt: bool) -> str:
    if step.outcome_type == "empty" or step.result == "":
        return "nothing"
    if step.outcome_type == "denied":
        return "a refusal"
    if step.result is None or not excerpt:
        return {"error": "an error", "success": "the same answer"}.get(step.outcome_type, step.outcome_type)
    kind = "the error " if step.outcome_type == "error" else ""
    return f'{kind}"{clip(step.result)}"'


def reason_text(found: DetectionResult, step: StepRecord, spent: Spent, *, excerpt: bool = True) -> str:
    """One sentence: which tool, how often, since which step, and what did not change. Steps count from 1 here."""
    details = found.details
    count, since = details.get("count", 0), details.get("first_step", 0) + 1
    call, answer = _call(step, excerpt), _answer(step, excerpt)
    if details.get("rule") == "idle_turns":
        return f"{count} turns in a row brought nothing new: {call} returned {answer} again."
    if found.loop_type == TYPE_I:
        return f"{call} was called {count} times since step {since} and returned {answer} each time."
    if found.loop_type == TYPE_II:
        return (
            f"{step.tool_name} was called {count} times since step {since} in other words, and got {answer} each time."
        )
    if found.loop_type == TYPE_III:
        tools = ", ".join(details.get("tools", [step.tool_name]))
        return f"{count} different calls ({tools}) since step {since} all returned {answer}: the state does not change."
    if found.loop_type == TYPE_IV:
        cycle = " → ".join(details.get("tools", []))
        return f"The steps {cycle} have repeated {count} times since step {since} with the same answers."
    if found.loop_type == TYPE_V:
        return f"{step.tool_name} failed {count} times since step {since} with the same kind of error: {answer}."
    if details.get("rule") == "claims_done":
        return (
            f"The agent has declared itself done {count} times with {step.tool_name} since step {since}, and goes on."
        )
    return f"The agent has said the same thing {count} times since step {since} without a new result."


_ADVICE: Final[Mapping[str, Sequence[str]]] = {
    TYPE_I: (
        "Do not repeat this call: it will return the same.",
        "Use another tool, or this one with different arguments.",
        "If you have all you can get, answer with it, or say what is missing and ask.",
    ),
    TYPE_II: (
        "Another wording of the same request is not a new strategy; what you look for may not exist here.",
        "Use a different tool or source.",
        "If you have all you can get, answer with it, or say what is missing and ask.",
    ),
    TYPE_III: (
        "Check whether your actions take effect at all before trying further ones.",
        "Go back to the last step that changed something, and take another route.",
        "If the state cannot be changed with these tools, say so.",
    ),
    TYPE_IV: (
        "Break the cycle: do something that is not part of it.",
        "Decide with what is known now, or name the one fact that is missing.",
        "Accept the current result, or ask a person to decide.",
    ),
    TYPE_V: (
        "Read the error: it has not changed, so the cause is not in what you vary.",
        "Look up how the tool wants to be called (schema, help, an example) before the next try.",
        "If it cannot work, use another tool or report the error.",
    ),
    TYPE_VI: (
        "Saying it again does not move the task.",
        "Find out why the last attempt to finish was not accepted, and change that.",
        "If nothing is left to do, give the final answer in plain text now.",
    ),
}
_TRANSIENT_ADVICE: Final = (
    "The error looks temporary: wait before the next try, or go on with something else meanwhile.",
    "If it persists, report it instead of retrying.",
)


def nudge_text(found: Sequence[DetectionResult], step: StepRecord, spent: Spent, *, excerpt: bool = True) -> str:
    """Message for the model: what repeats, since when, what came back, and what to try instead."""
    main = found[0]
    advice = _TRANSIENT_ADVICE if main.details.get("rule") == "transient_error" else _ADVICE[main.loop_type]
    lines = [
        "[Trajectory guard] You seem to be stuck.",
        reason_text(main, step, spent, excerpt=excerpt),
        "What to try:",
    ]
    return "\n".join((*lines, *(f"- {line}" for line in advice)))


def stop_payload(
    *, reason: str, loop_types: Sequence[str], loop_score: float, nudges_sent: int, steps_taken: int,
    similar_actions: Sequence[Any], spent: Spent,
) -> dict[str, Any]:  # fmt: skip
    """What a stopped run leaves behind, as structured data: ``status`` is always ``guardrail_triggered``."""
    return {
        "status": "guardrail_triggered",
        "reason": loop_types[0] if loop_types else "UNKNOWN",
        "explanation": reason,
        "loop_score": round(loop_score, 3),
        "nudges_sent": nudges_sent,
        "steps_taken": steps_taken,
        "similar_actions": list(similar_actions),
        "spent": spent._asdict(),
        "recommendation": recommendation(loop_types),
    }


def recommendation(loop_types: Sequence[str]) -> str:
    """What a developer should look at."""
    return {
        TYPE_I: "Check why the tool's answer does not satisfy the agent: prompt, tool description, or missing data.",
        TYPE_II: "Check whether the tool can find what the agent looks for, and tell it in the tool's description.",
        TYPE_III: "Check whether the tools report failure: actions had no effect but looked successful.",
        TYPE_IV: "Check the hand-off rules: no participant owns the decision.",
        TYPE_V: "Check the tool's schema and error text: the agent cannot learn from it how to succeed.",
        TYPE_VI: "Check what ends a run: the agent's claim to be done is not accepted or not heard.",
    }.get(loop_types[0] if loop_types else "", "Review the agent's prompt and tool setup.")
