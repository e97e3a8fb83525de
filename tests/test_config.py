"""Configuration: every way to give it, and an answer for every mistake that names source, key and value."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_origin

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.helpers import DATA
from trajectory_guard import runtime
from trajectory_guard.config import SECTIONS, ConfigError, GuardConfig, Mistake, ToolPolicy, unknown_variables
from trajectory_guard.config.spending import BudgetSettings, ModelPrice
from trajectory_guard.config.values import takes_number
from trajectory_guard.core.detectors import weights
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.settings import EngineSettings, SettingsError, ToolSettings
from trajectory_guard.otel.instrument import instrument

CONFIGS = DATA / "config"

BAD: dict[str, list[tuple[str, ...]]] = {
    # file: for each line of the message, what it must say besides the name of the file
    "bad_unknown_key.toml": [("unknown key 'nudge_treshold'", "did you mean 'nudge_threshold'?")],
    "bad_unknown_policy_key.yaml": [("unknown key 'tools.job_status.pol'", "did you mean 'poll'?")],
    "bad_wrong_type.json": [("history_steps", "a whole number", "'many'")],
    "bad_wrong_type_of_policy.json": [("tools.job_status", "'poll'")],
    "bad_threshold_order.toml": [("nudge_threshold <= stop_threshold <= max_score", "4.0 / 3.0 / 5.0")],
    "bad_unknown_loop_type.yaml": [("unknown loop type 'TYPE_I_STUTER'", "did you mean 'TYPE_I_STUTTER'?")],
    "bad_negative_weight.json": [("weights.TYPE_I_STUTTER", "must be a number of at least 0, got -1.0")],
    "bad_weight_is_no_number.yaml": [("weights.TYPE_I_STUTTER", "nan")],
    "bad_not_a_number.yaml": [("decay", "nan")],
    "bad_mode.toml": [("mode", "'enforce', 'nudge' or 'observe'", "'enforc'")],
    "bad_out_of_range.json": [("decay", "less than 1", "1.0"), ("max_trajectories", "at least 1", "0")],
    "bad_several_mistakes.yaml": [
        ("history_steps", "'few'"),
        ("tools.search.weight", "99"),
        ("unknown key 'decai'", "did you mean 'decay'?"),
    ],
    "bad_not_a_mapping.json": [("expected a mapping at the top level, got list",)],
    "bad_key_is_no_text.yaml": [("1",)],
    "bad_key_twice.json": [("key 'mode' is there twice",)],
    "bad_key_twice.yaml": [("line 3: key 'tools' is there twice, first in line 1",), ("line 5: key 'poll' is there",)],
    "bad_syntax.json": [("line 1 column 10",)],
    "bad_syntax.toml": [("line 1, column 9",)],
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_one_line_for_each_mistake(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig.from_file(CONFIGS / name)
    reported = str(caught.value).splitlines()
    assert len(reported) == len(BAD[name])
    for wanted in BAD[name]:
        assert any(all(part in line for part in wanted) for line in reported)
    assert all(line.startswith(f"{CONFIGS / name}: ") for line in reported)
    assert "GuardConfig" not in str(caught.value)


def test_bad_yaml_syntax_names_the_file_and_the_place() -> None:
    with pytest.raises(ConfigError, match=r"bad_syntax\.yaml: not valid YAML(?s:.*)line 1, column 8"):
        GuardConfig.from_file(CONFIGS / "bad_syntax.yaml")


def test_every_bad_file_is_tested() -> None:
    assert {path.name for path in CONFIGS.glob("bad_*")} == {*BAD, "bad_syntax.yaml"}


@pytest.mark.parametrize("suffix", ["json", "toml", "yaml"])
def test_the_three_formats_say_the_same(suffix: str) -> None:
    assert GuardConfig.from_file(CONFIGS / f"good.{suffix}") == GuardConfig(
        nudge_threshold=1.5, redact=True, weights={"TYPE_I_STUTTER": 1.0}, tools={"job_status": ToolPolicy(poll=True)}
    )


def test_yml_and_a_path_as_text_will_do(tmp_path: Path) -> None:
    file = tmp_path / "guard.yml"
    file.write_text("decay: 0.25\n", encoding="utf-8")
    assert GuardConfig.from_file(str(file)).decay == 0.25


@pytest.mark.parametrize("name, text", [("guard.json", '{"decay": 0.25}'), ("guard.toml", "decay = 0.25")])
def test_the_mark_that_windows_editors_write_is_no_content(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert GuardConfig.from_file(file).decay == 0.25


def test_a_file_that_is_no_utf8_says_so(tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_bytes("decay = 0.25".encode("utf-16"))
    with pytest.raises(ConfigError, match=r"guard\.toml: is not UTF-8 text$"):
        GuardConfig.from_file(file)


def test_a_file_that_is_missing_or_of_unknown_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"guard\.json: cannot be read: No such file"):
        GuardConfig.from_file(tmp_path / "guard.json")
    ini = tmp_path / "guard.ini"
    ini.write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"guard\.ini: unknown suffix '\.ini'; use \.json, \.toml, \.yaml or \.yml"):
        GuardConfig.from_file(ini)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "guard.json"
    file.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(ConfigError, match=r"guard\.json: "):
        GuardConfig.from_file(file)


# --- keyword arguments and mappings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values, message",
    [
        ({"nudge_treshold": 1}, r"unknown key 'nudge_treshold' \(did you mean 'nudge_threshold'\?\)"),
        ({"tools": {"Send": {}, "send": {}}}, r"tools\.send: given twice, as 'Send' too"),
        ({"open_span_ttl_s": 1e300}, r"open_span_ttl_s: .*at most"),
        ({"qqq": 1}, r"unknown key 'qqq'$"),
        ({"decay": -0.1}, r"decay: .*, got -0\.1"),
        ({"history_steps": 3}, r"history_steps: .*12, got 3"),
        ({"tools": [1]}, r"tools: .*, got \[1\]"),
        ({"required_actions": "read, write"}, r"required_actions: expected a list, got 'read, write'"),
        ({"quality_evaluations": "a,b"}, r"quality_evaluations: expected a list, got 'a,b'"),
        ({"required_actions": 7}, r"required_actions: expected a list, got 7"),
        ({"budgets": {"scope": "day", "usd": 1}}, r"budgets: expected a list, got \{'scope'"),
        ({"dialects": "crewai"}, r"dialects: expected a list, got 'crewai'"),
        ({"max_score": 2.5}, r"nudge_threshold <= stop_threshold <= max_score must hold, got 2\.0 / 3\.0 / 2\.5"),
    ],
)
def test_keyword_arguments_are_checked(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GuardConfig(**values)


VARIABLES = {
    ("MODE", "Observe"): "expected 'enforce', 'nudge' or 'observe', got 'Observe'",
    ("HISTORY_STEPS", "12.5"): "expected a whole number, got 12.5",
    ("IDLE_TTL_S", "1h"): "expected a number, got '1h'",
    ("REQUIRED_ACTIONS", "a,b"): "expected a list, got 'a,b'; a variable has it as JSON",
    ("TOOLS", "{'search': {}}"): "expected a mapping, got \"{'search': {}}\"; a variable has it as JSON",
    ("TOOLS", '{"search": {"pol": true}}'): "unknown key 'search.pol' (did you mean 'poll'?)",
    ("BUDGETS", '[{"scope": "day", "usd": "5 USD"}]'): "0.usd: expected a number, got '5 USD'",
    ("MODEL_PRICES", '{"small": 3}'): "small: expected a mapping, got 3",
    ("ON_INTERVENTION", "print"): "expected a function, got 'print'",
    ("COLLECTOR_TOKEN", " "): None,
}


@pytest.mark.parametrize(("key", "text"), VARIABLES)
def test_a_mistake_in_a_variable_names_the_variable(key: str, text: str) -> None:
    message = VARIABLES[key, text]
    if message is None:
        assert GuardConfig.from_env({f"TRAJECTORY_GUARD_{key}": text}) == GuardConfig()
        return
    with pytest.raises(ConfigError) as caught:
        GuardConfig.from_env({"TRAJECTORY_GUARD_DECAY": "0.5", f"TRAJECTORY_GUARD_{key}": text})
    assert str(caught.value) == f"environment variable TRAJECTORY_GUARD_{key}: {message}"


NUMBERS = [key for key, field in GuardConfig.model_fields.items() if takes_number(field.annotation)]


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-Infinity", "1e999", "true", "on"])
def test_a_variable_with_a_number_takes_no_other_value(key: str, text: str) -> None:
    """Infinity made a limit that JSON cannot hold, and ``true`` one of 1: one trajectory in memory, for example."""
    name = f"TRAJECTORY_GUARD_{key.upper()}"
    with pytest.raises(ConfigError) as caught:
        GuardConfig.from_env({name: text})
    (mistake,) = caught.value.mistakes
    assert mistake.source == f"environment variable {name}"
    assert re.fullmatch(r"expected (a|at|less|more) .*, got ('?-?(nan|inf)'?|True)", mistake.message)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"weights": {"TYPE_I_STUTTER": math.inf}}, "weights.TYPE_I_STUTTER"),
        ({"weights": {"TYPE_I_STUTTER": True}}, "weights.TYPE_I_STUTTER"),
        ({"tools": {"search": {"weight": True}}}, "tools.search.weight"),
        ({"budgets": [{"scope": "day", "tokens": True}]}, "budgets.0.tokens"),
        ({"model_prices": {"small": {"input": True, "output": 1}}}, "model_prices.small.input"),
    ],
)
def test_numbers_in_parts_are_finite_and_no_truth_values(values: Any, path: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a (finite )?number, got") as caught:
        GuardConfig(**values)
    assert [one.path for one in caught.value.mistakes] == [path]


def test_a_file_that_a_variable_names_in_vain_is_named_with_it(tmp_path: Path) -> None:
    missing, wrong = tmp_path / "missing.toml", tmp_path / "wrong.toml"
    wrong.write_text("mode = 'obs'", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^TRAJECTORY_GUARD_CONFIG: .*missing\.toml: cannot be read: No such file"):
        GuardConfig.from_env({"TRAJECTORY_GUARD_CONFIG": str(missing)})
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(wrong))}: mode: expected 'enforce'"):
        GuardConfig.from_env({"TRAJECTORY_GUARD_CONFIG": str(wrong)})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "mode = observe", "not valid TOML: Invalid value (at line 1, column 8)"),
        ("a.json", "{mode: 1}", "not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("a.yaml", "mode: observe\n  x: 1", "not valid YAML: mapping values are not allowed here: line 2, column 4"),
        ("a.toml", "[guard]\nmode = 'observe'", "unknown key 'guard' (this file has the guard's keys at its top, or in sections such as 'policy')"),
        ("a.toml", "[tool.trajectory_guard]\nmode = 'observe'", "unknown key 'tool' (this file has the guard's keys at its top, or in sections such as 'policy')"),
        ("a.yaml", "NUDGE_THRESHOLD: 2", "unknown key 'NUDGE_THRESHOLD' (did you mean 'nudge_threshold'?)"),
        ("a.yaml", "TRAJECTORY_GUARD_DECAY: 2", "unknown key 'TRAJECTORY_GUARD_DECAY' (did you mean 'decay'?)"),
        ("a.yaml", "policy: {xyz: 1}", f"unknown key 'policy.xyz'; known: {', '.join(SECTIONS['policy'])}"),
        ("a.yaml", "policy: {tools: {search: {xyz: 1}}}", "unknown key 'policy.tools.search.xyz'; known: poll, never_stop, idempotent, ignore, weight"),
        ("a.yaml", "collector: {url: 'http://localhost:8888'}", "unknown key 'collector.url' (did you mean 'collector_url'?)"),
        ("a.yaml", "tools: [search]", "tools: expected a mapping, got ['search']"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_says_what_is_meant(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        GuardConfig.from_file(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {message}"


def test_a_configuration_in_the_place_of_the_provider_says_where_it_belongs() -> None:
    with pytest.raises(TypeError, match=r"pass an SDK TracerProvider; a configuration is given as config="):
        instrument(GuardConfig())  # type: ignore[arg-type]


def test_all_mistakes_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig(decay=7, mode="x", tols={}, idle_ttl_s=0)
    reported = str(caught.value).splitlines()
    assert len(reported) == 4
    assert all(any(key in line for line in reported) for key in ("decay", "mode", "'tols'", "idle_ttl_s"))


def test_a_mapping_is_named_by_its_source_on_every_line() -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig.from_mapping({"decay": 7, "mode": "x"}, source="helm values")
    assert [line.startswith("helm values: ") for line in str(caught.value).splitlines()] == [True, True]


def test_a_long_value_is_not_repeated_at_length() -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig(mode="x" * 10_000)
    assert len(str(caught.value)) < 600


def test_mistakes_are_there_as_data() -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig.from_mapping(
            {"mode": "x", "tools": {"a": {"pol": True}}, "weights": {"TYPE_I": 1}, "decai": 1}, source="guard.toml"
        )
    weights, policy, mode, unknown = sorted(caught.value.mistakes, key=lambda one: one.path != "weights")
    assert weights.message.startswith("unknown loop type 'TYPE_I'")
    assert mode == Mistake("mode", "expected 'enforce', 'nudge' or 'observe', got 'x'", "guard.toml")
    assert policy == Mistake("tools.a.pol", "unknown key (did you mean 'poll'?)", "guard.toml")
    assert unknown == Mistake("decai", "unknown key (did you mean 'decay'?)", "guard.toml")
    assert "guard.toml: unknown key 'tools.a.pol' (did you mean 'poll'?)" in str(caught.value).splitlines()
    with pytest.raises(ConfigError) as caught:
        GuardConfig(weights={"TYPE_I_STUTTER": -1})
    assert caught.value.mistakes == (
        Mistake("weights.TYPE_I_STUTTER", "must be a number of at least 0, got -1.0", "GuardConfig"),
    )


def test_a_config_error_crosses_processes() -> None:
    error = ConfigError("it cannot be read", Mistake("decay", "too small, got 0", "guard.toml"))
    again = pickle.loads(pickle.dumps(error))
    assert again.mistakes == error.mistakes
    assert str(again) == str(error) == "it cannot be read\nguard.toml: decay: too small, got 0"


def test_a_config_error_is_a_value_error() -> None:
    assert issubclass(ConfigError, ValueError)


# --- sections ------------------------------------------------------------------------------------------------


def test_every_key_has_one_section() -> None:
    assert sorted(key for keys in SECTIONS.values() for key in keys) == sorted(GuardConfig.model_fields)
    assert not SECTIONS.keys() & GuardConfig.model_fields


def test_a_file_in_sections_says_the_same_as_a_flat_one(tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_text(
        """redact = true
        [engine]
        decay = 0.25
        weights.TYPE_I_STUTTER = 1.0
        [policy]
        nudge_threshold = 1.5
        [policy.tools.Job_Status]
        poll = true
        [gate]
        """,
        encoding="utf-8",
    )
    flat = {
        "redact": True, "decay": 0.25, "weights": {"TYPE_I_STUTTER": 1.0}, "nudge_threshold": 1.5,
        "tools": {"job_status": {"poll": True}},
    }  # fmt: skip
    assert GuardConfig.from_file(file) == GuardConfig(**flat)  # type: ignore[arg-type]
    environ = {"TRAJECTORY_GUARD_CONFIG": str(file), "TRAJECTORY_GUARD_DECAY": "0.75"}
    assert GuardConfig.from_env(environ) == GuardConfig(**{**flat, "decay": 0.75})  # type: ignore[arg-type]


def test_an_empty_section_of_yaml_has_its_defaults(tmp_path: Path) -> None:
    file = tmp_path / "guard.yaml"
    file.write_text("engine:\nlimits:\n  max_trajectories: 5\n", encoding="utf-8")
    assert GuardConfig.from_file(file) == GuardConfig(max_trajectories=5)


@pytest.mark.parametrize(
    ("values", "path", "message"),
    [
        ({"engine": {"mode": "nudge"}}, "engine.mode", "belongs in the section 'gate'"),
        ({"decay": 0.5, "engine": {"decay": 0.5}}, "engine.decay", "given twice, as 'decay' too"),
        ({"engine": {"decay": 0.5}, "decay": 0.5}, "decay", "given twice, as 'engine.decay' too"),
        ({"engine": {"decai": 0.5}}, "engine.decai", "unknown key (did you mean 'decay'?)"),
        ({"collector": {"url": "http://x"}}, "collector.url", "unknown key (did you mean 'collector_url'?)"),
        ({"engin": {"decay": 0.5}}, "engin", "unknown key (did you mean 'engine'?)"),
        ({"engine": 5}, "engine", "expected a mapping, got int"),
        ({"engine": {"decay": 7}}, "engine.decay", "expected less than 1, got 7"),
        ({"policy": {"tools": {"a": {"pol": 1}}}}, "policy.tools.a.pol", "unknown key (did you mean 'poll'?)"),
        ({"engine": {"weights": {"x": 1}}}, "engine.weights", f"unknown loop type 'x'; known: {', '.join(weights())}"),
    ],
)
def test_mistakes_in_sections_name_the_path_as_written(values: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig.from_mapping(values, source="guard.toml")
    assert caught.value.mistakes == (Mistake(path, message, "guard.toml"),)


def test_mistakes_of_sections_and_of_values_are_listed_together() -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig.from_mapping({"engine": {"mode": "nudge", "decay": 7}, "limits": 1})
    assert [one.path for one in caught.value.mistakes] == ["engine.decay", "engine.mode", "limits"]


def test_keyword_arguments_stay_flat() -> None:
    with pytest.raises(ConfigError, match="unknown key 'engine'"):
        GuardConfig(engine={"decay": 0.5})


# --- environment ---------------------------------------------------------------------------------------------


def test_every_key_can_come_from_the_environment() -> None:
    environ = {
        "TRAJECTORY_GUARD_DECAY": "0.25",
        "TRAJECTORY_GUARD_MODE": "observe",
        "TRAJECTORY_GUARD_REDACT": "yes",
        "TRAJECTORY_GUARD_TOOLS": '{"Job_Status": {"poll": true}}',
        "TRAJECTORY_GUARD_WEIGHTS": '{"TYPE_I_STUTTER": 1}',
        "OTHER": "x",
    }
    assert GuardConfig.from_env(environ) == GuardConfig(
        decay=0.25,
        mode="observe",
        redact=True,
        tools={"job_status": ToolPolicy(poll=True)},
        weights={"TYPE_I_STUTTER": 1},
    )


@pytest.mark.parametrize(
    "text, wanted",
    [("true", True), ("1", True), ("on", True), ("TRUE", True), ("off", False), ("0", False), ("no", False)],
)
def test_switches_are_read_in_the_usual_spellings(text: str, wanted: bool) -> None:
    assert GuardConfig.from_env({"TRAJECTORY_GUARD_REDACT": text}).redact is wanted


@pytest.mark.parametrize("text", ["12345", " 0123\n", "1e5", "true", "on", "[1]", '"12"', "a b"])
def test_a_variable_for_a_key_that_takes_text_is_text(text: str) -> None:
    """A token of digits is none for JSON."""
    names = ("COLLECTOR_TOKEN", "CERTIFICATE_KEY", "SPENDING_FILE", "STOP_TEXT")
    config = GuardConfig.from_env({f"TRAJECTORY_GUARD_{name}": text for name in names})
    assert config.collector_token is not None
    assert config.certificate_key is not None
    found = {config.collector_token.get_secret_value(), config.certificate_key.get_secret_value(), config.spending_file}
    assert found == {config.stop_text} == {"12" if text == '"12"' else text.strip()}


@pytest.mark.parametrize("key", ["collector_token", "certificate_key"])
def test_a_key_from_a_file_has_no_line_break_at_its_end(key: str, tmp_path: Path) -> None:
    """A mounted secret ends with one mostly: no header can hold it, and ``verify --key-file`` strips the key, too."""
    file = tmp_path / "guard.yaml"
    file.write_text(f"{key}: |\n  s3cret\n", encoding="utf-8")
    for config in (GuardConfig.from_file(file), GuardConfig(**{key: "s3cret\r\n"})):
        assert getattr(config, key).get_secret_value() == "s3cret"


@pytest.mark.parametrize("token", ["s3cret\nX-More: 1", "s3cr\u00e9t", "s3cret\x00"])
def test_a_token_that_no_header_can_hold_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GuardConfig(collector_token=token)
    assert str(caught.value) == (
        "GuardConfig: collector_token: a token must be one line of printable ASCII characters, without spaces at its ends"
    )


def test_no_message_shows_a_secret() -> None:
    for key in ("collector_token", "certificate_key"):
        with pytest.raises(ConfigError, match=f"{key}: expected text$") as caught:
            GuardConfig.from_mapping({key: 424242})
        assert "424242" not in str(caught.value)


def test_single_variables_override_the_file() -> None:
    environ = {"TRAJECTORY_GUARD_CONFIG": str(CONFIGS / "good.toml"), "TRAJECTORY_GUARD_NUDGE_THRESHOLD": "2.5"}
    config = GuardConfig.from_env(environ)
    assert (config.nudge_threshold, config.redact, config.tools) == (2.5, True, {"job_status": ToolPolicy(poll=True)})


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAJECTORY_GUARD_HISTORY_STEPS", "20")
    assert GuardConfig.from_env().history_steps == 20


def test_a_bad_variable_is_refused_with_source_key_and_value() -> None:
    with pytest.raises(ConfigError, match=r"(?i)environment.*decay.*'a lot'"):
        GuardConfig.from_env({"TRAJECTORY_GUARD_DECAY": "a lot"})


def test_an_empty_environment_gives_the_defaults() -> None:
    assert GuardConfig.from_env({}) == GuardConfig()


LISTS = [key for key, field in GuardConfig.model_fields.items() if get_origin(field.annotation) in (tuple, Mapping)]


def test_a_list_or_mapping_may_be_none_wherever_it_comes_from(tmp_path: Path) -> None:
    """The table of the README gives "none" as their default."""
    assert {"required_actions", "budgets", "dialects", "quality_evaluations", "tools", "model_prices"} <= {*LISTS}
    for key in LISTS:
        file = tmp_path / f"{key}.yaml"
        file.write_text(f"{key}:\n", encoding="utf-8")
        for config in (
            GuardConfig(**{key: None}),
            GuardConfig.from_mapping({key: None}, source="x"),
            GuardConfig.from_env({f"TRAJECTORY_GUARD_{key.upper()}": "null"}),
            GuardConfig.from_file(file),
        ):
            assert config == GuardConfig(), key


def test_none_in_the_place_of_a_number_is_still_refused() -> None:
    with pytest.raises(ConfigError, match=r"decay: .*, got None"):
        GuardConfig(decay=None)


def test_one_name_is_a_list_of_one(tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_text(
        '[record]\nrequired_actions = "write_file"\n[quality]\nquality_evaluations = "Relevance"\n', encoding="utf-8"
    )
    for config in (
        GuardConfig(required_actions="write_file", quality_evaluations="Relevance"),
        GuardConfig.from_file(file),
        GuardConfig.from_env(
            {"TRAJECTORY_GUARD_REQUIRED_ACTIONS": "write_file", "TRAJECTORY_GUARD_QUALITY_EVALUATIONS": "Relevance"}
        ),
    ):
        assert (config.required_actions, config.quality_evaluations) == (("write_file",), ("Relevance",))
        assert config.cursor


# --- values --------------------------------------------------------------------------------------------------


def test_weights_left_out_keep_their_default() -> None:
    assert dict(GuardConfig(weights={"TYPE_I_STUTTER": 0}).weights) == {**weights(), "TYPE_I_STUTTER": 0}


def test_tools_are_found_whatever_their_case() -> None:
    config = GuardConfig(tools={"Job_Status": {"poll": True}})
    assert config.tools == {"job_status": ToolPolicy(poll=True)}
    assert config.engine_settings().tool("JOB_STATUS") == ToolSettings(poll=True)
    assert config.engine_settings().tool("other") is None


def test_a_configuration_cannot_be_changed() -> None:
    config = GuardConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.decay = 0.1  # type: ignore[misc]


WITH_MAPPINGS = GuardConfig(
    weights={"TYPE_I_STUTTER": 1.0},
    tools={"job_status": {"poll": True}},
    model_prices={"small": {"input": 1, "output": 2}},
)


@pytest.mark.parametrize("key", ["weights", "tools", "model_prices"])
@pytest.mark.parametrize("config", [GuardConfig(), WITH_MAPPINGS], ids=["defaults", "given"])
@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.__setitem__("x", 1),
        lambda values: values.__delitem__("x"),
        lambda values: values.__ior__({"x": 1}),
        lambda values: values.update(x=1),
        lambda values: values.setdefault("x", 1),
        lambda values: values.pop("x", None),
        lambda values: values.popitem(),
        lambda values: values.clear(),
    ],
)
def test_a_mapping_of_a_configuration_cannot_be_changed(
    change: Callable[[Any], Any], config: GuardConfig, key: str
) -> None:
    before = dict(getattr(config, key))
    with pytest.raises(TypeError, match="a configuration is frozen"):
        change(getattr(config, key))
    assert getattr(config, key) == before


@pytest.mark.parametrize(
    "copied",
    [
        lambda config: pickle.loads(pickle.dumps(config)),
        copy.copy,
        copy.deepcopy,
        lambda config: config.model_copy(deep=True),
        lambda config: GuardConfig(**config.model_dump()),
        lambda config: GuardConfig(**json.loads(config.model_dump_json())),
        lambda config: GuardConfig.from_mapping(dict(config)),
        lambda config: config.with_gate_keys(GuardConfig()),
    ],
)
def test_a_copy_of_a_configuration_is_equal_and_as_frozen(copied: Callable[[GuardConfig], GuardConfig]) -> None:
    config = copied(WITH_MAPPINGS)
    assert config == WITH_MAPPINGS
    with pytest.raises(TypeError, match="a configuration is frozen"):
        config.tools["x"] = ToolPolicy()  # type: ignore[index]


def test_a_dumped_configuration_has_plain_mappings() -> None:
    dumped = WITH_MAPPINGS.model_dump()
    assert {type(dumped[key]) for key in ("weights", "tools", "model_prices")} == {dict}


def test_a_configuration_is_no_settings_of_the_engine() -> None:
    for settings in (GuardConfig(), {}, ToolSettings()):
        with pytest.raises(TypeError, match=r"EngineSettings.*GuardConfig\.engine_settings\(\)"):
            Engine(settings)  # type: ignore[arg-type]


def test_defaults_are_those_of_the_design() -> None:
    config = GuardConfig()
    assert (config.nudge_threshold, config.stop_threshold, config.max_score, config.decay) == (2.0, 3.0, 5.0, 0.5)


def test_defaults_of_the_engine_are_those_of_the_configuration() -> None:
    assert GuardConfig().engine_settings() == EngineSettings()
    assert ToolSettings() == ToolSettings(**ToolPolicy().model_dump())


def test_the_engine_is_set_by_every_key_that_it_has() -> None:
    values: dict[str, Any] = {
        "nudge_threshold": 1.0, "stop_threshold": 1.5, "max_score": 4.0, "decay": 0.25, "history_steps": 16,
        "stop_patience": 4, "renudge": 5, "max_nudges": 9, "max_polls": 6, "max_wait_s": 7.0, "max_understood_chars": 512,
        "slow_gap_s": 8.0, "poll_patience": 9, "redact": True, "weights": {**weights(), "TYPE_I_STUTTER": 1.0},
        "certificate_key": "hush",
    }  # fmt: skip
    given = GuardConfig(**values, mode="nudge", tools={"Search": {"ignore": True, "weight": 0.5}}).engine_settings()  # type: ignore[dict-item]
    expected = EngineSettings(**values, may_stop=False, tools={"search": ToolSettings(ignore=True, weight=0.5)})
    assert given == expected
    assert all(getattr(given, one.name) != getattr(EngineSettings(), one.name) for one in fields(EngineSettings))


@pytest.mark.parametrize(
    ("values", "path", "message"),
    [
        ({"weights": {"TYPE_I": 1.0}}, "weights", "unknown loop type 'TYPE_I'"),
        ({"weights": {"TYPE_I_STUTTER": -1.0}}, "weights.TYPE_I_STUTTER", "must be a number of at least 0, got -1.0"),
        ({"max_score": 2.5}, "thresholds", "must hold, got 2.0 / 3.0 / 2.5"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        EngineSettings(**values)
    assert caught.value.path == path
    assert message in caught.value.message


def test_every_key_is_explained_in_the_source() -> None:
    package = Path(DATA).parent.parent / "processor" / "trajectory_guard"
    files = ("config/guard_config.py", "config/tool_policy.py", "config/cursor.py", "quality/settings.py")
    source = "".join((package / name).read_text(encoding="utf-8") for name in files)
    for name in (*GuardConfig.model_fields, *ToolPolicy.model_fields):
        after = source.split(f"    {name}: ", 1)[1].split("\n", 2)
        assert after[1].strip().startswith('"""'), name


