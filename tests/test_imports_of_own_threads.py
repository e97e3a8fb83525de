"""Libraries that other libraries look up in ``sys.modules``: no thread of the guard may be the one that imports them."""

from __future__ import annotations

import subprocess
import sys

import pytest

WATCHED = ("httpx", "httpx2", "numpy", "PIL.Image")
PROGRAM = """
import sys, threading
from opentelemetry.sdk.trace import TracerProvider

half, ends = set(), threading.Event()

def watch():  # as a client of a model does before each request
    while not ends.wait(0.0002):
        for name in WATCHED:
            module = sys.modules.get(name)
            if module is not None and getattr(module.__spec__, "_initializing", False):
                half.add(name)

from trajectory_guard.config import GuardConfig
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.runtime import _settler_of
from trajectory_guard.board.store import FlagBoard

SET_UP

threading.Thread(target=watch, daemon=True).start()
WORK
ends.set()
print(sorted(half), LOADED in sys.modules)
"""
PRICES = (
    """
board = FlagBoard(GuardConfig())
provider = TracerProvider()
provider.add_span_processor(TrajectoryGuardProcessor(board=board))
""",
    """
attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 9}
provider.get_tracer("t").start_span("chat gpt-4o", attributes=attributes).end()
board.prices.wait(["gpt-4o"], 60.0)
""",
    "genai_prices",
)
SCORES = (
    """
from trajectory_guard.integrations.langfuse.client import Connection
from trajectory_guard.integrations.langfuse.scores import LangfuseScore
from trajectory_guard.integrations.langfuse.sender import ScoreSender

sender = ScoreSender(Connection("http://127.0.0.1:9", "pk", "sk"))
""",
    """
sender.put([LangfuseScore("id", "loop_detected", 1.0, "BOOLEAN", 1.7e9, "a" * 32, None, "", {})])
for _ in range(6_000):
    if any(sender.counts.values()):
        break
    ends.wait(0.01)
sender.stop(0.0)
""",
    "langfuse.api",
)
MODEL = (
    """
import pathlib, tempfile
from trajectory_guard.semantic.model_files import _TOKENIZER_FILES, ONNX_FILES

folder = tempfile.mkdtemp()
for name in (ONNX_FILES[0], *_TOKENIZER_FILES):
    pathlib.Path(folder, name).write_text("{}")
settler = _settler_of(GuardConfig(model_path=folder), FlagBoard(GuardConfig()))
""",
    """
for _ in range(6_000):
    if settler.state == "off":
        break
    ends.wait(0.01)
""",
    "fastembed",
)


@pytest.mark.parametrize("of", [PRICES, SCORES, MODEL], ids=["prices", "langfuse", "sentence model"])
def test_no_library_that_others_look_up_is_imported_by_a_thread_of_the_guard(of: tuple[str, str, str]) -> None:
    set_up, work, loaded = of
    program = PROGRAM.replace("SET_UP", set_up).replace("WORK", work).replace("LOADED", repr(loaded))
    done = subprocess.run(
        [sys.executable, "-c", program.replace("WATCHED", repr(WATCHED))], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "[] True\n", done.stdout + done.stderr
