"""The tables of ``collector/README.md`` against the models and the table of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tests.helpers import TESTS, table_rows
from trajectory_guard.config import GuardConfig
from trajectory_guard_collector.config.load import load_config
from trajectory_guard_collector.config.models import CollectorConfig, Exporter
from trajectory_guard_collector.telemetry.catalogue import METRICS

README = (TESTS.parent / "collector" / "README.md").read_text(encoding="utf-8")
UNITS = {"_s": "s", "_mib": "MiB", "_percentage": "%"}
BOTH_PROTOCOLS = re.compile(r"protocols\.(grpc|http)\.tls\.")


def rows(heading: str) -> dict[str, list[str]]:
    """Cells of the tables below a heading, by the first, which is code."""
    return table_rows(README, heading)


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """All keys of a configuration with their fields; ``guard`` is one, its own keys are in another README."""
    for name, field in model.model_fields.items():
        inner = section(field.annotation)
        if name == "exporters":
            yield from keys(Exporter, "exporters.<name>.")
        elif inner is None or inner is GuardConfig:
            yield BOTH_PROTOCOLS.sub("protocols.*.tls.", f"{prefix}{name}"), field
        else:
            yield from keys(inner, f"{prefix}{name}.")


def section(annotation: Any) -> type[BaseModel] | None:
    """The model of a section, None for a value."""
    candidates = (annotation, *get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def shown(field: FieldInfo) -> str:
    """A default as the README writes it."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (int, float)):
        return f"{default:,g}"
    if isinstance(default, BaseModel):
        return "-"
    if isinstance(default, tuple) and default:
        return ", ".join(f"`{one.value if isinstance(one, Enum) else one}`" for one in default)
    return f"`{default}`" if default else "none"


def unit(key: str) -> str | None:
    """The unit a key's name tells, None if it tells none."""
    return next((unit for suffix, unit in UNITS.items() if key.endswith(suffix)), None)


KEYS = dict(keys(CollectorConfig))


def test_every_key_is_documented_and_nothing_else() -> None:
    assert list(rows("Configuration")) == list(KEYS)


def test_defaults_and_units_of_keys() -> None:
    table = rows("Configuration")
    assert {key: table[key][0] for key in KEYS} == {key: shown(field) for key, field in KEYS.items()}
    assert {key: table[key][1] for key in KEYS if unit(key)} == {key: unit(key) for key in KEYS if unit(key)}


def test_every_metric_is_documented_and_nothing_else() -> None:
    assert list(rows("Telemetry")) == [metric.exposed for metric in METRICS]


def test_kinds_labels_units_and_meanings_of_metrics() -> None:
    assert rows("Telemetry") == {
        metric.exposed: [
            metric.kind, ", ".join(f"`{label}`" for label in metric.labels) or "-", metric.unit, metric.meaning, metric.healthy,
        ]
        for metric in METRICS
    }  # fmt: skip


def examples() -> list[str]:
    """YAML of the README that configures this collector."""
    return [text for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "service:" not in text]


@pytest.mark.parametrize("text", examples())
def test_every_example_is_a_valid_configuration(text: str, tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_config([str(file)], dict.fromkeys(re.findall(r"\$\{env:(\w+)", text), "value"))


def test_there_are_examples() -> None:
    assert len(examples()) >= 3
    assert all(isinstance(yaml.safe_load(text), dict) for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
