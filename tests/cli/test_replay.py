"""``replay``: verdicts, sums, configurations, and their comparison."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.helpers_cli import Command, otlp_span, request, run_line, step, write
from tests.cli.synthetic import loops_in, synthetic_spans
from tests.helpers import DATA, lines
from trajectory_guard.cli import replay as replaying
from trajectory_guard.cli.recordings.inputs import Diagnostics, Limits
from trajectory_guard.cli.recordings.spool import Spool
from trajectory_guard.cli.replay import replay, trajectories
from trajectory_guard.cli.settings import load_config
from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.dialects.span import SpanView

LOOP, FINE = run_line("loop"), run_line("fine", [step(args={"q": at}, result=f"answer {at}") for at in range(6)])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return write(tmp_path / "runs.jsonl", f"{LOOP}\n{FINE}\n")


# --- a file that holds no calls, or calls under other names -------------------------------------------------------


def test_a_key_of_a_step_that_seems_to_be_meant_for_another_is_named(tmp_path: Path, command: Command) -> None:
    """Found: the calls had neither arguments nor results, and nothing was said of it."""
    steps = [{"tool": "search", "arguments": {"q": "hours"}, "output": "none", "priority": 3}] * 6
    ran = command("replay", write(tmp_path / "runs.jsonl", "\n".join(run_line(one, steps) for one in "ab") + "\n"))
    assert ran.status == 0
    assert [line.partition("runs.jsonl: ")[2] for line in ran.err.splitlines()] == [
        "steps have the unknown key 'arguments', which is not read (did you mean 'args'?)",
        "steps have the unknown key 'output', which is not read (did you mean 'result'?)",
    ]


def test_a_key_beside_the_one_that_it_resembles_is_none_of_the_guard(tmp_path: Path, command: Command) -> None:
    steps = [{"tool": "search", "args": {"q": 1}, "result": "a", "output": "b", "results": 1, "note": "x"}]
    assert command("replay", write(tmp_path / "runs.jsonl", run_line("a", steps))).err == ""


@pytest.mark.parametrize("spans", [[], [{**otlp_span(1), "attributes": []}]])
@pytest.mark.parametrize("options", [(), ("--compare", "default", "default")])
def test_files_without_a_tool_call_are_told_apart_from_healthy_ones(
    spans: list[dict[str, object]], options: tuple[str, ...], tmp_path: Path, command: Command
) -> None:
    ran = command("replay", write(tmp_path / "spans.json", json.dumps(request(spans))), *options)
    assert ran.status == 0
    assert "no tool call found; `trajectory-guard doctor` says what the files lack" in ran.err


# --- verdicts ------------------------------------------------------------------------------------------------


def test_lines_of_the_contract(runs: Path, command: Command) -> None:
    ran = command("replay", runs, "--json")
    assert ran.status == 0
    loop, fine = ran.lines
    assert list(loop) == ["id", "steps", "first_nudge", "first_stop", "max_score", "types", "verdicts"]
    assert (loop["id"], loop["steps"], loop["types"][0]) == ("loop", 6, "TYPE_I_STUTTER")
    assert loop["first_nudge"] < loop["first_stop"] < 6
    assert list(loop["verdicts"][0]) == ["step", "score", "level", "types", "rule", "reason"]
    assert fine == {
        "id": "fine", "steps": 6, "first_nudge": None, "first_stop": None, "max_score": 0.0, "types": [], "verdicts": []
    }  # fmt: skip


def test_peer_cases_give_the_verdicts_of_the_engine(command: Command) -> None:
    ran = command("replay", DATA / "peer_cases.jsonl", "--json")
    cases = list(lines(DATA / "peer_cases.jsonl"))
    assert [(one["id"], one["steps"]) for one in ran.lines] == [(one["id"], len(one["steps"])) for one in cases]


def test_step_lines_keep_their_order_and_spans_are_ordered_by_time(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mixed.jsonl",
        json.dumps(request([otlp_span(1, start=5, conversation="c"), otlp_span(2, start=2, conversation="c")]))
        + "\n" + run_line("late", [step(t=9), step(t=1)]),
    )  # fmt: skip
    found = {one.id: [step.timestamp for step in one.steps] for one in trajectories([str(path)], Diagnostics())}
    assert found == {"late": [9.0, 1.0], "c": [1002.0, 1005.0]}


def test_step_lines_are_evaluated_as_they_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", "\n".join([LOOP] + ["{broken"] * 50_000))
    diagnostics = Diagnostics()
    assert next(replay([str(path)], GuardConfig(), diagnostics)).id == "loop"
    assert diagnostics.errors == []


def test_a_conversation_spans_traces_and_files(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{at}.json", json.dumps(request([otlp_span(1, trace=at, start=9 - at, conversation="c")])))
        for at in (1, 2, 3)
    ]
    (found,) = trajectories(map(str, paths), Diagnostics())
    assert [one.trace_id[-1] for one in found.steps if one.trace_id] == ["3", "2", "1"]
    assert found.source == str(paths[2])


def test_step_lines_of_one_id_are_separate_runs(tmp_path: Path, command: Command) -> None:
    path = write(tmp_path / "runs.jsonl", "\n".join([LOOP, FINE, LOOP, run_line("loop#2"), LOOP]))
    ran = command("replay", path, "--json")
    assert ran.status == 0
    assert [one["id"] for one in ran.lines] == ["loop", "fine", "loop#2", "loop#2#2", "loop#3"]
    assert [one["steps"] for one in ran.lines] == [6] * 5
    assert f"{path}:3: a trajectory with id 'loop' came before; this one is called 'loop#2'" in ran.err
    assert {one["trajectory_id"] for one in command("extract", path).lines} == {
        "loop",
        "fine",
        "loop#2",
        "loop#2#2",
        "loop#3",
    }


def test_a_run_that_cannot_be_evaluated_does_not_cost_the_others(
    runs: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = replaying.evaluate

    def picky(recorded: replaying.Recorded, engine: replaying.Engine) -> replaying.Outcome:
        if recorded.id == "loop":
            raise RuntimeError("odd")
        return evaluate(recorded, engine)

    monkeypatch.setattr(replaying, "evaluate", picky)
    ran = command("replay", runs, "--json")
    assert (ran.status, [one["id"] for one in ran.lines]) == (2, ["fine"])
    assert f"{runs}:1: trajectory 'loop' cannot be evaluated: RuntimeError: odd" in ran.err


@pytest.mark.slow
def test_twenty_thousand_spans_on_disk_as_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    synthetic_spans(20_000, path)
    tight = Limits(cache_bytes=256 * 1024, whole_bytes=0)
    found = [one.to_json() for one in replay([str(path)], GuardConfig(), Diagnostics(), tight)]
    assert sum(one["steps"] for one in found) == 2000
    assert sum(one["first_stop"] is not None for one in found) == loops_in(20_000)
    assert found == [
        one.to_json() for one in replay([str(path)], GuardConfig(), Diagnostics(), Limits(whole_bytes=1 << 40))
    ]


# --- for people ----------------------------------------------------------------------------------------------


def test_plain_summary(tmp_path: Path, runs: Path, command: Command) -> None:
    other = write(tmp_path / "other.jsonl", run_line("priced", [step(tokens=100, cost=0.5) for _ in range(8)]))
    ran = command("replay", runs, other)
    assert ran.status == 0
    text = ran.out.splitlines()
    assert text[0].startswith("loop: 6 steps, nudge at step 3, stop at step 5, max score ")
    ran_longer = command("replay", runs, "--set", "stop_patience=4")
    assert ran_longer.out.startswith("loop: 6 steps, nudge at step 3, stop never, max score ")
    assert text[1].startswith("    search({")
    assert not any(line.startswith("fine") for line in text)
    table = {line.split()[0]: line.split()[1:] for line in text if line.startswith((str(tmp_path), "all"))}
    assert table == {
        str(runs): ["2", "12", "1", "1", "1", "0"],
        str(other): ["1", "8", "1", "1", "3", "300"],
        "all": ["3", "20", "2", "2", "4", "300"],
    }
    assert text[-3:] == [
        "3 trajectories, 20 steps: 2 would have been nudged, 2 stopped.",
        "Seen, by number of trajectories: TYPE_I_STUTTER 2.",
        "The stops would have saved 4 steps and 300 tokens ($1.50).",
    ]


def test_one_step_is_no_plural(runs: Path, command: Command, tmp_path: Path) -> None:
    assert command("replay", runs).out.splitlines()[-1] == "The stops would have saved 1 step."
    same = write(tmp_path / "same.toml", "decay = 0.5\n")
    assert "1 nudged, 1 stopped, 1 step saved by stops; " in command("replay", runs, "--compare", same, same).out


def test_tables_on_a_terminal(runs: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    out = command("replay", runs).out
    assert "nudge at" in out
    assert "steps saved" not in out or "all" in out
    assert "2 trajectories, 12 steps: 1 would have been nudged, 1 stopped." in out


def test_plain_lines_without_rich(runs: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert command("replay", runs).out.startswith("loop: 6 steps")


def test_recorded_text_cannot_steer_the_terminal(tmp_path: Path, command: Command) -> None:
    path = write(tmp_path / "runs.jsonl", run_line("a\x1b[2J", [step(args={"q": "\x1b]0;x\x07"}) for _ in range(6)]))
    ran = command("replay", path)
    assert "\x1b" not in ran.out
    assert ran.lines == [] if not ran.out else True
    assert "\x1b" not in command("replay", write(tmp_path / "bad.jsonl", '{"\\u001b[2J": 1}')).err


# --- exit status and configuration ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "status"),
    [([], 0), (["--fail-on", "nudge"], 1), (["--fail-on", "stop"], 1),
     (["--fail-on", "stop", "--set", "stop_threshold=5", "--set", "weights.TYPE_I_STUTTER=0"], 0)],
)  # fmt: skip
def test_fail_on(runs: Path, command: Command, options: list[str], status: int) -> None:
    assert command("replay", runs, "--json", *options).status == status


def test_bad_input_outweighs_a_loop(runs: Path, command: Command) -> None:
    assert command("replay", runs, "nowhere", "--json", "--fail-on", "nudge").status == 2


def test_config_file_and_overrides(tmp_path: Path, runs: Path, command: Command) -> None:
    config = write(tmp_path / "guard.json", '{"tools": {"Search": {"poll": true}}, "decay": 0.25}')
    assert load_config(str(config), ["decay=0.1", "tools.search.weight=0.5"]) == GuardConfig(
        decay=0.1, tools={"search": {"poll": True, "weight": 0.5}}
    )
    assert load_config("default", ["tools.web.search.ignore=yes"]).tools.keys() == {"web.search"}
    assert load_config(None) == GuardConfig()
    assert load_config(config, ["engine.decay=0.125", "policy.tools.web.search.poll=true"]) == load_config(
        config, ["decay=0.125", "tools.web.search.poll=true"]
    )
    ran = command("replay", runs, "--json", "--config", config, "--set", "tools.search.ignore=true")
    assert [one["first_nudge"] for one in ran.lines] == [None, None]


def test_a_single_value_of_a_key_that_takes_text_is_text(command: Command, runs: Path) -> None:
    ran = command("replay", runs, "--set", "certificate_key=12345", "--set", "gate.stop_text=on")
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("decay", "--set decay: expected KEY=VALUE"),
        ("=1", "--set =1: expected KEY=VALUE"),
        ("nudge_treshold=1", "--set: unknown key 'nudge_treshold' (did you mean 'nudge_threshold'?)"),
        ("decay=much", "--set: decay: "),
        ("engine.mode=nudge", "--set: engine.mode: belongs in the section 'gate'"),
        ("weights.TYPE_IX=1", "--set: weights: unknown loop type 'TYPE_IX'"),
        ("tools.a.pol=true", "--set: unknown key 'tools.a.pol' (did you mean 'poll'?)"),
    ],
)
def test_bad_overrides_are_named(runs: Path, command: Command, override: str, reason: str) -> None:
    with pytest.raises(ConfigError):
        load_config(None, [override])
    ran = command("replay", runs, "--json", "--set", override)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"trajectory-guard: {reason}")


def test_a_missing_config_file(runs: Path, command: Command) -> None:
    ran = command("replay", runs, "--config", "nowhere.toml")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == "trajectory-guard: nowhere.toml: cannot be read: No such file or directory\n"


# --- --compare -----------------------------------------------------------------------------------------------


def test_compare_names_what_changes(tmp_path: Path, runs: Path, command: Command) -> None:
    strict = write(tmp_path / "strict.json", '{"nudge_threshold": 1.0}')
    ran = command("replay", runs, "--compare", "default", strict, "--json")
    assert ran.status == 0
    changed, last = ran.lines
    assert changed["id"] == "loop"
    assert changed["changed"] == ["first_nudge", "first_stop"]
    assert changed["b"]["first_nudge"] < changed["a"]["first_nudge"]
    totals = last["totals"]
    assert (totals["trajectories"], totals["steps"], totals["changed"]) == (2, 12, 1)
    assert totals["a"]["config"] == "default"
    assert totals["b"]["config"] == str(strict)
    assert totals["a"]["types"] == {"TYPE_I_STUTTER": 1}


def test_compare_for_people_with_overrides_on_b(runs: Path, command: Command) -> None:
    ran = command(
        "replay", runs, "--compare", "default", "default", "--set", "weights.TYPE_I_STUTTER=0", "--fail-on", "nudge"
    )
    assert ran.status == 0
    assert ran.out.startswith("loop: 6 steps\n    A: nudge at step 3, stop at step 5, ")
    assert "2 trajectories, 12 steps: the verdicts of 1 change." in ran.out
    assert "A (default): 1 nudged, 1 stopped" in ran.out
    assert "B (default weights.TYPE_I_STUTTER=0): 0 nudged, 0 stopped" in ran.out


def test_compare_of_equals(runs: Path, command: Command) -> None:
    ran = command("replay", runs, "--compare", "default", "default", "--json", "--fail-on", "stop")
    assert ran.status == 1
    assert [list(one) for one in ran.lines] == [["totals"]]


def test_compare_excludes_config(runs: Path, command: Command) -> None:
    with pytest.raises(SystemExit) as stopped:
        command("replay", runs, "--compare", "default", "default", "--config", "x.json")
    assert stopped.value.code == 2


def test_a_declared_conversation_may_be_a_number() -> None:
    table = table_with([{"name": "mine", "match": {"acme.kind": "tool"}, "conversation": "acme.chat"}])
    call = {"acme.kind": "tool", "gen_ai.tool.name": "search"}
    with Spool(None, table) as spool:
        for at in range(2):
            spool.add(SpanView("run", {"acme.chat": 7}, f"{at:032x}", f"{at:015x}a", start=at, end=at + 1))
            spool.add(SpanView("call", call, f"{at:032x}", f"{at:015x}b", start=at, end=at + 0.5))
        spool.collect(Diagnostics())
        assert [(one.id, len(one.steps)) for one in spool.trajectories()] == [("7", 2)]
