"""Attribute and metric names, units and meanings: the one place they are written down.

``make docs`` writes the tables of ``processor/README.md`` from this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from trajectory_guard.dialects.span import GUARD_SCOPE

SCOPE: Final = GUARD_SCOPE
SPAN_NAME: Final = "trajectory_guard.intervention"
LOOP_SPAN_NAME: Final = "trajectory_guard.loop"
LOGGER: Final = "trajectory_guard"

LOOP_DETECTED: Final = "trajectory_guard.loop.detected"
LOOP_TYPE: Final = "trajectory_guard.loop.type"
LOOP_RULE: Final = "trajectory_guard.loop.rule"
LOOP_CERTAINTY: Final = "trajectory_guard.loop.certainty"
LOOP_SCORE: Final = "trajectory_guard.loop.score"
LOOP_FIRST_STEP: Final = "trajectory_guard.loop.first_step"
INTERVENTION: Final = "trajectory_guard.intervention"
HEALTH: Final = "trajectory_guard.health"
EPISODE: Final = "trajectory_guard.episode"
STEP_INDEX: Final = "trajectory_guard.step.index"
TRAJECTORY_ID: Final = "trajectory_guard.trajectory.id"
RUN_ID: Final = "trajectory_guard.run.id"
EVIDENCE: Final = "trajectory_guard.evidence"
REASON: Final = "trajectory_guard.reason"
CERTIFICATE: Final = "trajectory_guard.certificate"
BUDGET_LEVEL: Final = "trajectory_guard.budget.level"
BUDGET_USED: Final = "trajectory_guard.budget.used"
BUDGET_SCOPE: Final = "trajectory_guard.budget.scope"
BUDGET_NAME: Final = "trajectory_guard.budget.name"
BUDGET_LIMIT: Final = "trajectory_guard.budget.limit"
BUDGET_PERCENT: Final = "trajectory_guard.budget.percent"
BUDGET_ALERT_EVENT: Final = "trajectory_guard.budget.alert"
OUTLIER_EVENT: Final = "trajectory_guard.spending.outlier"
OUTLIER_TOKENS: Final = "trajectory_guard.outlier.tokens"
OUTLIER_USUAL: Final = "trajectory_guard.outlier.usual_tokens"
OUTLIER_DEVIATIONS: Final = "trajectory_guard.outlier.deviations"
QUALITY_NAME: Final = "trajectory_guard.quality.name"
QUALITY_BEFORE: Final = "trajectory_guard.quality.before"
QUALITY_NOW: Final = "trajectory_guard.quality.now"
EVALUATION: Final = "gen_ai.evaluation.name"
MODEL: Final = "gen_ai.request.model"
TOOL: Final = "gen_ai.tool.name"
ERROR_TYPE: Final = "error.type"
REFUSAL_REASON: Final = "trajectory_guard.refusal.reason"
FLAG_ACTION: Final = "trajectory_guard.flag.action"
EVICTION_REASON: Final = "trajectory_guard.eviction.reason"
EXPIRY_REASON: Final = "trajectory_guard.expiry.reason"
ERROR_WHERE: Final = "trajectory_guard.error.where"
SPENDING_EVENT: Final = "trajectory_guard.spending.event"
BUDGET_ACTION: Final = "trajectory_guard.budget.action"
QUALITY_SOURCE: Final = "trajectory_guard.quality.source"
QUALITY_EVENT: Final = "trajectory_guard.quality.event"
SETTLED_ANSWER: Final = "trajectory_guard.settled.answer"
SCORE_OUTCOME: Final = "trajectory_guard.score.outcome"
LANGFUSE_TAGS: Final = "langfuse.trace.tags"
EVENT_NAME: Final = "otel.event.name"
"""Attribute of a log record that a logging library has made. OpenTelemetry's handler for ``logging`` sets the record's
``EventName`` from it."""
EVENT_NAMES: Final[Mapping[str, str]] = {
    "TRAJECTORY_OBSERVE": "trajectory_guard.observe", "TRAJECTORY_NUDGE": "trajectory_guard.nudge",
    "TRAJECTORY_STOP": "trajectory_guard.stop", "TRAJECTORY_RECOVERY": "trajectory_guard.recovery",
    "TRAJECTORY_REFUSAL": "trajectory_guard.refusal",
    "TRAJECTORY_REQUIRED_ACTIONS_MISSING": "trajectory_guard.required_actions.missing",
    "TRAJECTORY_FLAG_RAISED": "trajectory_guard.flag.raised",
    "TRAJECTORY_FLAG_CLEARED": "trajectory_guard.flag.cleared",
    "BUDGET_ALERT": BUDGET_ALERT_EVENT, "BUDGET_REFUSAL": "trajectory_guard.budget.refusal",
    "SPENDING_OUTLIER": OUTLIER_EVENT,
}  # fmt: skip
"""Names of events by the ``event_type`` of their log lines. Events on spans have the same names."""
TAG: Final = "LOOP_DETECTED"


class Attribute(NamedTuple):
    """A span attribute: key, type, meaning."""

    key: str
    type: str
    meaning: str


class Metric(NamedTuple):
    """A metric: name, instrument, unit (UCUM), meaning, attribute keys.

    A key is one of the semantic conventions, or begins with ``trajectory_guard.``: views, the labels of a backend and
    other instrumentations share one space of names. The values of each are bounded.
    """

    name: str
    instrument: str
    unit: str
    meaning: str
    attributes: tuple[str, ...] = ()


ATTRIBUTES: Final = (
    Attribute(LOOP_DETECTED, "bool", "a loop was found at this step, and is reason for a nudge or a stop"),
    Attribute(LOOP_TYPE, "string[]", "loop types that fired, strongest first"),
    Attribute(LOOP_RULE, "string", "the rule behind the strongest finding"),
    Attribute(
        LOOP_CERTAINTY,
        "string",
        "strength of the evidence behind it: certain, likely, acknowledged, or waiting, which is advice and no fault",
    ),
    Attribute(LOOP_SCORE, "double", "loop score after this step, 0 to max_score (5)"),
    Attribute(
        LOOP_FIRST_STEP,
        "string",
        "span id of the first step of the loop; 16 hex digits that stand for a step without a span, which a gate has "
        "read from messages; the step's index if either is forgotten",
    ),
    Attribute(INTERVENTION, "string", "OBSERVE, NUDGE or STOP"),
    Attribute(HEALTH, "double", "1 - score / max_score"),
    Attribute(EPISODE, "int", "ordinal of the episode in its trajectory, from 1"),
    Attribute(STEP_INDEX, "int", "ordinal of the step in its trajectory, from 0"),
    Attribute(TRAJECTORY_ID, "string", "conversation id, else thread or session id, else trace id"),
    Attribute(
        RUN_ID,
        "string",
        "the run in its trajectory: agent instance, then / and user turn, as far as known; empty if neither is",
    ),
    Attribute(
        EVIDENCE,
        "string",
        "full, no_result, name_only: how much of the call was visible; fingerprint_only: too long to be understood",
    ),
    Attribute(REASON, "string", "one sentence: which tool, how often, since when, what came back"),
    Attribute(
        CERTIFICATE,
        "string",
        "on the guard's own span of a nudge or stop: its certificate, canonical JSON of numbers and fingerprints; left "
        "out where the SDK's limit of length would cut it off",
    ),
    Attribute(BUDGET_LEVEL, "string", "normal, aggressive, new_sessions_only or blocked; at an alert of a budget"),
    Attribute(BUDGET_USED, "double", "part of the budget that is used, 1.0 for all of it; at an alert"),
    Attribute(BUDGET_SCOPE, "string", "whose budget: trajectory, agent, service or day; on the event of an alert"),
    Attribute(BUDGET_NAME, "string", "name of the trajectory, agent or service; on the event of an alert"),
    Attribute(BUDGET_LIMIT, "string", "the limit in words: 10.00 USD per day; on the event of an alert"),
    Attribute(BUDGET_PERCENT, "int", "the alert: 50, 80 or 100; on its event"),
    Attribute(OUTLIER_TOKENS, "int", "tokens of a model call far above the usual; on the event of the outlier"),
    Attribute(OUTLIER_USUAL, "int", "tokens of the agent's usual model call; on the event of an outlier"),
    Attribute(OUTLIER_DEVIATIONS, "double", "standard deviations between them; on the event of an outlier"),
    Attribute(QUALITY_NAME, "string", "name of the scores that dropped; on the guard's own span of the nudge"),
    Attribute(QUALITY_BEFORE, "double", "mean of the scores before the newest ones, 0 to 1; on that span"),
    Attribute(QUALITY_NOW, "double", "mean of the newest scores, 0 to 1; on that span"),
)

STEPS: Final = Metric("trajectory_guard.steps", "counter", "{step}", "tool calls evaluated")
DETECTIONS: Final = Metric(
    "trajectory_guard.detections", "counter", "{detection}", "findings of a detector, by loop type", (LOOP_TYPE,)
)
INTERVENTIONS: Final = Metric(
    "trajectory_guard.interventions", "counter", "{intervention}", "nudges and stops that became due, by certainty",
    (INTERVENTION, LOOP_CERTAINTY),
)  # fmt: skip
REFUSALS: Final = Metric(
    "trajectory_guard.refusals", "counter", "{call}",
    "requested calls that a gate answered without running them, by reason", (REFUSAL_REASON,),
)  # fmt: skip
HAND_FLAGS: Final = Metric(
    "trajectory_guard.flags.by_hand",
    "counter",
    "{flag}",
    "flags that people raised or cleared, by action",
    (FLAG_ACTION,),
)
EPISODES: Final = Metric(
    "trajectory_guard.episodes", "counter", "{episode}", "loops begun, by type and certainty",
    (LOOP_TYPE, LOOP_CERTAINTY),
)  # fmt: skip
RECOVERIES: Final = Metric("trajectory_guard.recoveries", "counter", "{episode}", "loops left after a nudge")
ACTIVE: Final = Metric(
    "trajectory_guard.trajectories.active", "up-down-counter", "{trajectory}", "trajectories in memory"
)
EVICTIONS: Final = Metric(
    "trajectory_guard.evictions",
    "counter",
    "{trajectory}",
    "trajectories evicted because idle or over the limit, by reason",
    (EVICTION_REASON,),
)
REQUIRED_MISSING: Final = Metric(
    "trajectory_guard.required_actions.missing", "counter", "{run}",
    "runs whose agent ended without an action that is required, by tool", (TOOL,),
)  # fmt: skip
ERRORS: Final = Metric(
    "trajectory_guard.errors", "counter", "{error}", "errors of the guard itself, contained", (ERROR_WHERE,)
)
DUPLICATES: Final = Metric("trajectory_guard.duplicates", "counter", "{step}", "second records of a call, ignored")
FINGERPRINTED: Final = Metric(
    "trajectory_guard.steps.fingerprinted", "counter", "{step}",
    "tool calls whose arguments or result were too long to be understood in full",
)  # fmt: skip
CERTIFICATES_LEFT_OUT: Final = Metric(
    "trajectory_guard.certificates.left_out", "counter", "{certificate}",
    "certificates that are not on their span, since the SDK's limit of length would have cut them off",
)  # fmt: skip
EXPIRED: Final = Metric(
    "trajectory_guard.spans.expired",
    "counter",
    "{span}",
    "open spans no longer tracked, by reason: full, age, dropped by the application",
    (EXPIRY_REASON,),
)
LATENCY: Final = Metric(
    "trajectory_guard.observe.duration", "histogram", "s", "time to evaluate a tool span (1 of 16 sampled)"
)
LATENCY_BOUNDS_S: Final = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 0.1)
"""Buckets of ``LATENCY``. The defaults of SDKs are made for milliseconds: every step would be in the first."""
LOOP_STEPS: Final = Metric(
    "trajectory_guard.loop.steps", "counter", "{step}",
    "steps spent inside loops, from the first repeat on, by certainty", (LOOP_CERTAINTY,),
)  # fmt: skip
LOOP_TOKENS: Final = Metric(
    "trajectory_guard.loop.tokens", "counter", "{token}", "tokens spent inside loops, by certainty", (LOOP_CERTAINTY,)
)
LOOP_COST: Final = Metric(
    "trajectory_guard.loop.cost", "counter", "{USD}",
    "money spent inside loops, where prices are known, by certainty", (LOOP_CERTAINTY,),
)  # fmt: skip

SPENDING_TOKENS: Final = Metric(
    "trajectory_guard.spending.tokens", "counter", "{token}", "tokens of model calls booked by this process, by model",
    (MODEL,),
)  # fmt: skip
SPENDING_COST: Final = Metric(
    "trajectory_guard.spending.cost", "counter", "{USD}",
    "money of model calls booked by this process, by model; a model without a price has no series", (MODEL,),
)  # fmt: skip
SPENDING_UNPRICED: Final = Metric(
    "trajectory_guard.spending.unpriced", "up-down-counter", "{token}",
    "tokens that no price is known for, which no budget in USD counts, by model", (MODEL,),
)  # fmt: skip
SPENDING_EVENTS: Final = Metric(
    "trajectory_guard.spending.events", "counter", "{call}",
    "model calls, by event: calls (booked), duplicates, outliers, lost; and accounts evicted from memory (forgotten)",
    (SPENDING_EVENT,),
)  # fmt: skip
BUDGET_RATIO: Final = Metric(
    "trajectory_guard.budget.ratio", "gauge", "1",
    "part of a budget of an agent, service or day that is used, as this process read it last",
    (BUDGET_SCOPE, BUDGET_NAME, BUDGET_LIMIT),
)  # fmt: skip
BUDGET_ALERTS: Final = Metric(
    "trajectory_guard.budget.alerts", "counter", "{alert}", "budgets that reached 50, 80 or 100 %", (BUDGET_PERCENT,)
)
BUDGET_ACTIONS: Final = Metric(
    "trajectory_guard.budget.actions", "counter", "{call}",
    "model calls that a gate routed to a cheaper model, refused as a new session, or blocked", (BUDGET_ACTION,),
)  # fmt: skip
QUALITY_MEAN: Final = Metric(
    "trajectory_guard.quality.mean", "gauge", "{score}",
    "mean of the newest scores of answers, 0 to 1, by source (span, api, logprobs, judge) and name",
    (QUALITY_SOURCE, EVALUATION),
)  # fmt: skip
QUALITY_EVENTS: Final = Metric(
    "trajectory_guard.quality.events", "counter", "{score}",
    "scores (recorded), drops, low log-probabilities; evaluations left out: out_of_range, no_number, repeated; "
    "answers given up: judge_dropped, judge_timeout, judge_abstained",
    (QUALITY_EVENT,),
)  # fmt: skip
SETTLED: Final = Metric(
    "trajectory_guard.settled", "counter", "{pair}", "pairs of texts given to a model, by answer", (SETTLED_ANSWER,)
)
SCORES: Final = Metric(
    "trajectory_guard.scores", "counter", "{score}", "scores for Langfuse, by outcome", (SCORE_OUTCOME,)
)
SCORE_ATTEMPTS_FAILED: Final = Metric(
    "trajectory_guard.scores.attempts_failed", "counter", "{attempt}",
    "failed attempts to send scores, by HTTP status, or unreachable, invalid, error", (ERROR_TYPE,),
)  # fmt: skip

METRICS: Final = (
    STEPS, DETECTIONS, INTERVENTIONS, REFUSALS, HAND_FLAGS, EPISODES, RECOVERIES, ACTIVE, EVICTIONS, REQUIRED_MISSING,
    ERRORS, DUPLICATES, FINGERPRINTED, CERTIFICATES_LEFT_OUT, EXPIRED, LATENCY, LOOP_STEPS, LOOP_TOKENS, LOOP_COST,
    SPENDING_TOKENS, SPENDING_COST, SPENDING_UNPRICED, SPENDING_EVENTS, BUDGET_RATIO, BUDGET_ALERTS, BUDGET_ACTIONS,
    QUALITY_MEAN, QUALITY_EVENTS, SETTLED, SCORES, SCORE_ATTEMPTS_FAILED,
)  # fmt: skip
