"""Log-probabilities of tokens, as model providers and LangChain hand them over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

MAX_TOKENS: Final = 65_536
UNLIKELY: Final = -9999.0
"""OpenAI's sign for a token that is too unlikely to be measured; it is no log-probability."""
_CLOSE: Final = 1e-6
_VALUE_KEYS: Final = ("logprob", "log_probability", "logProbability")


def mean_logprob(response: Any) -> float | None:
    """Mean log-probability (natural logarithm) of the tokens of a response; None if it has none.

    Reads, as objects or as plain data: messages of LangChain (``response_metadata``), chat completions and responses of
    OpenAI and of servers like it, and candidates of Google (``avg_logprobs``, ``logprobs_result``). Of several choices
    the first one counts.

    >>> mean_logprob({"choices": [{"logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1.5}]}}]})
    -1.0
    """
    for part in _parts(response):
        average = _valid(_get(part, "avg_logprobs", "avgLogprobs"))
        if average is not None:
            return average
        found = _get(part, "logprobs")
        values = [one for one in islice(_values(found), MAX_TOKENS) if one is not None]
        if not values:
            chosen = _get(_get(part, "logprobs_result", "logprobsResult"), "chosen_candidates", "chosenCandidates")
            values = [one for one in islice(_values(chosen), MAX_TOKENS) if one is not None]
        if values:
            return math.fsum(values) / len(values)
    return None


def _parts(response: Any) -> Iterator[Any]:
    """The places of a response that may hold log-probabilities of its text."""
    metadata = _get(response, "response_metadata")
    if isinstance(metadata, Mapping):
        yield metadata
    for name in ("choices", "candidates"):
        yield from islice(_items(_get(response, name)), 1)
    texts = [part for item in _items(_get(response, "output")) for part in _items(_get(item, "content"))]
    blocks = _get(response, "content") if not texts else None
    tokens = [one for part in texts or _items(blocks) for one in _items(_get(part, "logprobs"))]
    if tokens:
        yield {"logprobs": tokens}
    if metadata is None and _get(response, "logprobs", "avg_logprobs", "logprobs_result") is not None:
        yield response


def _values(found: Any) -> Iterator[float | None]:
    """The values of a list of tokens, or of an object that holds one."""
    if isinstance(found, (list, tuple)):
        for one in found:
            yield _valid(one if isinstance(one, (int, float)) else _get(one, *_VALUE_KEYS))
        return
    if found is not None:
        for name in ("content", "token_logprobs"):
            yield from _values(_list(_get(found, name)))


def _valid(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return None if value > _CLOSE or value == UNLIKELY else min(0.0, float(value))


def _get(holder: Any, *names: str) -> Any:
    for name in names:
        value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
        if value is not None and not callable(value):
            return value
    return None


def _list(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else None


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else ()
