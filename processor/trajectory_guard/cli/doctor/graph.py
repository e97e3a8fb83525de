"""Doctor findings on a graph: tool calls that can be reached without a gate."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

from trajectory_guard.cli.findings import Finding


class GraphSpecError(ValueError):
    """``--graph`` names nothing that can be examined. The message names the module or attribute."""


def graph_findings(spec: str) -> list[Finding]:
    """Findings on the graph that ``spec`` names, as in ``my_app.agent:graph``; a single ``ok`` if it is guarded.

    The module is imported as the application would import it, from the working directory too; its output goes to
    standard error.

    Raises:
        GraphSpecError: no such module or attribute, an import that fails, or an object that is no graph.
    """
    graph = load_graph(spec)
    try:
        problems = check(graph)
    except Exception as error:
        raise GraphSpecError(f"--graph {spec}: {type(error).__name__}: {error}") from None
    if not problems:
        return [Finding("ok", "graph", spec, "Every tool call of the graph passes a gate.")]
    return [Finding("problem", "graph", spec, message) for message in problems]


def check(graph: Any) -> list[str]:
    """Messages of ``gates.graph_check`` on a graph, one sentence each; empty if it is guarded."""
    module = importlib.import_module("trajectory_guard.gates.graph_check")
    return [str(message) for message in module.check_graph(graph)]


def load_graph(spec: str) -> Any:
    """The object that ``module:attribute`` names; dots in the attribute lead on. Raises ``GraphSpecError``."""
    module_name, colon, path = spec.partition(":")
    if not (module_name and colon and path):
        raise GraphSpecError(f"--graph {spec}: expected MODULE:ATTRIBUTE, as in my_app.agent:graph")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found: Any = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the application's own code runs here, and may even exit
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise GraphSpecError(f"--graph {spec}: importing {module_name} failed: {reason}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise GraphSpecError(f"--graph {spec}: {getattr(found, '__name__', module_name)} has no attribute {name!r}")
        found = getattr(found, name)
    return found
