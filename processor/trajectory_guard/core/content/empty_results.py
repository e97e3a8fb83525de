"""Objects that services return for a search that found nothing, in the forms of their APIs.

Elasticsearch, Solr, Algolia, GraphQL, Kubernetes and many others wrap an empty list into objects with counts, paging,
timings and the query. Nothing but the empty list is the result.
"""

from __future__ import annotations

import re
from typing import Any, Final

from trajectory_guard.core.content.masking import CAMEL, is_volatile_key

_MAX_DEPTH: Final = 4
_RESULTS: Final = re.compile(
    r"\A(?:\w+_)?(?:results?|data|items?|hits|matches|rows|documents|docs|records|entries|nodes|edges|values?|search|list"
    r"|ids|bindings|sources|citations|passages|chunks|articles|products|posts|papers|(?:first|next)_batch"
    r"|ergebnisse|treffer|daten|résultats?|resultats?|données|resultados?|datos|dados|risultati|dati|wyniki|resultaten"
    r"|результаты?|данные|sonuçlar|kết_quả|النتائج|परिणाम|結果|结果|列表|数据|データ|一覧|결과|목록)\Z",
    re.IGNORECASE,
)
COMPLAINTS: Final = frozenset(
    (
        "alerts", "conflicts", "diff", "errors", "failed", "failures", "issues", "missing", "problems", "violations",
        "warnings",
    )
)  # fmt: skip
"""Lists of these names may be what a check has found wrong: an empty one is no result that is missing."""
_SEARCHED: Final = frozenset(("alerts", "issues"))
"""Of these beside paging, as beside a query, one may have been searched all the same."""
_PAGING: Final = re.compile(
    r"(?<![^\W_])(?:page|pages|paging|pagination|pageinfo|limit|offset|start|startat|from|first|last|next|per|max\w*|cursor)"
    r"(?![^\W_])",
    re.IGNORECASE,
)
_FOLLOWING: Final = re.compile(r"(?<![^\W_])(?:next|more|cursor)(?![^\W_])", re.IGNORECASE)
_ASIDE: Final = re.compile(
    r"\A_|(?<![^\W_])(?:meta\w*|headers?|head|columns|fields|schema|vars|usage|units|time|took|version|out_of|params|request|query|q|original|size|ok|code"
    r"|score)(?![^\W_])",
    re.IGNORECASE,
)
_SAID: Final = re.compile(
    r"(?<![^\W_])(?:answer|hint|message|text|summary|output|content|error|reason|warning)(?![^\W_])",
    re.I,
)
_AMOUNT: Final = re.compile(r"\A(?=[^1-9]{0,24}[1-9])\D{0,4}\d{1,3}(?:[.,]?\d{3}){0,4}[.,]\d{2}\D{0,4}\Z")
_COMPLETED: Final = re.compile(r"(?<![^\W_])(?:ok|success|done|complete|exhaustive)(?![^\W_])", re.IGNORECASE)


def finds_nothing(result: dict[str, Any]) -> bool:
    """Whether an object is the result of a search that found nothing: lists of results, all empty, or their number, 0.

    Counts of 0, paging, timings, the query and names beside the lists say nothing; a list of another name, a figure, a
    sentence or a flag does.

    >>> finds_nothing({"took": 3, "hits": {"total": {"value": 0, "relation": "eq"}, "hits": []}})
    True
    >>> finds_nothing({"data": {"orders": {"nodes": [], "pageInfo": {"hasNextPage": False, "endCursor": None}}}})
    True
    >>> finds_nothing({"treffer": 0, "dauer_ms": 15}), finds_nothing({"open": 0})
    (True, False)
    >>> finds_nothing({"hits": [], "aggregations": {"mean": {"value": 7.5}}}), finds_nothing({"tags": [], "id": 7})
    (False, False)
    >>> finds_nothing({"currency": "EUR", "total": "12.90", "items": [], "coupon": "SPRING"})
    False
    """
    return _has_only_empty_lists(result, _MAX_DEPTH) is True


def _has_only_empty_lists(value: dict[str, Any], depth: int) -> bool | None:
    """Whether an object has a list of results, and it is empty; None if one of its members says something."""
    if value.get("id") and [] in value.values():
        return None  # a cart, an album: what it is comes before what is in it
    names = {key: CAMEL.sub("_", str(key)) for key in value}
    paged = any(_PAGING.search(name) is not None for name in names.values())
    found = False
    for key, item in value.items():
        name = names[key]
        if _is_aside(name, item):
            continue
        if isinstance(item, dict):
            below = _has_only_empty_lists(item, depth - 1) if depth else None
            if below is None:
                return None
            found = found or below
        elif isinstance(item, list):
            if any(one != [] for one in item):
                return None
            found = found or _RESULTS.match(name) is not None or (paged and _is_searched(name))
        elif type(item) is int and item == 0 and _RESULTS.match(name) is not None:
            found = True
        elif not _says_nothing(name, item):
            return None
    return found


def _is_aside(name: str, item: Any) -> bool:
    """Whether a member is what its name says, and not the result: how long it took, the query, where a page begins.

    A page that is said to follow is more than nothing.
    """
    if isinstance(item, dict):
        if any(one == [] and _RESULTS.match(CAMEL.sub("_", key)) is not None for key, one in item.items()):
            return False
    elif item == [] or (item and _FOLLOWING.search(name) is not None):
        return False
    return _ASIDE.search(name) is not None or _PAGING.search(name) is not None


def _is_searched(name: str) -> bool:
    """Whether a list on a page is what was searched: whatever its name, unless it says that nothing is wrong."""
    return name.lower() not in COMPLAINTS or name.lower() in _SEARCHED


def _says_nothing(name: str, item: Any) -> bool:
    """Whether a member that is no container is a count of 0, a date, a name, or a sign that the search is complete."""
    if item is True:
        return _COMPLETED.search(name) is not None
    if isinstance(item, str):
        said = _SAID.search(name) or _AMOUNT.match(item)
        return not item or (len(item.split()) == 1 and not said)
    return not item or is_volatile_key(name)
