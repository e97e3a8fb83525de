"""Spans of DSPy (dspy 3.4.1) by openinference-instrumentation-dspy 0.1.48; the model is scripted.

python -m tests.captures.dspy_react OUT.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

import dspy
from openinference.instrumentation.dspy import DSPyInstrumentor

from tests.captures.model_server import ModelServer
from tests.captures.otlp_file import record, write
from tests.captures.shop import kb_search, list_files, now, read_config


def search_orders(customer: str) -> str:
    return json.dumps({"orders": [f"A-1 for {customer}"]}, ensure_ascii=False)


def fields(**values: Any) -> str:
    """An answer as DSPy asks for it."""
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in {**values, "completed": ""}.items())


def call(tool: str, arguments: dict[str, Any]) -> str:
    return fields(next_thought="next", next_tool_name=tool, next_tool_args=json.dumps(arguments, ensure_ascii=False))


ZOE = {"customer": "Zoë"}
ANSWERS = [
    call("search_orders", ZOE), call("search_orders", ZOE), call("search_orders", ZOE),
    call("read_config", {"path": "/etc/app.yaml"}), call("list_files", {"path": "/tmp"}),
    call("kb_search", {"query": "refund"}), call("now", {}), call("finish", {}),
    fields(reasoning="enough", answer="first answer"),
    call("search_orders", ZOE), call("finish", {}), fields(reasoning="enough", answer="second answer"),
]  # fmt: skip


def main(model: ModelServer) -> None:
    dspy.configure(lm=dspy.LM("openai/scripted-1", api_base=f"{model.url}/v1", api_key="none", cache=False))
    agent = dspy.ReAct(
        "question -> answer", tools=[search_orders, read_config, list_files, kb_search, now], max_iters=9
    )
    for question in ("find the orders", "search again"):
        print(agent(question=question).answer)


if __name__ == "__main__":
    exporter = record()
    DSPyInstrumentor().instrument()
    main(ModelServer([*ANSWERS]))
    write(exporter, sys.argv[1])
