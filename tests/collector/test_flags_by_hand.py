"""Flags that people raise and clear on a collector, over real HTTP, by the command, and at the gate of an agent."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage
from pydantic import ValidationError

from tests.collector.kit import loop, tool
from tests.collector.service_helpers import running, service_config
from tests.collector.test_flags import agent, flag, guarded, send, url
from trajectory_guard.cli.main import main
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.config.checks import ledger_mistakes
from trajectory_guard_collector.config.render import unusable_files

PEOPLE = {"auth": {"bearer_tokens": ["people"]}}
STOP = {"level": "STOP", "reason": "the order was cancelled", "actor": "maria"}


async def ask(
    collector: Collector, method: str, body: Any = None, *, token: str | None = "people", name: str = "c", **query: Any
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    async with httpx.AsyncClient(timeout=10) as client:
        content = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        return await client.request(
            method, f"{url(collector)}/v1/flags/{name}", content=content, headers=headers, params=query
        )


async def test_without_tokens_for_people_nobody_may() -> None:
    async with running() as collector:
        await send(collector, tool("a", {}, "x", at=1))
        for method in ("POST", "DELETE"):
            reply = await ask(collector, method, STOP, token=None)
            assert (reply.status_code, reply.json()["error"][:10]) == (403, "flags.auth")
        assert (await flag(collector, "c"))["level"] == "OBSERVE"


async def test_the_tokens_of_agents_read_only_and_those_of_people_do_both() -> None:
    async with running(auth={"bearer_tokens": ["agents"]}, flags=PEOPLE) as collector:
        await send(collector, tool("a", {}, "x", at=1), headers={"Authorization": "Bearer agents"})
        assert [(await ask(collector, "POST", STOP, token=one)).status_code for one in (None, "agents")] == [401, 401]
        assert [(await ask(collector, "DELETE", token=one)).status_code for one in (None, "agents")] == [401, 401]
        assert (await ask(collector, "POST", STOP)).status_code == 200
        for token, status in ((None, 401), ("agents", 200), ("people", 200)):
            assert (await ask(collector, "GET", token=token)).status_code == status


async def test_a_token_that_agents_hold_as_well_changes_nothing(tmp_path: Path) -> None:
    """Two files may come to share a token when one of them is written anew."""
    files = {name: tmp_path / name for name in ("agents", "people")}
    for name, file in files.items():
        file.write_text(f"# of {name}\n{name}\n# old\n", encoding="utf-8")
    auth, flags = ({"bearer_tokens_file": str(files[name])} for name in ("agents", "people"))
    async with running(auth=auth, flags={"auth": flags}) as collector:
        await send(collector, tool("a", {}, "x", at=1), headers={"Authorization": "Bearer agents"})
        statuses = [
            (await ask(collector, "POST", STOP, token=one)).status_code for one in ("# old", "agents", "people")
        ]
        assert statuses == [401, 401, 200]
    files["people"].write_text("agents\npeople\n", encoding="utf-8")
    config = service_config(auth=auth, flags={"auth": flags})
    message = "flags.auth: shares a token with receivers.otlp.auth: any agent that holds it could clear its own flag"
    assert unusable_files(config) == [message]
    async with running(auth=auth, flags={"auth": flags}) as collector:
        await send(collector, tool("a", {}, "x", at=1), headers={"Authorization": "Bearer agents"})
        assert [(await ask(collector, "DELETE", token=one)).status_code for one in ("agents", "people")] == [401, 200]


async def test_a_raised_flag_is_shown_until_it_was_acted_on_or_cleared(caplog: pytest.LogCaptureFixture) -> None:
    async with running(flags=PEOPLE) as collector:
        await send(collector, tool("a", {}, "x", at=1))
        raised = (await ask(collector, "POST", STOP)).json()
        assert (raised["level"], raised["rule"], raised["step"]) == ("STOP", "by_hand", 0)
        assert raised["by_hand"] == {"reason": "the order was cancelled", "actor": "maria", "ordinal": 1}
        assert raised["reason"] == "maria raised the flag by hand: the order was cancelled"
        assert (await flag(collector, "c"))["level"] == "STOP"
        assert (await flag(collector, "c", by_hand=0))["level"] == "STOP"
        assert (await flag(collector, "c", by_hand=1))["level"] == "OBSERVE"
        cleared = await ask(collector, "DELETE", {"reason": "a mistake", "actor": "maria"})
        assert (cleared.status_code, cleared.json()["level"]) == (200, "OBSERVE")
        entries = [json.loads(one.message) for one in caplog.records if "TRAJECTORY_FLAG" in one.message]
        assert [(one["event_type"][16:], one["actor"], one["reason"]) for one in entries] == [
            ("RAISED", "maria", "the order was cancelled"), ("CLEARED", "maria", "a mistake"),
        ]  # fmt: skip
        metrics = (await httpx.AsyncClient().get(f"{url(collector)}/metrics")).text
        assert 'trajectory_guard_flags_by_hand_total{trajectory_guard_flag_action="raised"} 1.0' in metrics
        assert 'trajectory_guard_flags_by_hand_total{trajectory_guard_flag_action="cleared"} 1.0' in metrics


async def test_half_of_a_surrogate_pair_in_a_reason_does_not_hide_the_flag() -> None:
    async with running(flags=PEOPLE) as collector:
        await send(collector, tool("a", {}, "x", at=1))
        reply = await ask(collector, "POST", {**STOP, "reason": "cut off: \ud83d"})
        assert (reply.status_code, reply.json()["by_hand"]["reason"]) == (200, "cut off: ?")
        assert (await flag(collector, "c"))["level"] == "STOP"


async def test_clearing_ends_what_the_engine_found_until_it_builds_up_again() -> None:
    async with running(flags=PEOPLE) as collector:
        await send(collector, *loop(5))
        assert (await flag(collector, "c"))["level"] == "STOP"
        assert (await ask(collector, "DELETE")).json()["score"] == 0.0
        await send(collector, *loop(5))  # delivered again: known
        assert (await flag(collector, "c"))["level"] == "OBSERVE"
        await send(collector, tool("z1", {"q": "other"}, "No results found", at=100))
        assert (await flag(collector, "c"))["level"] == "OBSERVE"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"level": "OBSERVE", "reason": "x"}, 400, "level: expected NUDGE or STOP"),
        ({"level": "STOP"}, 400, "reason: expected a text"),
        ({"level": "STOP", "reason": "  "}, 400, "reason: expected a text"),
        ({"level": "STOP", "reason": "x" * 2_001}, 400, "reason: expected a text"),
        ({"level": "STOP", "reason": "x", "actor": 7}, 400, "actor: expected a text"),
        ({"level": "STOP", "reason": "x", "colour": "red"}, 400, "unknown key 'colour': the body is a JSON object"),
        ({"level": "STOP", "reason": "x", "acter": "me"}, 400, "unknown key 'acter' (did you mean 'actor'?)"),
        (b"nonsense", 400, "the body is a JSON object"),
        (b"[" * 9_000, 400, "the body is a JSON object"),
        (b" " * 20_000, 400, "the body has at most"),
        (b"", 400, "the body is a JSON object"),
    ],
)
async def test_bad_requests_change_nothing(body: Any, status: int, reason: str) -> None:
    async with running(flags=PEOPLE) as collector:
        await send(collector, tool("a", {}, "x", at=1))
        reply = await ask(collector, "POST", body)
        assert (reply.status_code, reply.json()["error"][: len(reason)]) == (status, reason)
        assert (await flag(collector, "c"))["level"] == "OBSERVE"
        unknown = await ask(collector, "POST", STOP, name="nobody")
        assert unknown.status_code == 404


async def test_a_mistyped_parameter_changes_nothing() -> None:
    async with running(flags=PEOPLE) as collector:
        await send(collector, tool("a", {}, "x", at=1))
        reply = await ask(collector, "POST", STOP, **{"resorce.team": "a"})
        assert (reply.status_code, "'resorce.team'" in reply.json()["error"]) == (400, True)
        assert (await flag(collector, "c"))["level"] == "OBSERVE"


async def test_the_mode_limits_flags_by_hand() -> None:
    async with running(flags=PEOPLE, guard={"mode": "nudge"}) as collector:
        await send(collector, tool("a", {}, "x", at=1))
        reply = await ask(collector, "POST", STOP)
        assert (reply.status_code, reply.json()["error"]) == (400, "level: gates do not act on STOP with mode 'nudge'")
        assert (await ask(collector, "POST", {**STOP, "level": "nudge"})).json()["level"] == "NUDGE"


async def test_a_flag_and_its_clearing_outlive_a_restart(tmp_path: Path) -> None:
    durable = {"flags": PEOPLE, "queue": {"storage": str(tmp_path / "queue")}}
    async with running(**durable) as collector:
        await send(collector, *loop(5), tool("a", {}, "x", conversation="d", at=1))
        await ask(collector, "POST", STOP, name="d")
        await ask(collector, "DELETE")
    async with running(**durable) as collector:
        found = await flag(collector, "d")
        assert (found["level"], found["by_hand"]["actor"]) == ("STOP", "maria")
        assert (await flag(collector, "c"))["level"] == "OBSERVE"
        again = (await ask(collector, "POST", {**STOP, "level": "NUDGE"}, name="d")).json()
        assert again["by_hand"]["ordinal"] == 2


# --- the gate ------------------------------------------------------------------------------------------------


async def test_an_agent_is_stopped_by_hand_without_a_nudge() -> None:
    async with running(flags=PEOPLE) as collector:
        await send(collector, tool("a", {}, "x", conversation="shared", at=1))
        await ask(collector, "POST", STOP, name="shared")
        graph = agent(guarded(collector), rounds=6)
        config: Any = {"configurable": {"thread_id": "shared"}}
        result = await graph.ainvoke(
            {"messages": [HumanMessage("go")]}, config, output_keys=["messages", "loop_status"]
        )
        assert result["messages"][-1].content.startswith("A person has ended this run.")
        assert result["loop_status"]["stop"]["reason"] == "maria raised the flag by hand: the order was cancelled"
        assert result["loop_status"]["steps_taken"] == 1
        again = await graph.ainvoke({"messages": [HumanMessage("go")]}, config)  # the same flag stops no second run
        assert again["messages"][-1].content == "done"


async def test_an_agent_is_nudged_by_hand_once() -> None:
    async with running(flags=PEOPLE) as collector:
        await send(collector, tool("a", {}, "x", conversation="shared", at=1))
        await ask(collector, "POST", {"level": "NUDGE", "reason": "Use the archive."}, name="shared")
        graph = agent(guarded(collector), rounds=4)
        config: Any = {"configurable": {"thread_id": "shared"}}
        result = await asyncio.to_thread(graph.invoke, {"messages": [HumanMessage("go")]}, config)
        said = [message.content for message in result["messages"] if isinstance(message, HumanMessage)]
        assert said == ["go", "[Trajectory guard] A person who watches this run says:\nUse the archive."]
        assert result["messages"][-1].content == "done"


# --- the command ---------------------------------------------------------------------------------------------


async def command(*words: str) -> int:
    return await asyncio.to_thread(main, ["flag", *words])


async def test_the_command_shows_raises_and_clears(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("people\n")
    async with running(flags=PEOPLE) as collector:
        await send(collector, tool("a", {}, "x", conversation="team/7", at=1))
        where = ("team/7", "--collector", url(collector), "--token-file", str(token))
        assert await command("raise", *where, "--level", "stop", "--reason", "enough", "--actor", "maria") == 0
        assert json.loads(capsys.readouterr().out)["by_hand"]["actor"] == "maria"
        assert await command("show", *where) == 0
        assert json.loads(capsys.readouterr().out)["level"] == "STOP"
        assert await command("clear", *where) == 0
        assert json.loads(capsys.readouterr().out)["level"] == "OBSERVE"

        token.write_text("wrong")
        assert await command("raise", *where, "--reason", "enough") == 2
        assert f"401: {token}: the token is unknown; --token-file names " in capsys.readouterr().err
        assert await command("clear", *where[:3]) == 2
        assert "401: a token is needed; --token-file names a file with a token of flags.auth" in capsys.readouterr().err
        token.write_text("people")
        assert await command("clear", "nobody", *where[1:]) == 2
        assert capsys.readouterr().err == "trajectory-guard: flag clear: 404: no trajectory 'nobody' is known\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--collector", "ftp://x"), "--collector: expected http:// or https://"),
        (("--collector", "http://127.0.0.1:1"), "http://127.0.0.1:1: no answer from the collector: "),
        (("--collector", "http://127.0.0.1:1", "--token-file", "/nowhere"), "/nowhere: No such file"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flag", "show", "c", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "answers in another protocol"),  # HTTP/2, as gRPC speaks it
        (b"HTTP/1.0 404 Not Found\r\n\r\nno such page", "404: Not Found"),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>Sign in</html>", "the reply is not a flag"),
    ],
)
def test_another_server_than_the_collector_is_named(
    reply: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["flag", "show", "c", "--collector", f"http://127.0.0.1:{server.getsockname()[1]}"]) == 2
        thread.join()
    err = capsys.readouterr().err
    assert said in err
    assert "--collector is the base URL of the collector's telemetry.endpoint, such as http://localhost:8888" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "values, message",
    [
        ((None, "r"), "level: expected NUDGE or STOP, got nothing"),
        (("HALT", "r"), "level: expected NUDGE or STOP, got 'HALT'"),
        (("STOP", ""), "reason: expected a text of 1 to 2000 characters"),
        (("STOP", None), "reason: expected a text of 1 to 2000 characters"),
        (("STOP", "r", "x" * 201), "actor: expected a text of at most 200 characters"),
    ],
)
def test_a_flag_that_cannot_be_raised_names_what_is_expected(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HandFlag.of(*values)


@pytest.mark.parametrize(
    "senders, people, is_shared",
    [
        ({"bearer_tokens": ["a", "b"]}, {"bearer_tokens": ["b"]}, True),
        ({"bearer_tokens_file": "tokens"}, {"bearer_tokens_file": "tokens"}, True),
        ({"bearer_tokens": ["a"]}, {"bearer_tokens": ["b"]}, False),
        ({"bearer_tokens_file": "tokens"}, {"bearer_tokens_file": "others"}, False),
        ({}, {"bearer_tokens": ["b"]}, False),
    ],
)
def test_a_token_of_senders_may_not_clear_flags(senders: Any, people: Any, is_shared: bool) -> None:
    if is_shared:
        with pytest.raises(ValidationError, match=r"flags\.auth\n.*shares a token with receivers\.otlp\.auth"):
            service_config(auth=senders, flags={"auth": people})
    else:
        assert service_config(auth=senders, flags={"auth": people})


@pytest.mark.parametrize(
    "key, value", [("budgets", [{"scope": "day", "usd": 1}]), ("spending_file", "ledger.db"), ("track_spending", True)]
)
def test_a_stream_worker_refuses_keys_of_the_ledger_that_it_does_not_keep(key: str, value: Any) -> None:
    found = list(ledger_mistakes(GuardConfig(**{key: value})))
    assert [one.place for one in found] == [("guard", key)]
    assert not list(ledger_mistakes(GuardConfig()))


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE", "QUERY"])
@pytest.mark.parametrize("flags", [{}, PEOPLE])
async def test_another_method_is_told_all_that_flags_have(method: str, flags: dict[str, Any]) -> None:
    async with running(flags=flags) as collector:
        reply = await ask(collector, method)
        assert (reply.status_code, reply.headers["allow"]) == (405, "DELETE, GET, HEAD, POST")
        assert (await ask(collector, "HEAD")).status_code == 200
