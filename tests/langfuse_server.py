"""A stand-in for Langfuse that speaks real HTTP and is strict: traces over OTLP, and scores.

It checks what ``web/src/pages/api/public/otel/v1/traces/index.ts``, ``packages/shared/src/features/scores`` and the
rate limiter of Langfuse 4.16 check, and is stricter where a mistake would go unnoticed there: unknown keys, an
environment that would be renamed, a score whose timestamp changes.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import threading
import time
import zlib
from base64 import b64encode
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Literal, NamedTuple

import uvicorn
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PUBLIC_KEY, SECRET_KEY = "pk-lf-test", "sk-lf-test"
TRACES, SCORES = "/api/public/otel/v1/traces", "/api/public/scores"
MAX_BODY_BYTES = 1024 * 1024
MAX_TAG_CHARS = 200
TAG_KEYS = (
    "langfuse.trace.tags",
    "langfuse.tags",
    "langfuse.observation.metadata.langfuse_tags",
    "langfuse.trace.metadata.langfuse_tags",
    "ai.telemetry.metadata.tags",
    "tag.tags",
)
SESSION_KEYS = (
    "langfuse.session.id",
    "session.id",
    "gen_ai.conversation.id",
    "langfuse.observation.metadata.langfuse_session_id",
    "langfuse.trace.metadata.langfuse_session_id",
    "ai.telemetry.metadata.sessionId",
)
ENVIRONMENT_KEYS = ("langfuse.environment", "deployment.environment.name", "deployment.environment")
ENVIRONMENT = re.compile(r"(?!langfuse)[a-z0-9_-]{1,40}")
TEXTS = ("id", "traceId", "sessionId", "datasetRunId", "observationId", "comment", "queueId", "configId")
KNOWN = {*TEXTS, "name", "value", "dataType", "environment", "metadata", "source", "timestamp"}

Form = Literal["list", "single"]


class Reply(NamedTuple):
    """An answer of the script: status, headers and body, and whether the request is carried out before it is given."""

    status: int
    headers: Mapping[str, str] = {}
    carried_out: bool = False
    body: str = "{}"


def rate_limited(retry_after_s: int = 0) -> Reply:
    """429 with the headers of Langfuse's rate limiter."""
    reset = format_datetime(datetime.fromtimestamp(time.time() + retry_after_s).astimezone())
    limits = {"X-RateLimit-Limit": "30", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
    return Reply(429, {"Retry-After": str(retry_after_s), **limits})


class Trace:
    """A trace in Langfuse. Tags are never taken away."""

    def __init__(self) -> None:
        self.spans: dict[str, dict[str, Any]] = {}
        self.tags: set[str] = set()
        self.session: str | None = None
        self.environment = "default"


class Langfuse:
    """State and behaviour of the server.

    Parameters:
        form: what ``POST /api/public/scores`` takes: a list (server 4.59 and later) or a single object (before).

    Attributes:
        url: base URL.
        traces: by trace id.
        written: every score that was taken, in order; ``scores`` holds the last one of each id.
        requests: every request to the scores endpoint with the status of its answer; ``headers`` are those of the last.
        violations: what a server would have taken and a user would have regretted.
        script: answers to the next requests to the scores endpoint.
        trace_script: answers to the next exports.
    """

    def __init__(self, form: Form = "list") -> None:
        self.form = form
        self.url = ""
        self.traces: defaultdict[str, Trace] = defaultdict(Trace)
        self.written: list[dict[str, Any]] = []
        self.requests: list[tuple[int, Any]] = []
        self.headers: dict[str, str] = {}
        self.violations: list[str] = []
        self.script: deque[Reply] = deque()
        self.trace_script: deque[Reply] = deque()
        self.always: Reply | None = None
        self.keys = (PUBLIC_KEY, SECRET_KEY)
        self._changed = threading.Condition()

    # --- what tests read -------------------------------------------------------------------------------------

    @property
    def scores(self) -> dict[str, dict[str, Any]]:
        """The last score of each id."""
        return {score["id"]: score for score in self.written}

    def scores_of(self, target: str, name: str | None = None) -> list[dict[str, Any]]:
        """Scores of a trace or a session."""
        found = [one for one in self.scores.values() if target in (one.get("traceId"), one.get("sessionId"))]
        return [one for one in found if name in (None, one["name"])]

    def wait(self, holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Return once a condition on what was received holds."""
        with self._changed:
            assert self._changed.wait_for(holds, timeout_s), f"not in time; scores: {self.written}"

    # --- both endpoints --------------------------------------------------------------------------------------

    def app(self) -> Starlette:
        return Starlette(
            routes=[Route(TRACES, self._export, methods=["POST"]), Route(SCORES, self._score, methods=["POST"])]
        )

    def _unauthorized(self, request: Request) -> Response | None:
        wanted = "Basic " + b64encode(":".join(self.keys).encode()).decode()
        if request.headers.get("authorization") == wanted:
            return None
        return JSONResponse({"message": "Invalid credentials. Confirm that you've configured the correct host."}, 401)

    # --- traces ----------------------------------------------------------------------------------------------

    async def _export(self, request: Request) -> Response:
        body = await request.body()
        with self._changed:
            scripted = self.trace_script.popleft() if self.trace_script else None
            refused = self._unauthorized(request)
            if refused is None and scripted is not None and not scripted.carried_out:
                return Response(status_code=scripted.status, headers=dict(scripted.headers))
            reply = refused or self._ingest(body, request)
            self._changed.notify_all()
        return (
            Response(status_code=scripted.status, headers=dict(scripted.headers)) if scripted and not refused else reply
        )

    def _ingest(self, body: bytes, request: Request) -> Response:
        headers = request.headers
        try:
            groups = _resource_spans(body, headers.get("content-type", ""), headers.get("content-encoding"))
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        bad = [problem for group in groups for problem in _malformed(group)]
        if bad:
            return JSONResponse({"error": f"{bad[0]}. The entire export was rejected."}, 400)
        version = headers.get("x-langfuse-ingestion-version", "4")
        if not version.isdigit() or int(version) > 4:
            return JSONResponse({"error": f"Unsupported x-langfuse-ingestion-version: {version}"}, 400)
        if version != "4":
            self.violations.append(f"ingestion version {version}: shown with delay only")
        for group in groups:
            resource = _plain(group.get("resource", {}).get("attributes"))
            for scoped in group.get("scopeSpans") or []:
                for span in scoped.get("spans") or []:
                    self._take_span(span, resource)
        return JSONResponse({})

    def _take_span(self, span: dict[str, Any], resource: dict[str, Any]) -> None:
        attributes, trace = _plain(span.get("attributes")), self.traces[span["traceId"]]
        trace.spans[span["spanId"]] = attributes
        trace.tags |= set(_tags(attributes))
        trace.session = next((str(attributes[key]) for key in SESSION_KEYS if attributes.get(key)), trace.session)
        for source in (resource, attributes):
            trace.environment = next(
                (str(source[key]) for key in ENVIRONMENT_KEYS if source.get(key)), trace.environment
            )

    # --- scores ----------------------------------------------------------------------------------------------

    async def _score(self, request: Request) -> Response:
        body = await request.body()
        with self._changed:
            self.headers = dict(request.headers)
            scripted = self.script.popleft() if self.script else self.always
            refused = self._unauthorized(request)
            reply = refused
            if reply is None and (scripted is None or scripted.carried_out):
                reply = self._take(body, request)
            if scripted is not None and refused is None:
                kind = scripted.headers.get("content-type", "application/json")
                reply = Response(scripted.body, scripted.status, dict(scripted.headers), kind)
            assert reply is not None
            self.requests.append((reply.status_code, json.loads(body)))
            self._changed.notify_all()
        return reply

    def _take(self, body: bytes, request: Request) -> Response:
        if len(body) > MAX_BODY_BYTES:
            return JSONResponse({"message": "Body exceeded 1mb limit"}, 413)
        if not request.headers.get("content-type", "").startswith("application/json"):
            return JSONResponse({"message": "Invalid content type"}, 400)
        data = json.loads(body)
        if self.form == "single":
            problem = "expected an object, received an array" if isinstance(data, list) else problem_of(data)
            if problem:
                return JSONResponse({"message": "Invalid request data", "error": problem}, 400)
            self._keep(data)
            return JSONResponse({"id": data["id"]})
        if not isinstance(data, list) or not data:
            return JSONResponse({"message": "Invalid request data", "error": "expected an array"}, 400)
        problems = [problem for one in data if (problem := problem_of(one))]
        for one in data:
            if not problem_of(one):
                self._keep(one)
        if problems:
            errors = [{"message": problem} for problem in problems]
            answer = {"accepted": len(data) - len(problems), "rejected": len(problems), "errors": errors}
            return JSONResponse(answer, 207)
        return JSONResponse({"message": "Accepted"}, 202)

    def _keep(self, score: dict[str, Any]) -> None:
        """Upsert on id: a server finds the score to update by id and timestamp, an instant however it is written."""
        if "timestamp" in score:
            score = {**score, "timestamp": score["timestamp"].replace("+00:00", "Z")}
        before = self.scores.get(score["id"])
        for key in ("timestamp", "name", "traceId", "sessionId", "dataType"):
            if before is not None and before.get(key) != score.get(key):
                self.violations.append(f"score {score['id']}: {key} changed to {score.get(key)}")
        if before == score:
            self.violations.append(f"score {score['id']} was written again without a change")
        self.written.append(score)


# --- rules ---------------------------------------------------------------------------------------------------


def problem_of(score: Any) -> str | None:
    """The mistake in the body of a score, None if there is none."""
    if not isinstance(score, dict):
        return "expected an object"
    wrong = [key for key in TEXTS if not isinstance(score.get(key), (str, type(None)))]
    if not isinstance(score.get("name"), str) or not score["name"]:
        wrong.append("name")
    wrong += sorted(score.keys() - KNOWN)
    if not isinstance(score.get("metadata"), (dict, type(None))):
        wrong.append("metadata")
    environment = score.get("environment")
    if environment is not None and not (isinstance(environment, str) and ENVIRONMENT.fullmatch(environment)):
        wrong.append("environment")
    if score.get("source") not in (None, "API", "ANNOTATION"):
        wrong.append("source")
    if not _is_timestamp(score.get("timestamp")):
        wrong.append("timestamp")
    if not _is_value(score.get("value"), score.get("dataType")):
        wrong.append("value or dataType")
    targets = [key for key in ("traceId", "sessionId", "datasetRunId") if score.get(key)]
    if len(targets) != 1 or (score.get("observationId") and targets != ["traceId"]):
        wrong.append("exactly one of traceId, sessionId or datasetRunId")
    return f"invalid: {', '.join(wrong)}" if wrong else None


def _is_value(value: Any, data_type: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    rules = {
        "NUMERIC": number,
        "BOOLEAN": number and value in (0, 1),
        "CATEGORICAL": isinstance(value, str),
        "CORRECTION": isinstance(value, str),
        "TEXT": isinstance(value, str) and 1 <= len(value) <= 500,
        None: number or isinstance(value, str),
    }
    return isinstance(data_type, (str, type(None))) and rules.get(data_type, False)


def _is_timestamp(value: Any) -> bool:
    if value is None:
        return True
    try:
        return datetime.fromisoformat(str(value).replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


def _resource_spans(body: bytes, content_type: str, encoding: str | None) -> list[dict[str, Any]]:
    if encoding not in (None, "gzip"):
        raise ValueError(f"Unsupported encoding {encoding}")
    try:
        data = gzip.decompress(body) if encoding else body
    except (OSError, EOFError, zlib.error):
        raise ValueError("Failed to decompress request body") from None
    if "application/x-protobuf" in content_type:
        try:
            return _from_protobuf(ExportTraceServiceRequest.FromString(data))
        except DecodeError:
            raise ValueError("Failed to parse OTel Protobuf Trace") from None
    if "application/json" not in content_type:
        raise ValueError("Invalid content type")
    try:
        groups: list[dict[str, Any]] = json.loads(data).get("resourceSpans") or []
    except (ValueError, AttributeError):
        raise ValueError("Failed to parse OTel JSON Trace") from None
    return groups


def _from_protobuf(message: ExportTraceServiceRequest) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = MessageToDict(message).get("resourceSpans", [])
    for group, source in zip(plain, message.resource_spans, strict=True):
        for scoped, scope in zip(group.get("scopeSpans", []), source.scope_spans, strict=True):
            for span, original in zip(scoped.get("spans", []), scope.spans, strict=True):
                span["traceId"], span["spanId"] = original.trace_id.hex(), original.span_id.hex()
    return plain


def _malformed(group: Any) -> Iterator[str]:
    """One bad span is enough: the batch is refused as a whole."""
    if not _is_list(group.get("resource", {}).get("attributes")):
        yield "resource.attributes:not_an_array"
    for scoped in group.get("scopeSpans") or []:
        for span in scoped.get("spans") or []:
            for key, length in (("traceId", 32), ("spanId", 16)):
                if not isinstance(span.get(key), str) or len(span[key]) != length or not int(span[key], 16):
                    yield f"{key}:not_an_id"
            for key in ("attributes", "events"):
                if not _is_list(span.get(key)):
                    yield f"{key}:not_an_array"


def _is_list(value: Any) -> bool:
    return value is None or isinstance(value, list)


def _plain(attributes: Any) -> dict[str, Any]:
    return {one["key"]: _value(one.get("value") or {}) for one in attributes or []}


def _value(value: dict[str, Any]) -> Any:
    if "arrayValue" in value:
        return [_value(one) for one in value["arrayValue"].get("values", [])]
    return next(iter(value.values()), None)


def _tags(attributes: dict[str, Any]) -> list[str]:
    """A list, a JSON list, a comma list or one string."""
    value = next((attributes[key] for key in TAG_KEYS if attributes.get(key)), [])
    if isinstance(value, str):
        if value.strip().startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                value = [value]
        else:
            value = [part.strip() for part in value.split(",")]
    return [str(tag) for tag in value if len(str(tag)) <= MAX_TAG_CHARS]


@contextmanager
def langfuse(form: Form = "list", port: int = 0) -> Iterator[Langfuse]:
    """A server on a port of its own."""
    backend = Langfuse(form)
    config = uvicorn.Config(backend.app(), host="127.0.0.1", port=port, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.005)
    backend.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield backend
    finally:
        server.should_exit = server.force_exit = True
        thread.join(15)
