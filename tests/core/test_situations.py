"""Named situations come out right. Floors, not aims: what is still wrong is listed by ``python -m tests.bench.situations --ids``."""

from __future__ import annotations

import pytest

from tests.bench.situations import HIDDEN, SETS, Outcome, evaluate_situation, situations, with_hidden

FLOORS = {"given": 0.95, "first": 0.95, "second": 0.95, "third": 0.95, "fourth": 0.94, "fifth": 0.97, "sixth": 0.96,
          "seventh": 0.93, "eighth": 0.90, "ninth": 0.86, "tenth": 0.88, "eleventh": 0.83,
          "twelfth": 0.85, "thirteenth": 0.72, "fourteenth": 0.80,
          "fifteenth": 0.89, "sixteenth": 0.88, "seventeenth": 0.87, "eighteenth": 0.73, "nineteenth": 0.77,
          "twentieth": 0.76, "twentyfirst": 0.66, "twentysecond": 0.52, "twentythird": 0.97, "twentyfourth": 0.9, "twentyfifth": 0.92, "twentysixth": 0.71, "twentyseventh": 0.6, "twentyeighth": 0.58, "twentyninth": 0.69, "thirtieth": 0.73, "thirtyfirst": 0.92, "thirtysecond": 0.82, "thirtythird": 0.7, "thirtyfourth": 0.83, "thirtyfifth": 0.75, "thirtysixth": 0.76, "thirtyseventh": 0.88, "thirtyeighth": 0.9, "thirtyninth": 0.66, "fortieth": 0.8, "fortyfirst": 0.68, "fortysecond": 0.75, "hosts": 0.58, "hostsagain": 0.68, "ordinary": 0.62, "attacked": 1.0}  # fmt: skip
"""Share that has to come out right. ``tests/data/README.md`` says which were at hand when the rules were written."""
STOPPED = {
    "given": set[str](),
    "first": set[str](),
    "second": set[str](),
    "third": set[str](),
    "fourth": set[str](),
    "fifth": set[str](),
    "sixth": set[str](),
    "seventh": {"poll_stuck/slurm-resources", "cycle_then_break/lee-y-prueba"},
    "eighth": set[str](),
    "ninth": set[str](),
    "tenth": set[str](),
    "eleventh": set[str](),
    "twelfth": set[str](),
    "thirteenth": set[str](),
    "fourteenth": {"recovers_late/recovers-after-5-same", "recovers_late/recovers-wrong-param-de"},
    "fifteenth": {
        "batch_fail/link-checker-all-dead-ja", "misc/ctf-wordlist",
    },
    "sixteenth": set[str](),
    "seventeenth": set[str](),
    "eighteenth": set[str](),
    "nineteenth": set[str](),
    "twentieth": {"web/pagamento-in-elaborazione-poi-ok-it"},
    "twentyfirst": set[str](),
    "twentysecond": set[str](),
    "twentythird": set[str](),
    "twentyfourth": set[str](),
    "twentyfifth": set[str](),
    "twentysixth": set[str](),
    "twentyseventh": set[str](),
    "twentyeighth": set[str](),
    "twentyninth": {"uebersetzer-lektor-absaetze"},
    "thirtieth": set[str](),
    "thirtyfirst": set[str](),
    "thirtysecond": set[str](),
    "thirtythird": {"measure-flake-rate-of-one-test", "waf-rule-test-suite"},
    "thirtyfourth": set[str](),
    "thirtyfifth": set[str](),
    "thirtysixth": {"rebase-fifteen-conflicts", "haggle-two-agents", "relay-burn-in", "archive-passwords-from-client"},
    "thirtyseventh": {"bisect-node-version-same-failure"},
    "thirtyeighth": set[str](),
    "thirtyninth": set[str](),
    "fortieth": {"undo-to-before-paste", "rabbit-cage-feeding", "kolejka-wnioskow-500plus"},
    "fortyfirst": set[str](),
    "fortysecond": set[str](),
    "hosts": {
        "bulk/images-without-text", "bulk/migrate-next", "bulk/migrate-next-seconds",
        "bulk/moderate-next-anonymous", "bulk/queue-no-numbers", "draw/pixel-grid", "draw/turtle-star",
        "form/untick-playwright", "form/untick-unnamed-users", "game/attack-potion", "game/blackjack",
        "game/blackjack-balance", "game/farm", "game/farm-days", "game/maze-exits-only", "game/mine",
        "game/snake-score-only", "sweep/calendar-no-slots", "sweep/domains-taken", "sweep/logs-days",
        "sweep/logs-epoch-hours", "sweep/pods-events-namespaces", "ui/press-keys-sentence",
    },
    "hostsagain": {
        "arrows", "bandit", "bangbang", "cad", "deps", "flaky", "k_keys", "k_like", "k_parcels", "k_rerun",
        "k_scroll_click", "k_sim", "k_sim_week", "k_weights", "maze_es", "mower", "p_bits", "p_claims_search",
        "p_click_next", "p_es_delete", "p_flaky_count", "p_pages_err", "p_pid_steady", "p_print", "p_quiz_free",
        "p_reset", "p_sanctions", "p_scale", "p_servo", "papelera", "q_bottles", "q_elevator", "q_fsck", "q_pallet",
        "q_pan", "q_proxy", "q_rotate", "q_same_page", "q_zoom", "r_artisan", "r_artisan_clock", "r_blackjack_long",
        "r_delrows_long", "r_fsck_up", "r_week_long", "robot_fwd", "titrate", "turtle", "type_enter",
        "x_bash_artisan", "x_sql", "z_crm", "z_de", "z_fetch_more", "z_load_more", "z_mongo", "z_pan_txt",
        "z_psql_del", "z_radio", "zork_cmd",
    },
    "ordinary": {
        "blurred", "cd_gate_nav", "cd_gate_nav_name", "cd_jwt", "cells_empty", "ch_admission", "ch_bajas",
        "ch_block_ja", "ch_former", "ch_parser", "ch_sqli", "ch_stripe", "creds", "db_two_json", "deleted_users",
        "er_k8s_pods", "er_time", "firma", "gate", "gf_de", "gifts", "kb_err_article", "kb_glossary_ja", "lemma",
        "lg_jobs", "lied", "neg422", "npmview", "oeztuerk", "pg_confirm_mail", "pg_mobile", "po_fr", "rbac",
        "s3audit", "tm35", "translit", "tutor_vi", "xf_curl", "xf_pl", "xf_tenant", "xf_tr", "xf_zh",
    },
    "attacked": set[str](),
}  # fmt: skip
"""Runs that are stopped and should not be. No other may join them."""


