"""Spans of smolagents 1.26.0 under OpenLIT 1.45.0; the model is scripted.

python -m tests.captures.smolagents_agent OUT.json
"""

# no postponed annotations: the framework reads the types of the tools

import sys

import openlit
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write


@tool
def search_orders(customer: str) -> str:
    """Search.

    Args:
        customer: whose
    """
    return f"A-1 for {customer}"


@tool
def read_config(path: str) -> str:
    """Read.

    Args:
        path: which
    """
    raise FileNotFoundError(f"no such file: {path}")


ZOE = {"customer": "Zoë"}
CONFIG = {"path": "/etc/app.yaml"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    *([(f"call_{number}", "read_config", CONFIG)] for number in range(2, 8)),
    [("call_8", "final_answer", {"answer": "done"})],
]

if __name__ == "__main__":
    exporter = record()
    openlit.init(disable_metrics=True, disabled_instrumentors=["httpx"])
    model = OpenAIServerModel("scripted-1", api_base=f"{ModelServer(ANSWERS).url}/v1", api_key="none")
    agent = ToolCallingAgent([search_orders, read_config], model, name="alice", description="Helps.", verbosity_level=0)
    print(agent.run("find the orders", max_steps=10))
    write(exporter, sys.argv[1])
