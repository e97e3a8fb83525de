"""Scores over Langfuse's REST client, as the package ``langfuse`` (4 or 5) has it. Its tracing stays off.

Only ``LangfuseAPI`` and its data types are used: they set no tracer provider and start no thread, which ``Langfuse()``
and ``get_client()`` would do. Versions differ in the body they post to ``/api/public/scores``, and servers in the body
they accept: a single object up to 4.58, a list from 4.59 on. The first request detects the form that the server
accepts; version 4 of the package does not know the list, which is then posted without it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from importlib import import_module
from ssl import SSLContext
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from trajectory_guard.backoff import parse_retry_after
from trajectory_guard.errors import PortableError
from trajectory_guard.extras import install
from trajectory_guard.hidden import Hidden, credentials
from trajectory_guard.integrations.langfuse.scores import LangfuseScore

CLOUD: Final = "https://cloud.langfuse.com"
INSTALL: Final = install("langfuse")
_SDK_NAME: Final = "trajectory-guard"
_LATER: Final = frozenset({408, 409, 425, 429})
_BAD: Final = frozenset({400, 413, 422})
_MAX_REASON_CHARS: Final = 300
_NO_RETRIES: Final = {"max_retries": 0}
_PLAIN: Final = {"accept-encoding": "identity"}
"""A few bytes that are compressed may be gigabytes."""
_OWN_HEADERS: Final = {"x-langfuse-sdk-name": _SDK_NAME}
_NAMES: Final = {"data_type": "dataType", "trace_id": "traceId", "session_id": "sessionId"}

_NO_REPLY: Final = (TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a reply that is JSON and no reply of Langfuse."""

UNREACHABLE: Final = "unreachable"
INVALID: Final = "invalid"

_Post = Callable[[Sequence[LangfuseScore]], Any]