EARLIER = SETS[: SETS.index("fifteenth")]


LONG = ("eleventh", "seventeenth", "nineteenth", "twentieth", "twentyseventh", "hosts", "hostsagain", "ordinary")
"""Sets of long runs, and of many."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in LONG else ()) for name in FLOORS]
)
def test_situations_come_out_right_and_hardly_any_is_stopped_wrongly(name: str) -> None:
    found: list[Outcome] = [evaluate_situation(one) for one in situations(name)]
    assert sum(one.right for one in found) >= FLOORS[name] * len(found)
    assert {one.id for one in found if one.wrongly_stopped} <= STOPPED[name]


@pytest.mark.parametrize(
    ("sets", "hidden", "quiet_left_alone", "loops_nudged"),
    [
        (EARLIER, "arguments, results and errors", 0.98, 0.24),
        pytest.param(EARLIER, "results", 0.91, 0.48, marks=pytest.mark.nightly),
        pytest.param(EARLIER, "arguments and results", 0.98, 0.23, marks=pytest.mark.nightly),
        pytest.param(EARLIER, "arguments", 0.97, 0.32, marks=pytest.mark.nightly),
        pytest.param(("fifteenth",), "arguments, results and errors", 0.92, 0.29, marks=pytest.mark.slow),
        pytest.param(("fifteenth",), "arguments and results", 0.90, 0.29, marks=pytest.mark.slow),
        pytest.param(("fifteenth",), "arguments", 0.89, 0.38, marks=pytest.mark.slow),
        pytest.param(("fifteenth",), "results", 0.88, 0.57, marks=pytest.mark.slow),
        pytest.param(("sixteenth",), "arguments, results and errors", 0.98, 0.26, marks=pytest.mark.nightly),
        pytest.param(("sixteenth",), "arguments and results", 0.98, 0.27, marks=pytest.mark.nightly),
        pytest.param(("sixteenth",), "arguments", 0.98, 0.31, marks=pytest.mark.nightly),
        pytest.param(("sixteenth",), "results", 0.93, 0.56, marks=pytest.mark.nightly),
        pytest.param(("seventeenth",), "arguments, results and errors", 0.98, 0.27, marks=pytest.mark.nightly),
        pytest.param(("seventeenth",), "arguments and results", 0.98, 0.25, marks=pytest.mark.nightly),
        pytest.param(("seventeenth",), "arguments", 0.97, 0.26, marks=pytest.mark.nightly),
        pytest.param(("seventeenth",), "results", 0.91, 0.49, marks=pytest.mark.nightly),
        pytest.param(("eighteenth",), "arguments, results and errors", 0.98, 0.19, marks=pytest.mark.nightly),
        pytest.param(("eighteenth",), "arguments and results", 0.98, 0.17, marks=pytest.mark.nightly),
        pytest.param(("eighteenth",), "arguments", 0.98, 0.18, marks=pytest.mark.nightly),
        pytest.param(("eighteenth",), "results", 0.90, 0.42, marks=pytest.mark.nightly),
    ],
)
def test_what_telemetry_does_not_show_stops_hardly_any_healthy_run(
    sets: tuple[str, ...], hidden: str, quiet_left_alone: float, loops_nudged: float
) -> None:
    found = [evaluate_situation(with_hidden(one, HIDDEN[hidden])) for name in sets for one in situations(name)]
    assert sum(one.wrongly_stopped for one in found) <= 3
    quiet = [one for one in found if one.expect == "quiet"]
    assert sum(one.right for one in quiet) >= quiet_left_alone * len(quiet)
    loops = [one for one in found if one.expect.startswith("nudge")]
    assert sum(one.nudge is not None for one in loops) >= loops_nudged * len(loops)