@pytest.mark.parametrize("name", ["MODE", "DECAY", "COLLECTOR_URL", "SPENDING_FILE", "TOOLS", "CONFIG"])
def test_an_empty_variable_counts_as_not_set(name: str) -> None:
    """Compose files and charts pass on variables that nobody has set as empty ones."""
    assert GuardConfig.from_env({f"TRAJECTORY_GUARD_{name}": ""}) == GuardConfig()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("NUDGE_TRESHOLD", " (did you mean 'TRAJECTORY_GUARD_NUDGE_THRESHOLD'?)"),
        ("DISABLE", " (did you mean 'TRAJECTORY_GUARD_DISABLED'?)"),
        ("CONFIGS", " (did you mean 'TRAJECTORY_GUARD_CONFIG'?)"),
        ("nudge_threshold", ""),
        ("XQZ", ""),
    ],
)
def test_a_variable_that_nothing_reads_is_logged(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(f"TRAJECTORY_GUARD_{name}", "2.9")

    assert GuardConfig.from_env() == GuardConfig()

    (problem,) = [record for record in caplog.records if name in record.getMessage()]
    assert problem.levelname == "WARNING"
    assert f"TRAJECTORY_GUARD_{name} is no setting of the guard and has no effect" in problem.getMessage()
    assert hint in problem.getMessage()


def test_no_variable_that_is_read_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"TRAJECTORY_GUARD_{key.upper()}" for key in (*GuardConfig.model_fields, "config", "disabled")]

    assert unknown_variables(dict.fromkeys([*names, "OTHER_NUDGE_TRESHOLD"], "x")) == []


