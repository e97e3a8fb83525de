"""Writes everything that is generated into the folder above: ``make dashboards``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from dashboards.generator.collector import collector
from dashboards.generator.fleet import fleet
from dashboards.generator.rules import grafana_rules, prometheus_rules
from dashboards.generator.spending import spending
from dashboards.generator.trajectory import trajectory

HOME: Final = Path(__file__).parents[1]
_HEADER: Final = "# Written by `make dashboards` from dashboards/generator: change it there.\n"


class _Dumper(yaml.SafeDumper):
    """YAML as a person writes it: long texts in blocks, lists indented, no references."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def to_yaml(content: Any) -> str:
    """A generated YAML file."""
    return _HEADER + yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=130, allow_unicode=True)


def to_json(content: Any) -> str:
    """A generated JSON file."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def files() -> dict[str, str]:
    """Path below ``dashboards/`` and content of every generated file."""
    boards = {"fleet": fleet(), "trajectory": trajectory(), "collector": collector(), "spending": spending()}
    return {
        **{f"grafana/dashboards/{name}.json": to_json(board) for name, board in boards.items()},
        "grafana/provisioning/alerting/rules.yaml": to_yaml(grafana_rules(list(boards.values()))),
        "prometheus/rules.yml": to_yaml(prometheus_rules()),
    }


def main() -> None:
    """Write the files."""
    for name, content in files().items():
        (HOME / name).parent.mkdir(parents=True, exist_ok=True)
        (HOME / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
