"""Spans of Pipecat (pipecat-ai 1.14.0) by its own tracing or by openinference-instrumentation-pipecat 2.0.9; the model
is scripted.

python -m tests.captures.pipecat_agent OUT.json [openinference]
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import EndFrame, LLMMessagesAppendFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.workers.runner import WorkerRunner

from tests.captures.model_server import Answer, ModelServer
from tests.captures.otlp_file import record, write

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
    [("call_9", "search_orders", ZOE)],
    "second answer",
]
RESULTS: dict[str, Any] = {
    "search_orders": {"orders": ["A-1 for Zoë"]},
    "list_files": {"files": []},
    "kb_search": "No results found",
    "now": "noon",
    "read_config": {"error": "no such file"},
}
"""A tool that raises would leave its conversation waiting; after a result that is false the model is not called."""


async def handle(params: FunctionCallParams) -> None:
    await params.result_callback(RESULTS[params.function_name])


async def main(model: ModelServer, traced: bool) -> None:
    settings = OpenAILLMService.Settings(model="scripted-1", system_instruction="You help.")
    llm = OpenAILLMService(api_key="none", base_url=f"{model.url}/v1", settings=settings)
    for name in RESULTS:
        llm.register_function(name, handle)
    context = LLMContext(tools=ToolsSchema([FunctionSchema(name, "a tool", {}, []) for name in RESULTS]))
    pair = LLMContextAggregatorPair(context)
    worker = PipelineWorker(
        Pipeline([pair.user(), llm, pair.assistant()]),
        params=PipelineParams(enable_metrics=True, enable_usage_metrics=True),
        enable_tracing=traced,
        conversation_id="chat-7",
    )

    async def talk() -> None:
        for words, answer in (("find the orders", "first answer"), ("search again", "second answer")):
            await worker.queue_frames([LLMMessagesAppendFrame([{"role": "user", "content": words}], run_llm=True)])
            while not any(message.get("content") == answer for message in context.messages):
                await asyncio.sleep(0.05)
        await worker.queue_frames([EndFrame()])

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    talking = asyncio.create_task(talk())
    await runner.run()
    await talking


if __name__ == "__main__":
    exporter = record()
    native = "openinference" not in sys.argv[2:]
    if not native:
        from openinference.instrumentation.pipecat import PipecatInstrumentor

        PipecatInstrumentor().instrument()
    asyncio.run(main(ModelServer([*ANSWERS]), native))
    write(exporter, sys.argv[1])