def test_an_unknown_loop_type_without_a_near_one_names_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown loop type 'I'; known: TYPE_I_STUTTER, TYPE_II_INSANITY, .*MONOLOGUE"
    ):
        GuardConfig(weights={"I": 0})


def test_a_mistake_in_a_variable_does_not_stop_a_program_whose_guard_is_disabled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    monkeypatch.setenv("TRAJECTORY_GUARD_MODE", "foo")
    monkeypatch.setenv("TRAJECTORY_GUARD_DISABLED", "true")
    assert instrument(TracerProvider(shutdown_on_exit=False)).config == GuardConfig()
    assert "as the guard is switched off: environment variable TRAJECTORY_GUARD_MODE: expected" in caplog.text


def test_a_switch_that_says_neither_yes_nor_no_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime, "_process", runtime.Process())
    monkeypatch.setenv("TRAJECTORY_GUARD_DISABLED", "maybe")
    runtime.shared_board()
    assert "TRAJECTORY_GUARD_DISABLED: expected true or false, got 'maybe'; the guard stays on" in caplog.text


@pytest.mark.parametrize("url", ["http://", "https:///x", "http://:8888", "http://host:0", "http://host:99999", "http://ho st", "http://host?a=b", "http://[::1", "http://ann:p4ss@localhost:1"])  # fmt: skip
def test_the_url_of_a_collector_has_to_name_a_host(url: str) -> None:
    with pytest.raises(ConfigError, match=r"collector_url: .*http://localhost:8888"):
        GuardConfig(collector_url=url)


