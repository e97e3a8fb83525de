"""Prices of model calls, from ``genai-prices`` where it is installed (extra ``prices``).

Looking a model up takes the library up to half a second the first time, so it happens on a thread of its own; a span
never waits for it. Tokens are kept by model, and their cost is computed each time the consumption is read: the
calls before a model's price is known are priced like those after it.
"""

from __future__ import annotations

import importlib.util
import queue
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from trajectory_guard.process.forking import ForkDelay, load_here, now_and_after_fork
from trajectory_guard.process.locks import OwnedLock

_MAX_MODELS: Final = 512
_MAX_PARTS: Final = 8
_GOOGLE: Final = "google"
"""Whose names of resources say ``models/`` before the name."""
_BEDROCK: Final = re.compile(r"\A[a-z]{1,40}\.[a-z][\w.-]{0,200}(?::\d{1,9})?\Z")
"""``anthropic.claude-3-haiku-20240307-v1:0``, with or without a region before it."""
_CALL: Final = 1_000
"""Tokens of the call that is priced: where long contexts cost more, the price of ordinary ones is wanted."""
_IDLE_S: Final = 5.0
_POLL_S: Final = 0.005
_IMPORT: Final = ForkDelay()


class UnitPrice(NamedTuple):
    """USD per input token and per output token."""

    input_usd: float
    output_usd: float

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """USD for so many tokens."""
        return self.input_usd * input_tokens + self.output_usd * output_tokens


FREE: Final = UnitPrice(0.0, 0.0)
"""Stands for a price that is unknown; a model that costs nothing has an equal one, but not this."""
_ASKED: Final = UnitPrice(0.0, 0.0)
"""Stands for a price that is being looked up."""


def look_up(model: str) -> UnitPrice:
    """Unit price of a model by its name; ``FREE`` if it is unknown, or the model is not billed by tokens.

    Blocks; imports ``genai_prices``.
    """
    import genai_prices

    def priced(name: str, provider: str | None, inputs: int, outputs: int) -> Any:
        usage = genai_prices.Usage(input_tokens=inputs, output_tokens=outputs)
        return genai_prices.calc_price(usage, model_ref=name, provider_id=provider)

    for name, provider in spellings(model):
        try:
            inputs, outputs = priced(name, provider, _CALL, 0), priced(name, provider, 0, _CALL)
            break
        except LookupError:
            continue
    else:
        return FREE
    found = UnitPrice(float(inputs.total_price / _CALL), float(outputs.total_price / _CALL))
    bills_otherwise = any(vars(inputs.model_price).values())  # by the hour, the page or the character
    return FREE if found == FREE and bills_otherwise else found  # callers ask whether it is ``FREE`` itself


def spellings(model: str) -> list[tuple[str, str | None]]:
    """The name of a model, and what it says of model and provider: routers and clients write the provider before it.

    A provider that ``genai_prices`` does not know has no price there: a model that runs at home under the name of one
    that is sold costs nothing.

    >>> spellings("gpt-4o"), spellings("openai:gpt-4o")
    ([('gpt-4o', None)], [('openai:gpt-4o', None), ('gpt-4o', 'openai')])
    >>> spellings("azure/eu/gpt-4o")
    [('azure/eu/gpt-4o', None), ('eu/gpt-4o', 'azure'), ('gpt-4o', 'eu'), ('gpt-4o', 'azure')]
    >>> spellings("models/gemini-2.5-pro")[1:], spellings("us.anthropic.claude-3-haiku-20240307-v1:0")[1:]
    ([('gemini-2.5-pro', 'google')], [('us.anthropic.claude-3-haiku-20240307-v1:0', 'bedrock')])
    """
    found: list[tuple[str, str | None]] = [(model, None)]
    *providers, name = parts = model.split("/")[-_MAX_PARTS:]
    for at in range(1, len(parts)):
        rest = "/".join(parts[at:])
        found += [(rest, _GOOGLE if one == "models" else one) for one in reversed(providers[:at])]
    if _BEDROCK.match(name):
        found.append((name, "bedrock"))
    elif not providers and ":" in name:
        provider, _, rest = name.partition(":")
        found.append((rest, provider))
    return found


