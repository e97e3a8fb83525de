"""Log-probabilities of tokens, as model providers and LangChain hand them over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

MAX_TOKENS: Final = 65_536
UNLIKELY: Final = -9999.0
"""OpenAI's sign for a token that is too unlikely to be measured; it is no log-probability."""
_SURELY_VALID: Final = -1000.0
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
        chosen = _get(_get(part, "logprobs_result", "logprobsResult"), "chosen_candidates", "chosenCandidates")
        values = _values(_get(part, "logprobs")) or _values(chosen)
        if values:
            return math.fsum(values) / len(values)
    return None


def _parts(response: Any) -> Iterator[Any]:
    """The places of a response that may hold log-probabilities of its text."""
    metadata = _get(response, "response_metadata")
    if isinstance(metadata, Mapping):
        yield metadata
        yield _tokens_of(_items(_get(response, "content")))
        return
    for name in ("choices", "candidates"):
        yield from _items(_get(response, name))[:1]
    yield _tokens_of([part for item in _items(_get(response, "output")) for part in _items(_get(item, "content"))])
    yield response


def _tokens_of(texts: Sequence[Any]) -> Any:
    """The tokens of several parts of one text."""
    return {"logprobs": [one for part in texts for one in _items(_get(part, "logprobs"))]}


def _values(found: Any) -> list[float]:
    """The values of a list of tokens, or of an object that holds one."""
    if not isinstance(found, (list, tuple)):
        if found is None:
            return []
        found = next((one for name in ("content", "token_logprobs") if (one := _items(_get(found, name)))), ())
    values: list[float] = []
    for one in islice(found, MAX_TOKENS):
        value = one.get("logprob") if type(one) is dict else None
        if type(value) is float and _SURELY_VALID < value <= 0.0:  # nearly all: no look-ups by several names
            values.append(value)
            continue
        known = _valid(one if isinstance(one, (int, float)) else _get(one, *_VALUE_KEYS))
        if known is not None:
            values.append(known)
    return values


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


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()