@pytest.mark.parametrize("key", ["certificate_key", "collector_token"])
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_secret_is_a_mistake(key: str, value: str) -> None:
    """Certificates would be unsigned although a key is configured."""
    with pytest.raises(ConfigError, match=f"{key}: must not be empty"):
        GuardConfig.from_mapping({key: value})
    assert getattr(GuardConfig.from_env({f"TRAJECTORY_GUARD_{key.upper()}": value}), key) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ToolPolicy(pol=True), "ToolPolicy: unknown key 'pol' (did you mean 'poll'?)"),
        (lambda: ToolPolicy(weight=11), "ToolPolicy: weight: expected at most 10, got 11"),
        (
            lambda: BudgetSettings(scope="user", usd=1),
            "BudgetSettings: scope: expected 'trajectory', 'agent', 'service' or 'day', got 'user'",
        ),
        (lambda: BudgetSettings(scope="day"), "BudgetSettings: give either 'usd' or 'tokens'"),
        (
            lambda: ModelPrice(inputs=3, output=1),
            "ModelPrice: input: required\nModelPrice: unknown key 'inputs' (did you mean 'input'?)",
        ),
        (
            lambda: GuardConfig("guard.toml"),
            "GuardConfig takes its keys by name, got str; GuardConfig.from_file(path) reads a file, "
            "GuardConfig.from_mapping(values) takes a mapping",
        ),
        (
            lambda: GuardConfig.from_mapping("guard.toml"),
            "configuration: expected a mapping, got str; GuardConfig.from_file(path) reads a file",
        ),
    ],
)
def test_a_mistake_in_a_part_or_in_the_way_of_giving_it_is_told_as_in_a_configuration(
    make: Callable[[], Any], message: str
) -> None:
    """Found: the text of pydantic, with an address of its documentation, or Python's on positional arguments."""
    with pytest.raises(ConfigError) as raised:
        make()
    assert str(raised.value) == message


def test_a_part_within_a_configuration_has_its_whole_path_in_a_mistake() -> None:
    with pytest.raises(ConfigError) as raised:
        GuardConfig(tools={"a": {"pol": True}}, budgets=[{"scope": "user", "usd": 1}])  # type: ignore[typeddict-item]
    assert "'tools.a.pol' (did you mean 'poll'?)" in str(raised.value)
    assert "budgets.0.scope: expected 'trajectory'" in str(raised.value)
