"""Spans of LangChain by MLflow (mlflow 3.17.2, langchain 1.x); the model is scripted.

python -m tests.captures.mlflow_langchain OUT.json
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["MLFLOW_USE_DEFAULT_TRACER_PROVIDER"] = "false"  # the provider of the application, not one of its own
OUT = Path(sys.argv[1]).resolve()
os.chdir(tempfile.mkdtemp())  # MLflow keeps files where it runs
os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///mlflow.db"

from tests.captures.otlp_file import record, write  # noqa: E402  after the switches

exporter = record()

import mlflow  # noqa: E402
from langchain.agents import create_agent  # noqa: E402
from langchain.agents.middleware import ToolRetryMiddleware  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

from tests.captures.model_server import Answer, ModelServer  # noqa: E402
from tests.captures.shop import kb_search, list_files, now, read_config  # noqa: E402


def search_orders(customer: str) -> str:
    """Search."""
    return json.dumps({"orders": [f"A-1 for {customer}"]}, ensure_ascii=False)


ZOE = {"customer": "Zoë"}
ANSWERS: list[Answer] = [
    [("call_1", "search_orders", ZOE)],
    [("call_2", "search_orders", ZOE)],
    [("call_3", "search_orders", ZOE)],
    [("call_4", "read_config", {"path": "/etc/app.yaml"})],
    [("call_5", "list_files", {"path": "/tmp"}), ("call_6", "kb_search", {"query": "refund"})],
    [("call_7", "no_such_tool", {"a": 1})],
    [("call_8", "now", {})],
    "first answer",
    [("call_10", "search_orders", ZOE)],
    "second answer",
]


def main(model: ModelServer) -> None:
    agent = create_agent(
        ChatOpenAI(model="scripted-1", base_url=f"{model.url}/v1", api_key="none"),
        [search_orders, read_config, list_files, kb_search, now],
        name="alice",
        checkpointer=InMemorySaver(),
        middleware=[ToolRetryMiddleware(max_retries=0)],
    )
    for words in ("find the orders", "search again"):
        config = {"configurable": {"thread_id": "chat-7"}}
        print(agent.invoke({"messages": [("user", words)]}, config)["messages"][-1].content)


if __name__ == "__main__":
    mlflow.langchain.autolog()
    main(ModelServer(ANSWERS))
    write(exporter, str(OUT))
