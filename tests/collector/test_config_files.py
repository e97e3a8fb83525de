"""Configuration files of the collector: merging, references, and an answer for every mistake."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.collector.backends import Certificates
from tests.helpers import DATA
from trajectory_guard.config import ConfigError, GuardConfig, ToolPolicy
from trajectory_guard_collector.config.checks import without_secrets
from trajectory_guard_collector.config.load import load_config
from trajectory_guard_collector.config.models import (
    CollectorConfig,
    Exporter,
    Flags,
    Keepalive,
    MemoryLimiter,
    Queue,
    Telemetry,
)
from trajectory_guard_collector.config.render import storage_mistakes, to_yaml, unusable_files, unusable_storage
from trajectory_guard_collector.otlp.signals import Signal

CONFIGS = DATA / "collector_config"
REPORTED = sorted(CONFIGS.glob("bad_*.txt"))
ENVIRON = {"TOKEN": "0123", "TIMEOUT": "7.5", "TENANT": "007", "LANGFUSE_SECRET_KEY": "sk-${x}$$"}


@pytest.fixture(autouse=True)
def _in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages name files as they were given."""
    monkeypatch.chdir(CONFIGS)


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None, *overrides: str) -> CollectorConfig:
    file = tmp_path / "collector.yaml"
    file.write_text(text, encoding="utf-8")
    return load_config([str(file)], environ or {}, overrides)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reported", REPORTED, ids=lambda path: path.name.removesuffix(".txt"))
