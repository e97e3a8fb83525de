"""Tables of the pages, written from the code: ``make docs`` fills what stands between the markers of each page.

A cell that has no source in the code, such as the meaning of a key, is prose: it is kept as the page has it. A row that
the page does not have yet gets an empty one, which ``make docs`` and the test report.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import trajectory_guard
from tests.bench.accuracy import first_looks
from tests.bench.accuracy.docs import insert
from tests.bench.accuracy.tables import Table
from trajectory_guard import telemetry
from trajectory_guard.config import SECTIONS, GuardConfig
from trajectory_guard_collector.config.models import CollectorConfig, Exporter
from trajectory_guard_collector.fleet import catalogue as fleet_catalogue
from trajectory_guard_collector.fleet.config import FleetConfig
from trajectory_guard_collector.telemetry import catalogue

ROOT: Final = Path(__file__).parents[1]
KEY_COLUMNS: Final = ("key", "default", "unit", "meaning")
METRIC_COLUMNS: Final = ("metric", "kind", "labels", "unit", "meaning", "healthy")
_UNITS: Final = {"_s": "s", "_mib": "MiB", "_percentage": "%"}
_BOTH_PROTOCOLS: Final = re.compile(r"protocols\.(grpc|http)\.tls\.")

Cells = list[str | None]
"""Cells of a row behind its name; None: prose, kept from the page."""


class Block(NamedTuple):
    """The content of a pair of markers."""

    name: str
    text: str

    def markdown(self) -> str:
        """The lines between the markers."""
        return self.text


# --- keys of configurations --------------------------------------------------------------------------------------


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """All keys of a configuration with their fields; ``guard`` is one, its own keys are in another README."""
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        if name == "exporters":
            yield from keys(Exporter, "exporters.<name>.")
        elif inner is None or inner is GuardConfig:
            yield _BOTH_PROTOCOLS.sub("protocols.*.tls.", f"{prefix}{name}"), field
        else:
            yield from keys(inner, f"{prefix}{name}.")


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model of a section, None for a value."""
    candidates = (annotation, *get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def shown(field: FieldInfo) -> str:
    """A default as the pages write it."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (int, float)):
        return f"{default:,g}"
    if isinstance(default, BaseModel):
        return "-"
    if isinstance(default, Mapping) and default:  # weights, by loop type
        return ", ".join(f"{kind.split('_')[1]} {weight:g}" for kind, weight in default.items())
    if isinstance(default, tuple) and default:
        return ", ".join(f"`{one.value if isinstance(one, Enum) else one}`" for one in default)
    return f"`{default}`" if default else "none"


def unit(key: str) -> str | None:
    """The unit in the name of a key, None if there is none: the page then has it, or the key has none."""
    return next((unit for suffix, unit in _UNITS.items() if key.endswith(suffix)), None)


def _configuration(model: type[BaseModel]) -> dict[str, Cells]:
    return {name: [shown(field), unit(name), None] for name, field in keys(model)}


def _guard_configuration() -> dict[str, Cells]:
    return {name: [shown(field), unit(name), None] for name, field in GuardConfig.model_fields.items()}


def _fleet_configuration() -> dict[str, Cells]:
    rows = _configuration(FleetConfig)
    del rows["guard"]  # described above the table
    return rows


# --- metrics and attributes --------------------------------------------------------------------------------------


def _metrics(metrics: Iterator[catalogue.Metric]) -> dict[str, Cells]:
    return {
        one.exposed: [
            one.kind,
            _codes(one.labels),
            one.unit,
            one.meaning,
            one.healthy,
        ]
        for one in metrics
    }


def _guard_metrics() -> dict[str, Cells]:
    return {
        one.name: [one.instrument, _codes(one.attributes), one.unit, one.meaning, None] for one in telemetry.METRICS
    }


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def _attributes() -> dict[str, Cells]:
    return {one.key: [one.type, one.meaning] for one in telemetry.ATTRIBUTES}


# --- public names ------------------------------------------------------------------------------------------------

THEMES: Final = {
    "attach and configure": "instrument uninstrument TrajectoryGuardProcessor GuardConfig ToolPolicy ConfigError "
    "Mistake",
    "gates (extra `langgraph`)": "apply_guard TrajectoryGuardNode TrajectoryGuardMiddleware guard_compiled guarded_invoke "
    "guarded_ainvoke guarded_stream guarded_astream refuse_pointless arefuse_pointless RefusalRules AgentState LoopStatus "
    "LoopDetectedError GraphShapeError Ending NudgeRole StateOf",
    "gates around nodes": "StagnationGate STAGNATION_THEOREM IntegrityGate INTEGRITY_THEOREM Embedder",
    "flags and verdicts": "shared_board FlagBoard Flag Level Verdict DetectionResult LOOP_TYPES Certainty Evidence Spent "
    "Intervention HandFlag",
    "spending": "BudgetSettings ModelPrice BudgetGate BudgetLevel BudgetExceededError Account Balance "
    "BudgetStatus BudgetState Budget BudgetText CheaperModel",
    "quality": "mean_logprob quality_of_logprob",
    "record": "Cursor Boundary EntryKind CursorReport CursorStep",
    "certificates": "Certificate Verification",
    "the engine by itself": "Engine EngineSettings ToolSettings StepRecord Outcome Usage ModelTokens TrajectoryState "
    "StateFormatError Observation SameResultRun args_hash result_hash",
    "package": "__version__",
}
_SENTENCE: Final = re.compile(r"(.+?[.:])(?:\s|$)", re.DOTALL)


def _public_names() -> dict[str, Cells]:
    return {
        name: [theme, _summary(getattr(trajectory_guard, name))]
        for theme, names in THEMES.items()
        for name in names.split()
    }


def _summary(value: object) -> str | None:
    """The first sentence of a docstring; None for a value or an alias, which have none."""
    if not isinstance(value, type) and not inspect.isfunction(value):
        return None
    first = _SENTENCE.match(" ".join((value.__doc__ or "").split("\n\n")[0].split()))
    return first[1].rstrip(".:").replace("``", "`").replace("|", "\\|") if first is not None else None


# --- pages -------------------------------------------------------------------------------------------------------


def existing(page: str, name: str) -> dict[str, list[str]]:
    """Cells of a generated table as the page has them, by the first, which is code."""
    block = page.split(f"<!-- begin generated: {name} -->\n")[1].split("<!-- end generated -->")[0]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
    return {row[0].strip("`"): row[1:] for row in rows if row and row[0].startswith("`")}


def table(page: str, name: str, columns: tuple[str, ...], rows: dict[str, Cells], *, sort: bool = False) -> Block:
    """A table with the prose of the page. ``sort``: in the order of the page, with new rows at the end.

    Raises:
        ValueError: the page has no prose for a row yet; the message names page, row and column.
    """
    before = existing(page, name)
    order = (
        [*(one for one in before if one in rows), *(one for one in rows if one not in before)] if sort else list(rows)
    )
    lines = [_line(columns), _line(["---"] * len(columns))]
    for one in order:
        kept = before.get(one, [""] * (len(columns) - 1))
        cells = [old if new is None else new for new, old in zip(rows[one], kept, strict=True)]
        if not cells[columns.index("meaning") - 1]:
            raise ValueError(f"table {name}: row {one!r} has no meaning yet; add `| `{one}` | … |` to the page")
        lines.append(_line([f"`{one}`", *cells]))
    return Block(name, "\n".join(lines))


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _sections() -> str:
    return "\n".join(f"- `{section}`: {', '.join(f'`{key}`' for key in names)}" for section, names in SECTIONS.items())


def _processor(page: str) -> list[Block]:
    return [
        Block("sections", _sections()),
        table(page, "configuration", KEY_COLUMNS, _guard_configuration(), sort=True),
        table(page, "attributes", ("attribute", "type", "meaning"), _attributes()),
        table(page, "metrics", ("metric", "instrument", "attributes", "unit", "meaning", "healthy"), _guard_metrics()),
    ]


def _collector(page: str) -> list[Block]:
    return [
        table(page, "configuration", KEY_COLUMNS, _configuration(CollectorConfig)),
        table(page, "metrics", METRIC_COLUMNS, _metrics(iter(catalogue.METRICS))),
    ]


def _interface(page: str) -> list[Block]:
    return [table(page, "names", ("name", "for", "meaning"), _public_names())]


def _fleet(page: str) -> list[Block]:
    return [
        table(page, "configuration", KEY_COLUMNS, _fleet_configuration()),
        table(page, "metrics", METRIC_COLUMNS, _metrics(iter(fleet_catalogue.METRICS))),
    ]


def _first_looks(tables: Iterable[Table]) -> list[Block]:
    return [Block(table.name, table.markdown()) for table in tables]


PAGES: Final[dict[str, Callable[[str], list[Block]]]] = {
    "processor/README.md": _processor,
    "collector/README.md": _collector,
    "docs/fleet.md": _fleet,
    "docs/interface.md": _interface,
    "docs/detection.md": lambda _: _first_looks(first_looks.summary()),
    "docs/measurements.md": lambda _: _first_looks(first_looks.details()),
}


def generated(name: str) -> str:
    """The page with its tables written anew."""
    page = (ROOT / name).read_text(encoding="utf-8")
    return insert(page, PAGES[name](page))


def main() -> None:
    """Write the pages."""
    for name in PAGES:
        (ROOT / name).write_text(generated(name), encoding="utf-8")


if __name__ == "__main__":
    main()
