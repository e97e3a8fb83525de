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
    """Findings on the graph that ``spec`` names, as in ``my_app.agent:graph``, worst first.

    The module is imported as the application would import it, from the working directory too; its output goes to
    standard error. ``code`` is that of ``gates.graph_check``.

    Raises:
        GraphSpecError: no such module or attribute, an import that fails, or an object that is no graph.
    """
    graph = load_graph(spec)
    try:
        found = importlib.import_module("trajectory_guard.gates.graph_check").check_graph(graph)
    except Exception as error:
        raise GraphSpecError(f"--graph {spec}: {type(error).__name__}: {error}") from None
    for one in found:
        if one.code == "not_a_graph" and one.severity == "problem":
            raise GraphSpecError(f"--graph {spec}: {one.message}")
    return [Finding(one.severity, one.code, spec, one.message, one.fix, {"subject": one.subject}) for one in found]


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