def test_a_bad_file_is_refused_with_exactly_these_lines(reported: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([reported.name.removesuffix(".txt")], {})
    assert str(caught.value).splitlines() == reported.read_text(encoding="utf-8").splitlines()


def test_every_bad_file_is_tested() -> None:
    files = {path.name for path in CONFIGS.glob("bad_*") if path.suffix != ".txt"}
    assert files == {path.name.removesuffix(".txt") for path in REPORTED} | {"bad_syntax.json", "bad_syntax.toml"}


@pytest.mark.parametrize(
    "file, place", [("bad_syntax.json", "line 1 column 11"), ("bad_syntax.toml", "line 1, column")]
)
def test_bad_syntax_names_file_and_place(file: str, place: str) -> None:
    with pytest.raises(ConfigError, match=place) as caught:
        load_config([file], {})
    assert str(caught.value).startswith(f"{file}: ")


def test_a_missing_file_is_named_and_so_are_the_mistakes_in_the_others() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(["no-such.yaml", "bad_duplicate_key.yaml"], {}, ["nonsense"])
    reported = str(caught.value).splitlines()
    assert reported[0] == "no-such.yaml: cannot be read: No such file or directory"
    assert [line.split(":")[0] for line in reported[1:]] == ["bad_duplicate_key.yaml", "--set nonsense"]


def test_a_mistake_names_the_file_it_is_in(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("queue: {deadline_s: soon}\nmemory_limiter: {limit_mib: 5}\n", encoding="utf-8")
    second.write_text("memory_limiter: {limit_mib: long}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config([str(first), str(second)], {}, ["telemetry.log_level=loud"])
    places = [": ".join(line.split(": ")[:2]) for line in str(caught.value).splitlines()]
    assert places == [f"{first}: queue.deadline_s", f"{second}: memory_limiter.limit_mib", "--set: telemetry.log_level"]


@pytest.mark.parametrize(
    "text, key",
    [
        ("queue: {storage: ''}", "queue.storage"),
        ("queue: {drop_unrouted: [otlp/old]}", "queue.drop_unrouted"),
    ],
)
def test_a_queue_that_would_not_be_where_or_what_it_says_is_refused(tmp_path: Path, text: str, key: str) -> None:
    """An empty name of a directory is the working directory."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path / 'collector.yaml'}: {key}: ")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("receivers: {otlp: {auth: {bearer_tokens: '${env:EMPTY}'}}}", "receivers.otlp.auth.bearer_tokens"),
        ("receivers: {otlp: {auth: {bearer_tokens_file: '${env:EMPTY}'}}}", "receivers.otlp.auth.bearer_tokens_file"),
        ("receivers: {otlp: {auth: '${env:EMPTY}'}}", "receivers.otlp.auth"),
        ("telemetry: {tls: {cert_file: a, key_file: a, client_ca_file: '${env:EMPTY}'}}", "telemetry.tls.client_ca_file"),
        ("telemetry: {tls: '${env:EMPTY}'}", "telemetry.tls"),
        ("queue: {storage: '${env:SPACES}${env:EMPTY:-}'}", "queue.storage"),
        ("guard: {spending_file: '${env:EMPTY}'}", "guard.spending_file"),
    ],
)  # fmt: skip
def test_an_empty_variable_leaves_out_neither_authentication_nor_storage(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, {"EMPTY": "", "SPACES": " "})
    [line] = str(caught.value).splitlines()
    variable = "SPACES" if "SPACES" in text else "EMPTY"
    assert line.startswith(f"{tmp_path / 'collector.yaml'}: {key}: environment variable {variable}: empty; ")


def test_an_empty_file_behind_a_reference_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"queue.storage: file {tmp_path / 'tokens'}: empty"):
        load(tmp_path, f"queue: {{storage: '${{file:{tmp_path / 'tokens'}}}'}}")


def test_null_and_an_empty_default_leave_a_value_out(tmp_path: Path) -> None:
    text = "receivers: {otlp: {auth: {bearer_tokens: null, bearer_tokens_file: '${env:NULL}'}}}\n"
    config = load(tmp_path, text + "queue: {storage: '${env:EMPTY:-}'}", {"NULL": "null", "EMPTY": ""})
    assert not config.receivers.otlp.auth.required
    assert config.queue.storage is None


@pytest.mark.parametrize("value", ["bearer_tokens: []", "bearer_tokens_file: ''", "bearer_tokens_file: ' '"])
def test_no_tokens_at_all_are_not_authentication(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"receivers\.otlp\.auth\.bearer_tokens(_file)?: empty"):
        load(tmp_path, f"receivers: {{otlp: {{auth: {{{value}}}}}}}")


def test_an_override_without_a_value_leaves_nothing_out(tmp_path: Path) -> None:
    """As one whose value is a variable of the shell that is not set."""
    with pytest.raises(ConfigError, match=r"--set receivers.otlp.auth.bearer_tokens_file=: no value"):
        load(tmp_path, "", None, "receivers.otlp.auth.bearer_tokens_file=")


@pytest.mark.parametrize(
    "text",
    [
        "receivers: {otlp: {auth: {bearer_tokens: ['hunter2 and more']}}}",
        "receivers: {otlp: {auth: {bearer_tokens: hunter2}}}",
        "exporters: {otlphttp: {endpoint: 'http://tempo', headers: {a: \"hunter2\\n\"}}}",
        "exporters: {otlphttp: {endpoint: 'http://tempo', headers: hunter2}}",
        "exporters: {langfuse: {public_key: [hunter2]}}",
        "exporters: {langfuse: {public_key: a, secret_keys: hunter2}}",
        "exporters: {otlp: {endpoint: 'ftp://me:hunter2@tempo:4317'}}",
        "exporters: {otlp: {endpoint: 'https://tempo:4317?key=hunter2'}}",
        "exporters: {otlphttp: {endpoint: 'https://tempo/v1/traces?key=hunter2'}}",
        "exporters: {langfuse: {endpoint: 'https://me:hunter2@langfuse', public_key: a, secret_key: b}}",
        "guard: {collector_token: hunter2}",
    ],
)
def test_no_message_tells_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "exporter, key",
    [({"endpoint": "tempo:4317", "timeout_s": float("nan")}, "timeout_s"), ({"endpoint": "tempo:0"}, "endpoint")],
)
def test_mistakes_are_found_without_files_too(exporter: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        CollectorConfig(exporters={"otlp": exporter})  # type: ignore[dict-item]


# --- what is accepted ------------------------------------------------------------------------------------------------


def test_no_file_gives_the_defaults() -> None:
    config = load_config([], {})
    assert config == CollectorConfig()
    assert list(config.exporters) == ["debug"]
    assert config.receivers.otlp.protocols.grpc is not None
    assert config.receivers.otlp.protocols.grpc.endpoint == "localhost:4317"


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "# nothing yet\n") == CollectorConfig()


def test_a_good_file_is_read() -> None:
    config = load_config(["good.yaml"], ENVIRON)
    protocols = config.receivers.otlp.protocols
    assert protocols.grpc is not None
    assert protocols.grpc.tls is not None
    assert protocols.grpc.tls.client_ca_file == "clients.pem"
    assert protocols.http is not None, "a protocol is on once its key is there"
    assert (config.guard.mode, config.guard.weights["TYPE_III_PHANTOM"]) == ("observe", 0.0)
    assert config.exporters["langfuse"].signals == (Signal.TRACES,)
    assert config.telemetry.endpoint is None


def test_references_become_what_their_key_wants() -> None:
    config = load_config(["good.yaml"], ENVIRON)
    tempo = config.exporters["otlp/tempo"]
    assert (tempo.endpoint, tempo.timeout_s) == ("tempo:4317", 7.5)
    assert tempo.headers["x-scope-orgid"].get_secret_value() == "007", "text stays text"
    assert config.receivers.otlp.auth.fixed == ("0123",)
    assert config.queue.storage is None, "an empty variable is no directory"
    assert config.queue.fsync is False
    secret = config.exporters["langfuse"].secret_key
    assert secret is not None
    assert secret.get_secret_value() == "sk-${x}$$", "what a variable holds is not looked into"


def test_a_variable_can_hold_a_list_or_a_section(tmp_path: Path) -> None:
    text = "receivers: {otlp: {protocols: {http: {cors: {allowed_origins: '${env:ORIGINS}'}}}}}\nqueue: ${env:QUEUE}\n"
    config = load(tmp_path, text, {"ORIGINS": "[https://a, https://b]", "QUEUE": "{deadline_s: 3}"})
    assert config.receivers.otlp.protocols.http is not None
    assert config.receivers.otlp.protocols.http.cors.allowed_origins == ("https://a", "https://b")
    assert config.queue.deadline_s == 3.0


def test_a_reference_to_a_file_gives_its_text(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sk-1\n", encoding="utf-8")
    keys = f"exporters: {{langfuse: {{public_key: pk, secret_key: '${{file:{tmp_path}/secret}}'}}}}"
    secret = load(tmp_path, keys).exporters["langfuse"].secret_key
    assert secret is not None
    assert secret.get_secret_value() == "sk-1"


def test_a_reference_to_a_device_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("queue.storage: /dev/zero: larger than 1 MiB")):
        load(tmp_path, "queue: {storage: '${file:/dev/zero}'}")
    auth = {"bearer_tokens_file": "/dev/zero"}
    config = CollectorConfig.model_validate({"receivers": {"otlp": {"auth": auth}}})
    assert unusable_files(config) == ["receivers.otlp.auth.bearer_tokens_file: /dev/zero: larger than 1 MiB"]


def test_many_keys_of_which_one_is_there_twice_are_read_in_a_moment(tmp_path: Path) -> None:
    file = tmp_path / "collector.json"
    file.write_text(json.dumps(dict.fromkeys(map(str, range(50_000))))[:-1] + ', "7": 1}', encoding="utf-8")
    started = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_config([str(file)], {})
    assert str(caught.value) == f"{file}: key '7' is there twice"
    assert time.process_time() - started < 5.0, "comparing all with all takes minutes"


@pytest.mark.parametrize("key", ["shutdown_timeout_s", "exporters.otlphttp.timeout_s", "queue.max_size_mib"])
def test_numbers_that_no_timer_or_library_takes_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: expected at most 2147483647, got "):
        load(tmp_path, "exporters: {otlphttp: {endpoint: 'http://tempo'}}", None, f"{key}=1e300")


@pytest.mark.parametrize(
    "written, read",
    [("a$$b", "a$b"), ("$$${env:X}", "$x"), ("$5 $x", "$5 $x"), ("$${env:X}", "${env:X}"), ("${env:X}${env:X}", "xx"),
     ("${env:NO:-}", ""), ("${env:NO:-a:-b}", "a:-b"), ("${env:X:-default}", "x")],
)  # fmt: skip
def test_dollar_signs_and_defaults(tmp_path: Path, written: str, read: str) -> None:
    text = yaml.safe_dump({"exporters": {"otlphttp": {"endpoint": "http://tempo", "headers": {"a": written}}}})
    headers = load(tmp_path, text, {"X": "x"}).exporters["otlphttp"].headers
    assert headers["a"].get_secret_value() == read


def test_later_files_win_key_by_key() -> None:
    config = load_config(["good.yaml", "good_overlay.yaml"], ENVIRON)
    grpc = config.receivers.otlp.protocols.grpc
    assert grpc is not None
    assert grpc.tls is not None
    assert grpc.endpoint == "0.0.0.0:14317"
    assert (config.exporters["otlp/tempo"].signals, config.exporters["otlp/tempo"].timeout_s) == ((Signal.TRACES,), 7.5)
    policy = config.guard.tools["job_status"]
    assert (policy.poll, policy.weight) == (True, 0.5)


def test_the_guard_can_be_written_in_sections(tmp_path: Path) -> None:
    file = tmp_path / "guard.yaml"
    file.write_text(
        "exporters: {debug: }\nguard:\n  engine:\n    decay: ${env:DECAY}\n  policy: {tools: {a: {poll: true}}}\n"
        "  limits:\n",
        encoding="utf-8",
    )
    guard = load_config([str(file)], {"DECAY": "0.25"}, ["guard.gate.mode=nudge"]).guard
    assert guard == GuardConfig(decay=0.25, tools={"a": ToolPolicy(poll=True)}, mode="nudge")
    file.write_text("exporters: {debug: }\nguard:\n  engine: {mode: nudge}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config([str(file)], {})
    assert str(caught.value) == f"{file}: guard.engine.mode: belongs in the section 'gate'"


def test_overrides_win_over_files() -> None:
    config = load_config(
        ["good.yaml"],
        ENVIRON,
        ["exporters.otlp/tempo.timeout_s=9", "exporters.otlp/tempo.headers.x-scope-orgid=42", "guard.redact=true",
         "telemetry.endpoint=null", "exporters.debug.signals=[traces, logs]"],
    )  # fmt: skip
    tempo = config.exporters["otlp/tempo"]
    assert (tempo.timeout_s, tempo.headers["x-scope-orgid"].get_secret_value()) == (9.0, "42")
    assert config.guard.redact is True
    assert config.telemetry.endpoint is None
    assert config.exporters["debug"].signals == (Signal.TRACES, Signal.LOGS)


def test_json_and_toml_say_the_same(tmp_path: Path) -> None:
    json, toml = tmp_path / "a.json", tmp_path / "a.toml"
    json.write_text('{"queue": {"deadline_s": 3}, "guard": {"decay": 0.25}}', encoding="utf-8")
    toml.write_text("queue.deadline_s = 3\n[guard]\ndecay = 0.25\n", encoding="utf-8")
    assert load_config([str(json)], {}) == load_config([str(toml)], {})
    assert load_config([str(json)], {}).guard.decay == 0.25


def test_ports_may_be_equal_on_different_hosts_and_if_the_system_chooses() -> None:
    for first, second in (("127.0.0.1:4317", "10.0.0.1:4317"), ("localhost:0", "localhost:0")):
        config = CollectorConfig.model_validate(
            {"receivers": {"otlp": {"protocols": {"grpc": {"endpoint": first}, "http": {"endpoint": second}}}}}
        )
        protocols = config.receivers.otlp.protocols
        assert protocols.grpc is not None
        assert protocols.http is not None
        assert (protocols.grpc.endpoint, protocols.http.endpoint) == (first, second)


@pytest.mark.parametrize(
    "endpoint",
    ["tempo:4317", "http://tempo:4317/", "https://tempo", "dns:///tempo:4317", "[::1]:5317", "unix:/run/t"],
)
def test_forms_of_an_otlp_endpoint(endpoint: str) -> None:
    assert CollectorConfig(exporters={"otlp": Exporter(endpoint=endpoint)}).exporters["otlp"].endpoint == endpoint


@pytest.mark.parametrize("path", ["", "/", "/api/public/otel", "/api/public/otel/v1/traces/"])
def test_forms_of_a_langfuse_endpoint(path: str) -> None:
    keys = {"public_key": "pk-lf-1", "secret_key": "sk-lf-1"}
    config = CollectorConfig.model_validate({"exporters": {"langfuse": {"endpoint": f"https://host{path}", **keys}}})
    assert config.exporters["langfuse"].endpoint == f"https://host{path}"


def test_without_a_limit_the_spike_is_not_compared() -> None:
    assert MemoryLimiter(limit_mib=0, spike_limit_mib=100).spike_limit_mib == 100


# --- what is shown of it ---------------------------------------------------------------------------------------------


def test_the_printed_configuration_tells_no_secret_and_everything_else() -> None:
    config = load_config(["good.yaml"], {**ENVIRON, "TENANT": "hunter2", "TOKEN": "hunter2"})
    printed = to_yaml(config)
    assert "hunter2" not in printed
    assert "sk-" not in printed
    shown = yaml.safe_load(printed)
    assert shown["receivers"]["otlp"]["auth"]["bearer_tokens"] == ["[REDACTED]"]
    assert shown["exporters"]["otlp/tempo"]["headers"] == {"x-scope-orgid": "[REDACTED]"}
    assert shown["exporters"]["langfuse"]["secret_key"] == "[REDACTED]"
    assert shown["exporters"]["otlp/tempo"]["endpoint"] == "tempo:4317"


def test_the_printed_configuration_can_be_read_again(tmp_path: Path) -> None:
    config = CollectorConfig(
        telemetry=Telemetry(endpoint=None),
        flags=Flags(enabled=False),
        exporters={"otlp": Exporter(endpoint="tempo:4317", signals=(Signal.LOGS,)), "debug": Exporter()},
    )
    assert load(tmp_path, to_yaml(config)) == config
    assert load(tmp_path, to_yaml(CollectorConfig())) == CollectorConfig()


def test_a_protocol_that_is_off_stays_off_when_printed_and_read_again(tmp_path: Path) -> None:
    config = load(tmp_path, "receivers: {otlp: {protocols: {grpc: {endpoint: 'localhost:0'}}}}")
    assert config.receivers.otlp.protocols.http is None
    assert load(tmp_path, to_yaml(config)) == config


@pytest.mark.parametrize(
    "url, shown",
    [
        ("https://me:hunter2@tempo:4318", "https://[REDACTED]@tempo:4318"),
        ("https://tempo/a@b", "https://tempo/a@b"),
        ("https://me@x:hunter2@tempo", "https://[REDACTED]@tempo"),
        ("https://tempo/otlp?key=hunter2", "https://tempo/otlp?key=[REDACTED]"),
        ("https://tempo?hunter2&b=hunter2#top", "https://tempo?[REDACTED]&b=[REDACTED]#top"),
    ],
)
def test_secrets_in_urls_are_hidden(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
    assert shown in to_yaml(CollectorConfig(exporters={"otlphttp": Exporter(endpoint=url)}))


def test_files_that_are_named_must_be_there(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        f"""
receivers:
  otlp:
    protocols: {{grpc: {{tls: {{cert_file: {tmp_path}/server.pem, key_file: {tmp_path}/server.key}}}}}}
    auth: {{bearer_tokens_file: {tmp_path}/tokens}}
exporters: {{otlp: {{endpoint: "tempo:4317", tls: {{ca_file: {tmp_path}/ca.pem}}}}}}
""",
    )
    reason = "cannot be read: No such file or directory"
    assert unusable_files(config) == [
        f"receivers.otlp.protocols.grpc.tls.cert_file: {tmp_path}/server.pem: {reason}",
        f"receivers.otlp.protocols.grpc.tls.key_file: {tmp_path}/server.key: {reason}",
        f"receivers.otlp.auth.bearer_tokens_file: {tmp_path}/tokens: {reason}",
        f"exporters.otlp.tls.ca_file: {tmp_path}/ca.pem: {reason}",
    ]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def texts(tmp_path: Path, certificates: Certificates) -> dict[str, Path]:
    """Files that are there and are not what they should be."""
    files = {"prose": tmp_path / "prose.txt", "empty": tmp_path / "empty", "locked": tmp_path / "locked.key"}
    files["prose"].write_text("127.0.0.1 localhost\n", encoding="utf-8")
    files["empty"].write_text("\n \n", encoding="utf-8")
    lock = ["openssl", "pkey", "-in", certificates.key, "-aes128", "-passout", "pass:x", "-out", files["locked"]]
    subprocess.run(lock, check=True, capture_output=True, timeout=30)
    return files


@pytest.mark.parametrize("place", ["exporters.otlp.tls", "exporters.otlphttp.tls", "receivers.otlp.protocols.http.tls"])
@pytest.mark.parametrize(
    "cert, key, reported",
    [
        ("cert", "key", None),
        ("prose", "key", "cert_file: {cert}: holds no PEM certificate"),
        ("cert", "prose", "key_file: {key}: holds no PEM private key, or one with a password"),
        ("cert", "locked", "key_file: {key}: holds no PEM private key, or one with a password"),
        ("ca", "key", "key_file: {key}: is not the key of {cert}"),
    ],
)
def test_pairs_of_certificate_and_key_must_fit(
    certificates: Certificates, texts: dict[str, Path], place: str, cert: str, key: str, reported: str | None
) -> None:
    files = {**texts, "cert": certificates.cert, "key": certificates.key, "ca": certificates.ca}
    section: Any = {"cert_file": str(files[cert]), "key_file": str(files[key])}
    for name in reversed(place.split(".")):
        section = {name: section}
    if "exporters" in section:
        next(iter(section["exporters"].values()))["endpoint"] = "https://tempo:4317"
    expected = [f"{place}.{reported.format(cert=files[cert], key=files[key])}"] if reported else []
    assert unusable_files(CollectorConfig.model_validate(section)) == expected


@pytest.mark.parametrize("file", ["prose", "empty"])
def test_authorities_must_be_certificates(texts: dict[str, Path], certificates: Certificates, file: str) -> None:
    pair = {"cert_file": str(certificates.cert), "key_file": str(certificates.key)}
    config = CollectorConfig.model_validate({
        "receivers": {"otlp": {"protocols": {"grpc": {"tls": {**pair, "client_ca_file": str(texts[file])}}}}},
        "exporters": {
            "otlp": {"endpoint": "tempo:4317", "tls": {"ca_file": str(texts[file])}},
            "otlphttp": {"endpoint": "https://tempo:4318", "tls": {**pair, "ca_file": str(certificates.ca)}},
        },
    })  # fmt: skip
    assert unusable_files(config) == [
        f"receivers.otlp.protocols.grpc.tls.client_ca_file: {texts[file]}: holds no PEM certificate",
        f"exporters.otlp.tls.ca_file: {texts[file]}: holds no PEM certificate",
    ]


def test_a_tokens_file_must_hold_a_token(texts: dict[str, Path]) -> None:
    auth = {"bearer_tokens_file": str(texts["empty"])}
    config = CollectorConfig.model_validate({"receivers": {"otlp": {"auth": auth}}})
    assert unusable_files(config) == [f"receivers.otlp.auth.bearer_tokens_file: {texts['empty']}: no token in it"]


def test_a_line_that_is_no_token_is_named_and_a_comment_is_none(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# of the shop\nsecret\n\ntwo words\n", encoding="utf-8")
    config = CollectorConfig.model_validate({"receivers": {"otlp": {"auth": {"bearer_tokens_file": str(file)}}}})
    message = f"receivers.otlp.auth.bearer_tokens_file: {file}, line 4: a token must be printable ASCII without spaces, and not empty"
    assert unusable_files(config) == [message]


def test_the_storage_directory_is_made_for_this_user_only(tmp_path: Path) -> None:
    assert unusable_storage(CollectorConfig()) is None
    config = load(tmp_path, f"queue: {{storage: {tmp_path}/a/b}}")
    assert unusable_storage(config) is None
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("name", "reason"), [("a" * 300, "File name too long"), ("a\0b", "null byte|null character")])
def test_a_name_that_no_directory_can_have_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    config = CollectorConfig(queue=Queue(storage=f"{tmp_path}/{name}"))
    for found in (*storage_mistakes(config), unusable_storage(config)):
        assert re.fullmatch(f"queue.storage: {tmp_path}/{name}: cannot be made: .*({reason}).*", found or "")
    assert len(storage_mistakes(config)) == 1


def test_a_section_without_content_has_its_defaults(tmp_path: Path) -> None:
    config = load(
        tmp_path, "receivers:\n  otlp:\n    protocols:\n      grpc:\n        keepalive:\nexporters:\n  debug:\n"
    )
    grpc = config.receivers.otlp.protocols.grpc
    assert grpc is not None
    assert grpc.keepalive == Keepalive()


@pytest.mark.parametrize("name, text", [("c.json", '{"shutdown_timeout_s": 7}'), ("c.toml", "shutdown_timeout_s = 7")])
def test_the_mark_that_windows_editors_write_is_no_content(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_config([str(file)], {}).shutdown_timeout_s == 7


@pytest.mark.parametrize(
    "key", ["memory_limiter.check_interval_s", "trajectories.snapshot_interval_s", "trajectories.reorder_s"]
)
def test_an_interval_that_would_occupy_a_core_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: .*0\.01.*, got '1e-6'"):
        load(tmp_path, "", None, f"{key}=1e-6")
    load(tmp_path, "", None, f"{key}=0.01")


BOTH = "receivers: {otlp: {protocols: {grpc: {endpoint: 'localhost:14317'}, http: {endpoint: 'localhost:14318'}}}}"
HTTP = "receivers.otlp.protocols.http"


def protocols(config: CollectorConfig) -> tuple[bool, bool]:
    return tuple(one is not None for _, one in config.receivers.otlp.protocols)  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["later.yaml", "later.json"])
def test_null_over_a_section_with_content_leaves_it_out(tmp_path: Path, name: str) -> None:
    first, later = tmp_path / "first.yaml", tmp_path / name
    first.write_text(
        f"{BOTH}\nqueue: {{deadline_s: 3}}\nexporters: {{debug: {{timeout_s: 1}}, debug/b: {{timeout_s: 1}}}}"
    )
    later.write_text(
        '{"receivers": {"otlp": {"protocols": {"http": null}}}, "queue": null, "exporters": {"debug/b": null}}'
    )
    config = load_config([str(first), str(later)], {})
    assert protocols(config) == (True, False)
    assert config.queue == Queue()
    assert list(config.exporters) == ["debug"]
    again = load_config([str(first), str(later)], {}, [f"{HTTP}.idle_timeout_s=7"])
    assert protocols(again) == (True, True), "a later source may give it once more"
    assert again.receivers.otlp.protocols.http is not None
    assert again.receivers.otlp.protocols.http.endpoint == "localhost:4318"


@pytest.mark.parametrize("text", [BOTH, BOTH.replace("{endpoint: 'localhost:14318'}", ""), BOTH.replace("{endpoint: 'localhost:14318'}", "'${env:ON}'")])  # fmt: skip
@pytest.mark.parametrize("null", ["null", "~", "Null", "${env:NO:-}"])
def test_null_on_the_command_line_leaves_a_section_out(tmp_path: Path, text: str, null: str) -> None:
    assert protocols(load(tmp_path, text, {"ON": "{}"})) == (True, True)
    assert protocols(load(tmp_path, text, {"ON": "{}"}, f"{HTTP}={null}")) == (True, False)


def test_null_in_a_variable_leaves_a_section_out(tmp_path: Path) -> None:
    text = BOTH.replace("{endpoint: 'localhost:14318'}", "'${env:HTTP:-}'")
    assert protocols(load(tmp_path, text)) == (True, False)
    assert protocols(load(tmp_path, text, {"HTTP": "null"})) == (True, False)
    assert protocols(load(tmp_path, text, {"HTTP": "{}"})) == (True, True)


def test_null_leaves_out_no_protocol_in_silence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one of grpc and http"):
        load(tmp_path, "", None, f"{HTTP}=null")
    with pytest.raises(ConfigError, match=r"receivers\.otlp\.protocols\.htp: unknown key"):
        load(tmp_path, BOTH, None, "receivers.otlp.protocols.htp=null")


def test_the_same_empty_section_in_two_files_stays_on(tmp_path: Path) -> None:
    first, later = tmp_path / "first.yaml", tmp_path / "later.yaml"
    for file in (first, later):
        file.write_text("receivers:\n  otlp:\n    protocols:\n      grpc:\n      http:\n")
    assert protocols(load_config([str(first), str(later)], {})) == (True, True)


@pytest.mark.parametrize(
    "text", ["exporters:", "exporters: {otlphttp: {endpoint: 'http://a', headers: }}", "guard: {dialects: , tools: , engine: }",
             "queue:", "receivers: {otlp: }", "telemetry: {tls: }"]
)  # fmt: skip
def test_an_empty_section_of_any_kind_has_its_defaults(tmp_path: Path, text: str) -> None:
    config = load(tmp_path, text)
    assert config.model_copy(update={"exporters": {}}) == CollectorConfig().model_copy(update={"exporters": {}})
    assert [exporter.headers for exporter in config.exporters.values()] == [{}]
    assert (
        load(tmp_path, text, None, "exporters={debug: {verbosity: batches}}", "exporters=null").exporters
        == CollectorConfig().exporters
    )


def test_null_over_a_value_is_the_value_none(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "queue: {storage: /a}\ntelemetry: {endpoint: ':1'}",
        None,
        "queue.storage=null",
        "telemetry.endpoint=null",
        "flags.enabled=false",
    )
    assert (config.queue.storage, config.telemetry.endpoint) == (None, None)
    with pytest.raises(ConfigError, match=r"guard\.dialects"):
        load(tmp_path, "guard: {dialects: [null]}")


@pytest.mark.parametrize(
    ("kind", "endpoint"),
    [("otlphttp", "http://tempo:0"), ("otlp_http", "https://[::1]:00/otlp?a=1"), ("langfuse", "https://langfuse:0"),
     ("otlp", "http://tempo:0"), ("otlp", "dns:tempo:0"), ("otlp", "dns:///tempo:0"), ("otlp", "ipv4:10.0.0.1:0,10.0.0.2:4317"),
     ("otlp", "ipv6:[::1]:0"), ("otlp_grpc", "tempo:0")],
)  # fmt: skip
def test_no_backend_listens_on_port_0(kind: str, endpoint: str) -> None:
    keys = {"public_key": "pk", "secret_key": "sk"} if kind == "langfuse" else {}
    with pytest.raises(
        ValueError, match=rf"exporters\.{kind}\.endpoint\n  (no backend listens on port 0|expected host:port)"
    ):
        CollectorConfig.model_validate({"exporters": {kind: {"endpoint": endpoint, **keys}}})


@pytest.mark.parametrize(
    ("kind", "endpoint"),
    [("otlphttp", "http://tempo"), ("otlphttp", "http://tempo:10"), ("otlphttp", "http://tempo/a:0"), ("otlp_grpc", "dns:tempo:10"),
     ("otlp", "ipv6:[fe80::1:0]:4317"), ("otlp", "ipv6:fe80::0"), ("otlp", "unix:/run/a:0"), ("otlp", "dns:tempo")],
)  # fmt: skip
def test_other_ports_are_taken(kind: str, endpoint: str) -> None:
    assert (
        CollectorConfig.model_validate({"exporters": {kind: {"endpoint": endpoint}}}).exporters[kind].endpoint
        == endpoint
    )
