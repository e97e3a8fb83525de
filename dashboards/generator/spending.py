"""The dashboard *Spending*: tokens, money, budgets, and the quality of answers, of applications or of a collector."""

from __future__ import annotations

from typing import Final

from dashboards.generator.panels import (
    ORANGE,
    RED,
    YELLOW,
    Json,
    dashboard,
    data_source,
    graph,
    instant,
    label_values,
    query,
    row,
    stat,
)
from dashboards.generator.promql import SHOWN, STEP, Window, counted, summed

SPENDING_UID: Final = "trajectory-guard-spending"
AHEAD_S: Final = 4 * 3600
_JOB: Final = 'job=~"$job"'
_MODEL: Final = "gen_ai_request_model"
_BUDGET: Final = ("trajectory_guard_budget_scope", "trajectory_guard_budget_name", "trajectory_guard_budget_limit")
_NAMED: Final = " ".join(f"{{{{{label}}}}}" for label in _BUDGET)
_LEVELS: Final = [(0.8, YELLOW), (0.95, ORANGE), (1.0, RED)]


def spending() -> Json:
    """The dashboard."""
    return dashboard(
        SPENDING_UID,
        "Spending",
        "Tokens and money of model calls, and what is left of the budgets. From the metrics of applications, or of a "
        "collector that keeps the ledger.",
        [
            data_source("prometheus"),
            label_values("job", "Application", "trajectory_guard_spending_tokens_total", "job"),
        ],
        [*_totals(), row("Budgets"), *_budgets(), row("Models"), *_models(), row("Quality of answers"), *_quality()],
    )


def _grown(metric: str, window: Window, *by: str) -> str:
    return summed(counted(metric, window, _JOB), *by)


def _totals() -> list[Json]:
    fullest = f"max(trajectory_guard_budget_ratio{{{_JOB}}})"
    unpriced = f"sum(trajectory_guard_spending_unpriced{{{_JOB}}})"
    return [
        stat("Money spent", "In the time shown, where prices are known. Healthy: as planned.",
             instant(_grown("trajectory_guard_spending_cost_total", SHOWN)), unit="currencyUSD", decimals=2),
        stat("Tokens used", "In the time shown. Healthy: as planned.",
             instant(_grown("trajectory_guard_spending_tokens_total", SHOWN)), unit="short", decimals=1),
        stat("Fullest budget", "Healthy: below 80 %.", instant(fullest), unit="percentunit", decimals=0, steps=_LEVELS),
        stat("Calls refused or routed", "Model calls that a budget refused, blocked or routed to a cheaper model. "
             "Healthy: 0.",
             instant(_grown("trajectory_guard_budget_actions_total", SHOWN)), decimals=0, steps=[(1, ORANGE)]),
        stat("Tokens without a price", "No budget in USD counts them. Healthy: 0; else give a price under "
             "model_prices.", instant(unpriced), unit="short", decimals=1, steps=[(1, ORANGE)]),
    ]  # fmt: skip


def _budgets() -> list[Json]:
    by = ", ".join(_BUDGET)
    ratio = f"trajectory_guard_budget_ratio{{{_JOB}}}"
    return [
        graph("Budgets used", "Part of each budget of an agent, service or day. Healthy: below 80 %; from there on "
              "models are cheaper, from 95 % new sessions are refused, at 100 % all calls.",
              query(f"max by ({by}) ({ratio})", _NAMED), unit="percentunit", steps=_LEVELS, width=12),
        graph("Budgets used, four hours ahead", "If spending goes on as in the hour before. Budgets of a day begin "
              "anew at midnight UTC. Healthy: below 100 %.",
              query(f"max by ({by}) (predict_linear({ratio}[1h], {AHEAD_S}))", _NAMED),
              unit="percentunit", steps=_LEVELS, width=12),
        graph("Alerts", "Budgets that reached 50, 80 or 100 %, once each. Healthy: rare.",
              query(_grown("trajectory_guard_budget_alerts_total", STEP, "trajectory_guard_budget_percent"),
                    "{{trajectory_guard_budget_percent}} %"), bars=True, stacked=True, width=12),
        graph("Actions", "Model calls routed to a cheaper model, refused as new sessions, or blocked. Healthy: empty.",
              query(_grown("trajectory_guard_budget_actions_total", STEP, "trajectory_guard_budget_action"),
                    "{{trajectory_guard_budget_action}}"),
              bars=True, stacked=True, width=12),
    ]  # fmt: skip


def _models() -> list[Json]:
    return [
        graph("Money by model", "Healthy: no model stands out that was not meant to.",
              query(_grown("trajectory_guard_spending_cost_total", STEP, _MODEL), f"{{{{{_MODEL}}}}}"),
              unit="currencyUSD", bars=True, stacked=True),
        graph("Tokens by model", "Healthy: follows the load.",
              query(_grown("trajectory_guard_spending_tokens_total", STEP, _MODEL), f"{{{{{_MODEL}}}}}"),
              unit="short", bars=True, stacked=True),
        graph("Events of the ledger", "calls: booked. duplicates: second spans of a call. outliers: calls far above "
              "the usual of their agent. Healthy: lost and forgotten stay empty, outliers are rare.",
              query(_grown("trajectory_guard_spending_events_total", STEP, "trajectory_guard_spending_event"),
                    "{{trajectory_guard_spending_event}}"),
              bars=True),
    ]  # fmt: skip


def _quality() -> list[Json]:
    mean = f"avg by (trajectory_guard_quality_source, gen_ai_evaluation_name) (trajectory_guard_quality_mean{{{_JOB}}})"
    return [
        graph("Quality of answers", "Mean of the newest scores, 0 to 1, by source and name: evaluations on spans, "
              "scores of the application, log-probabilities, the judge. Empty unless it is measured. Healthy: steady, "
              "above 0.5.",
              query(mean, "{{trajectory_guard_quality_source}} {{gen_ai_evaluation_name}}"), unit="percentunit",
              maximum=1, width=12),
        graph("Scores by what became of them", "scores: recorded. drops: nudges and what follows them. low: unsure "
              "answers. Healthy: drops are rare, and nothing is left out or given up (out_of_range, no_number, "
              "judge_dropped, judge_timeout).",
              query(_grown("trajectory_guard_quality_events_total", STEP, "trajectory_guard_quality_event"),
                    "{{trajectory_guard_quality_event}}"), bars=True, width=12),
    ]  # fmt: skip
