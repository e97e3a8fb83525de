"""Spans that have begun and not ended, by span id, oldest first: their children read their identity from them.

They are held weakly: an application that never ends a span, as of a stream that nobody reads, has dropped it, and its
attributes with it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from itertools import islice
from typing import Any, Final

from opentelemetry.sdk.trace import Span

from trajectory_guard.config import GuardConfig
from trajectory_guard.dialects.table import DialectTable
from trajectory_guard.otel.local_roots import is_tool

OpenSpans = dict[int, Callable[[], Span | None]]
_LOOK: Final = 64


def expire(
    spans: OpenSpans, above: MutableMapping[int, Any], table: DialectTable, config: GuardConfig, counts: Counter[str]
) -> None:
    """Remove tool spans that are too old to end, dropped spans, and the oldest spans of any kind beyond the limit.

    An agent's span may stay open for hours and still names its children's agent: age alone does not end it. Beyond the
    limit many go at once, because a look at the oldest spans passes the places of all that have ended since.

    Parameters:
        above: views of some of them; counts: where those that expire are counted.
    """
    limit_ns = time.time_ns() - int(config.open_span_ttl_s * 1e9)
    try:
        oldest = list(islice(spans.items(), _LOOK))
    except RuntimeError:
        return  # another thread started or ended a span just now: the next look will do
    for span_id in above.keys() - spans.keys():  # a child that ended beside its parent has put it back
        above.pop(span_id, None)
    excess = _LOOK if len(spans) > config.max_open_spans else 0
    for place, (span_id, kept) in enumerate(oldest):
        span = kept()
        too_old = span is not None and (span.start_time or 0) < limit_ns and is_tool(span, table)
        if (span is None or too_old or place < excess) and spans.pop(span_id, None) is not None:
            above.pop(span_id, None)
            counts["expired_dropped" if span is None else "expired_age" if too_old else "expired_full"] += 1