class RetryableScoreError(PortableError):
    """Raised when Langfuse did not accept the scores and may accept them later.

    Parameters:
        message: what happened.
        status: HTTP status, or ``unreachable``.
        retry_after_s: seconds Langfuse asked to wait, None if it did not say.
    """

    def __init__(self, message: str, status: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class RefusedAccessError(PortableError):
    """Raised when Langfuse accepts no request: wrong keys, suspended project, or no Langfuse at that address.

    Parameters:
        message: what happened.
        status: HTTP status, or ``invalid`` for an address or an answer that makes no sense.
    """

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class _BadRequestError(Exception):
    pass


class Connection(NamedTuple):
    """Connection to a Langfuse project.

    Fields:
        base_url: without a path.
        public_key, secret_key: of the project.
        timeout_s: per request.
        verify: trust, as ``httpx`` takes it.
        headers: sent with every request.
    """

    base_url: str
    public_key: str
    secret_key: str
    timeout_s: float = 10.0
    verify: SSLContext | bool = True
    headers: Mapping[str, str] = {}

    def hide(self, text: str) -> str:
        """A text without the keys and the values of headers, which a library or a server may repeat."""
        keys = (self.public_key, self.secret_key)
        return Hidden([*keys, credentials(*keys), *self.headers.values()]).hide(text)


class SendOutcome(NamedTuple):
    """The outcome of a part of the scores, which must not be sent again.

    Fields:
        scores: the scores of one request.
        rejected: number of them that Langfuse rejected; its answer does not identify them.
        reason: why.
    """

    scores: Sequence[LangfuseScore]
    rejected: int = 0
    reason: str = ""


class ScoresClient:
    """Posts scores, each in as few requests as the server allows.

    Parameters:
        connection: address, keys and timeouts.

    Attributes:
        requests: made so far.

    Raises:
        ImportError: the package ``langfuse`` is missing.
    """

    def __init__(self, connection: Connection) -> None:
        import httpx
        from langfuse.api import LangfuseAPI

        from trajectory_guard.integrations.langfuse.replies import bounded_reply

        base_url = connection.base_url.rstrip("/")
        self._http = httpx.Client(
            timeout=connection.timeout_s, verify=connection.verify, headers={**_PLAIN, **connection.headers},
            event_hooks={"response": [bounded_reply(connection.timeout_s)]},
        )  # fmt: skip
        self._api = LangfuseAPI(
            base_url=base_url,
            username=connection.public_key,
            password=connection.secret_key,
            x_langfuse_sdk_name=_SDK_NAME,
            x_langfuse_public_key=connection.public_key,
            httpx_client=self._http,
        )
        url = f"{base_url}/api/public/scores"
        self._url, self._hide = _without_secrets(url), connection.hide
        self.requests = 0
        create = _create(self._api)
        keys = (connection.public_key, connection.secret_key)
        import_module("langfuse.api.core")  # now, and not with the first request: a fork waits for this constructor
        self._single: _Post = partial(_post_fields, create)
        several: _Post = partial(_post_plain_list, partial(self._http.post, url, auth=keys, headers=_OWN_HEADERS))
        if "request" in inspect.signature(create).parameters:
            import_module("langfuse.api.scores.types")
            self._single, several = partial(_post_object, create), partial(_post_list, create)
        self._forms: list[_Post] = [several, self._single]  # the one to try first, and what to fall back on

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def send(self, scores: Sequence[LangfuseScore]) -> Iterator[SendOutcome]:
        """Post scores and yield a result for each accepted part. Scores without a result were not accepted.

        A server that accepts single scores only gets the first one: the caller spaces the requests.

        Raises:
            RetryableScoreError: the rest may be sent again.
            RefusedAccessError: no request will be accepted until a person has corrected keys or rights.
        """
        if len(scores) > 1 and self._forms[0] is not self._single:
            with suppress(_BadRequestError):  # an older server, or one invalid score: single requests identify it
                yield self._post(self._forms[0], scores)
                return
        for score in scores:
            yield self._send_one(score)
            if self._forms[0] is self._single:
                return

    def _send_one(self, score: LangfuseScore) -> SendOutcome:
        first, *others = self._forms
        try:
            return self._post(first, [score])
        except _BadRequestError as error:
            refused = SendOutcome([score], 1, str(error))
            return next((outcome for form in others if (outcome := self._other(form, score))), refused)

    def _other(self, form: _Post, score: LangfuseScore) -> SendOutcome | None:
        """Post the same scores in the other form; if the server accepts it, later requests begin with it."""
        with suppress(_BadRequestError):
            outcome = self._post(form, [score])
            self._forms.sort(key=lambda one: one is not form)
            return outcome
        return None

    def _post(self, form: _Post, scores: Sequence[LangfuseScore]) -> SendOutcome:
        import httpx
        from langfuse.api.core import ApiError

        self.requests += 1
        try:
            return self._outcome(scores, form(scores))
        except httpx.TransportError as error:
            reason = self._hide(str(error))
            raise RetryableScoreError(f"{self._url}: {type(error).__name__}: {reason}", UNREACHABLE) from None
        except httpx.InvalidURL:  # its message may hold the password
            raise RefusedAccessError(f"{self._url} is not a valid URL", INVALID) from None
        except ApiError as error:
            raise self._failure(error.status_code, error.headers or {}, error.body) from None
        except UnicodeEncodeError as error:
            raise _unsendable(error) from error
        except (httpx.DecodingError, ValueError, *_NO_REPLY) as error:
            reason = self._hide(str(error))
            raise RefusedAccessError(f"{self._url} does not answer as Langfuse does: {reason}", INVALID) from None

    def _outcome(self, scores: Sequence[LangfuseScore], reply: Any) -> SendOutcome:
        rejected = int(getattr(reply, "rejected", 0))
        errors = [self._hide(str(one.message)) for one in getattr(reply, "errors", ())]
        return SendOutcome(scores, max(0, rejected), "; ".join(errors)[:_MAX_REASON_CHARS])

    def _failure(self, status: int | None, headers: Mapping[str, str], body: object) -> Exception:
        message = f"{self._url} answered {status}: {self._hide(str(body))[:_MAX_REASON_CHARS]}"
        if status in _BAD:
            return _BadRequestError(message)
        if status is None or status >= 500 or status in _LATER:
            asked = next((value for key, value in headers.items() if key.lower() == "retry-after"), None)
            return RetryableScoreError(message, str(status or UNREACHABLE), retry_after_s=parse_retry_after(asked))
        return RefusedAccessError(message, INVALID if status < 300 else str(status))


def _create(api: Any) -> Callable[..., Any]:
    """The method that posts scores; up to 4.14 it stood among what was called legacy."""
    scores = api.scores if hasattr(api.scores, "create") else api.legacy.score_v1
    method: Callable[..., Any] = scores.create
    return method


def _post_list(create: Callable[..., Any], scores: Sequence[LangfuseScore]) -> Any:
    return create(request=[_request(score) for score in scores], request_options=_NO_RETRIES)


def _post_plain_list(post: Callable[..., Any], scores: Sequence[LangfuseScore]) -> Any:
    """Posts a list of scores, as SDK 5 does, with SDK 4."""
    from langfuse.api.core import ApiError

    bodies = [{_NAMES.get(key, key): value for key, value in _fields(score).items()} for score in scores]
    answer = post(json=[{**body, "timestamp": body["timestamp"].isoformat()} for body in bodies])
    if not answer.is_success:
        raise ApiError(status_code=answer.status_code, headers=dict(answer.headers), body=answer.text)
    return json.loads(answer.text, object_hook=lambda fields: SimpleNamespace(**fields))


def _post_object(create: Callable[..., Any], scores: Sequence[LangfuseScore]) -> Any:
    """SDK 5 declares the list only, and sends on what it is given."""
    return create(request=_request(scores[0]), request_options=_NO_RETRIES)


def _post_fields(create: Callable[..., Any], scores: Sequence[LangfuseScore]) -> Any:
    """SDK 4 knows no timestamp; servers of its time ignore it."""
    fields = _fields(scores[0])
    more = {"timestamp": fields.pop("timestamp").isoformat()}
    return create(**fields, request_options={**_NO_RETRIES, "additional_body_parameters": more})


def _request(score: LangfuseScore) -> Any:
    from langfuse.api.scores.types import CreateScoreRequest

    fields = _fields(score)
    try:
        return CreateScoreRequest(**fields)
    except ValueError as error:
        raise _unsendable(error) from error


def _without_secrets(url: str) -> str:
    """A URL for messages: without user, password and query.

    >>> _without_secrets("https://me:secret@langfuse.test/base?token=secret")
    'https://langfuse.test/base'
    """
    return _without_user(url).partition("?")[0]


def _without_user(url: str) -> str:
    scheme, slashes, rest = url.partition("//")
    return scheme + slashes + rest.rpartition("@")[2]


def _fields(score: LangfuseScore) -> dict[str, Any]:
    fields = {key: value for key, value in score._asdict().items() if value is not None}
    try:
        # What is no JSON (not a number, infinity) must be noticed here: where it is posted, it would count as a reply
        # that makes no sense, and hold up all scores.
        json.dumps(fields, allow_nan=False)
        return {**fields, "timestamp": datetime.fromtimestamp(score.timestamp, timezone.utc)}
    except (ValueError, TypeError, OverflowError, OSError, RecursionError) as error:
        raise _unsendable(error) from error


def _unsendable(error: Exception) -> _BadRequestError:
    """The mistake of one score: it must not hold up the others."""
    return _BadRequestError(f"this score cannot be sent: {error}")
