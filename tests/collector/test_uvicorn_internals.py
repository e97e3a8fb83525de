"""The internals of uvicorn that ``gateway/receivers/http_limits.py`` builds on. None of them is public API."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

ADVICE = (
    "uvicorn {version} has no {missing}, which http_limits.py uses: adapt BoundedProtocol and BoundedServer, run"
    " test_http_limits.py and tests/faults, and only then raise the upper bound of uvicorn in pyproject.toml"
)
CALLED = {
    HttpToolsProtocol: ("_unset_keepalive_if_required", "send_400_response"),
    uvicorn.Server: ("serve",),
}
OVERRIDDEN = {
    HttpToolsProtocol: (
        "connection_made", "connection_lost", "data_received", "on_message_begin", "on_headers_complete", "on_body",
        "on_message_complete", "on_response_complete", "send_400_response",
    ),
    FlowControl: ("pause_reading", "resume_reading"),
    uvicorn.Server: ("startup", "capture_signals"),
}  # fmt: skip
OF_A_PROTOCOL = (
    "connections",
    "cycle",
    "flow",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "timeout_keep_alive",
    "transport",
)
OF_A_SERVER = ("config", "server_state", "should_exit", "started")
OF_A_STATE = ("connections", "tasks")
SET_LATER = {
    HttpToolsProtocol.on_headers_complete: "self.pipeline.appendleft((",
    RequestResponseCycle.receive: "self.more_body",
    HttpToolsProtocol.on_message_begin: "self.url = ",
    uvicorn.Server.startup: "self.servers = ",
    RequestResponseCycle.__init__: "self.response_complete = ",
}
"""Attributes that an instance gets after it is made, and the method that sets them."""


def missing(names: list[str]) -> str:
    return ADVICE.format(version=uvicorn.__version__, missing=", ".join(names))


@pytest.mark.parametrize("used", [CALLED, OVERRIDDEN], ids=["called", "overridden"])
def test_methods_are_there(used: dict[type, tuple[str, ...]]) -> None:
    gone = [f"{kind.__name__}.{name}" for kind, names in used.items() for name in names if not hasattr(kind, name)]
    assert not gone, missing(gone)


async def test_attributes_are_there() -> None:
    config = uvicorn.Config(lambda: None, http=HttpToolsProtocol, ws="none", lifespan="off", log_config=None)  # type: ignore[arg-type]
    config.load()
    server = uvicorn.Server(config)
    protocol = HttpToolsProtocol(
        config=config, server_state=server.server_state, app_state={}, _loop=asyncio.get_running_loop()
    )
    used = [(protocol, OF_A_PROTOCOL), (server, OF_A_SERVER), (ServerState(), OF_A_STATE), (config, ("backlog",))]
    gone = [f"{type(one).__name__}.{name}" for one, names in used for name in names if not hasattr(one, name)]
    assert not gone, missing(gone)


def test_attributes_that_are_set_later_are_there() -> None:
    gone = [
        f"{set_by.__qualname__}: {text}" for set_by, text in SET_LATER.items() if text not in inspect.getsource(set_by)
    ]
    assert not gone, missing(gone)