def is_installed(module: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _contained(model: str) -> UnitPrice:
    """As ``look_up``; a failure of the library costs no more than the price of the model at hand."""
    try:
        return look_up(model)
    except Exception:  # noqa: BLE001
        return FREE


_looked_up: Final = lru_cache(maxsize=_MAX_MODELS)(_contained)


def price(model: str, input_tokens: int, output_tokens: int) -> float:
    """USD for a model call, 0 if the model or ``genai_prices`` is unknown. Blocks; for commands, not for spans."""
    return _looked_up(model).cost(input_tokens, output_tokens)


class PriceTable:
    """Unit prices by model name, filled in the background. A forked child asks again for those that were asked for.

    Of more than ``_MAX_MODELS`` models those without a price are forgotten first, and one that has a price only where
    all have one: names that a caller makes up must not cost a model its price, and so a budget its limit. While all
    that could be forgotten are being looked up, further models wait for the next call that asks for them.
    """

    def __init__(self) -> None:
        self.available = is_installed("genai_prices")
        if self.available:
            load_here("httpx", "httpx2")  # its versions import one or the other
        self._known: dict[str, UnitPrice] = {}
        now_and_after_fork(self._begin)

    def _begin(self) -> None:
        self._lock = OwnedLock()
        self._wanted: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._known = {model: price for model, price in self._known.items() if price is not _ASKED}
        self._unpriced = OrderedDict.fromkeys(model for model, price in self._known.items() if price is FREE)
        self._priced = OrderedDict.fromkeys(model for model, price in self._known.items() if price is not FREE)

    def get(self, model: str) -> UnitPrice:
        """The price as far as known now; asks for it if it is not. Never blocks."""
        price = self._known.get(model)
        if price is not None:
            return price
        if self.available:
            self._ask(model)
        return FREE

    def known(self, model: str) -> UnitPrice | None:
        """The price of a model, None if it is unknown, or not known yet. Never blocks."""
        price = self.get(model)
        return None if price is FREE or price is _ASKED else price

    def is_asked(self, model: str) -> bool:
        """Whether the price of a model is being looked up."""
        return self.available and self._known.get(model) is _ASKED

    def wait(self, models: Iterable[str], timeout_s: float) -> None:
        """Wait until the prices of these models have been looked up. Blocks."""
        deadline = time.monotonic() + timeout_s
        names = tuple(models)
        for name in names:
            self.get(name)  # nobody may have asked for it yet
        while any(self.is_asked(name) for name in names) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def cost(self, model: str, input_tokens: int, output_tokens: int) -> float:
        """USD for a model call at the price known now, 0 if there is none yet. Never blocks."""
        return self.get(model).cost(input_tokens, output_tokens)

    def _ask(self, model: str) -> None:
        with self._lock:
            if model in self._known:
                return  # another thread has asked
            if len(self._known) >= _MAX_MODELS and not self._may_forget():
                return
            if self._worker is None or not self._worker.is_alive():
                worker = threading.Thread(target=self._work, name="trajectory-guard-prices", daemon=True)
                try:
                    worker.start()
                except RuntimeError:  # no more threads: the next call asks again
                    return
                self._worker = worker
            if len(self._known) >= _MAX_MODELS:
                forgotten, _ = (self._unpriced or self._priced).popitem(last=False)
                del self._known[forgotten]
            self._known[model] = _ASKED
            self._wanted.put(model)

    def _may_forget(self) -> bool:
        return bool(self._unpriced) or len(self._priced) >= _MAX_MODELS

    def _next(self) -> str | None:
        """The next model to look up; None if nobody has asked for one for a while: then the thread ends.

        A thread that waited for ever would keep its table, and the board that the table belongs to.
        """
        try:
            return self._wanted.get(timeout=_IDLE_S)
        except queue.Empty:
            with self._lock:
                if self._wanted.empty():
                    self._worker = None
                    return None
            return self._wanted.get()

    def _work(self) -> None:
        while True:
            model = self._next()
            if model is None:
                return
            with _IMPORT:  # the first look-up imports, and reads the prices by further imports
                found = _contained(model)
            with self._lock:
                self._known[model] = found
                (self._unpriced if found is FREE else self._priced)[model] = None
