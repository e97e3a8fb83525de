"""The dashboards against Grafana's own types, and their TraceQL against Grafana's own grammar. Needs npm and a registry."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.panels import BOARDS, board, filled, targets

PACKAGES = ("@grafana/schema@13.2.3", "@grafana/lezer-traceql@1.0.0", "@lezer/common", "@lezer/lr", "typescript@5.9.3")
TYPES = """
import type { Dashboard } from '@grafana/schema';
type Written<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Written<T[K]> } : T;  // enums as JSON has them
export const it: Written<Dashboard> = """
PARSE = """
import { parser } from '@grafana/lezer-traceql';
import { readFileSync } from 'node:fs';
const bad = JSON.parse(readFileSync(0, 'utf8')).filter(query => {
  let errors = 0;
  parser.parse(query).iterate({ enter(node) { errors += node.type.isError; } });
  return errors > 0;
});
console.log(JSON.stringify(bad));
"""

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Grafana's packages."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", *PACKAGES]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the registry of npm is too slow")
    if done.returncode:
        pytest.skip(f"packages cannot be installed: {done.stderr[-300:]}")
    return folder


def complaints(node: Path, dashboards: Mapping[str, Any]) -> str:
    """The TypeScript compiler's messages about dashboards."""
    for name, content in dashboards.items():
        (node / f"{name}.ts").write_text(f"{TYPES}{json.dumps(content)};\n", encoding="utf-8")
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler"]
    command = ["npx", "--no-install", "tsc", *options, *(f"{name}.ts" for name in dashboards)]
    return subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=120, check=False).stdout


def test_dashboards_have_grafana_s_types(node: Path) -> None:
    assert complaints(node, {name: board(name) for name in BOARDS}) == ""


def test_mistakes_are_found(node: Path) -> None:
    wrong = deepcopy(dict(board("fleet")))
    wrong["panels"][0]["gridPos"]["hh"] = 1
    wrong["refresh"] = 30
    found = complaints(node, {"wrong": wrong})
    assert "'\"hh\"' does not exist" in found
    assert "Type 'number' is not assignable to type 'string'" in found


def unparsed(node: Path, queries: list[str]) -> list[str]:
    (node / "parse.js").write_text(PARSE, encoding="utf-8")
    done = subprocess.run(
        ["node", "parse.js"],
        cwd=node,
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_traceql_parses(node: Path) -> None:
    queries = [filled(target["query"], service=r"(a\.b|c)", trajectory='t-1 "x"', trace="{ }")
               for name in BOARDS for _, target in targets(name, "tempo")]  # fmt: skip
    assert len(queries) >= 7
    assert unparsed(node, queries) == []
    assert unparsed(node, ["{ span.a = }", "{ span.a = 1 } | selec(span.b)"]) != []
