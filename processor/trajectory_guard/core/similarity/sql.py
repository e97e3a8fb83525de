"""A SQL statement in one form: aliases resolved, conditions and equal sides in one order, optional words dropped.

A statement with subqueries, UNION or OR keeps its order; only its spelling is unified.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from trajectory_guard.core.wordlists import groups

MAX_TOKENS: Final = 1_500
"""Longer statements are compared by their tokens alone."""

_TOKEN: Final = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[A-Za-z_][\w ]*\]"
    r"|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[\w$@:#]+|<=|>=|<>|!=|\|\||::|->>?|\S",
    re.DOTALL,
)
_START: Final = re.compile(
    r"\A\s*(?:select\b.+?\bfrom\b|select\s+[\d'(]|insert\s+into\b|update\s+\S+\s+set\b|delete\s+from\b"
    r"|create\s+(?:or\s+\w+\s+)?(?:unique\s+)?"
    r"(?:table|index|view|schema|database|temp)|drop\s+(?:table|index|view)|alter\s+table|with\s+\w+\s+as\s*\("
    r"|explain\s+select|truncate\s+table)",
    re.IGNORECASE | re.DOTALL,
)
_GROUPS: Final = groups("sql")
_AFTER_TABLE: Final = frozenset(_GROUPS["after_table"])
_CLAUSES: Final = ("select", "from", "where", "group", "having", "order", "limit", "offset")
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def looks_like_sql(text: str) -> bool:
    """Whether ``text`` starts as a SQL statement does, strictly enough not to take English for SQL."""
    return _START.match(unfenced(text)[:2000]) is not None


def unfenced(text: str) -> str:
    """A program without the Markdown fence that a model writes around it."""
    found = text.strip() if "```" in text[:40] else ""
    if not found.startswith("```") or not found.endswith("```") or "\n" not in found:
        return text
    return found[found.index("\n") + 1 : -3]


def normalize_sql(text: str) -> str:
    """The canonical form of ``text``; never raises, and never drops a value or a condition."""
    tokens = _TOKEN.findall(unfenced(text))
    if len(tokens) > 2 * MAX_TOKENS:
        return " ".join(tokens)
    words = [_canonical_token(token) for token in tokens if not _is_comment(token)]
    while words and words[-1] == ";":
        words.pop()
    words = _drop_optional(words)
    if len(words) > MAX_TOKENS:
        return " ".join(words)
    words = _resolve_aliases(_inline_views(words))
    simple = (
        words[:1] == ["select"]
        and words.count("select") == 1
        and not {"union", "or", "case", "with"} & set(_without_disjunction(words))
    )
    if not simple or ";" in words:
        return " ".join(_order_sides(words))
    return _render_select(words)


def _is_comment(token: str) -> bool:
    """A comment without an end is kept: it may hide a condition."""
    return token.startswith("--") or (token.startswith("/*") and len(token) > 3 and token.endswith("*/"))


def _canonical_token(token: str) -> str:
    first = token[0]
    if first == "'":
        return token
    if first == "`" or (first == "[" and token[-1] == "]" and len(token) > 2):
        return token[1:-1].lower()
    if first == '"':
        return token[1:-1] if token[1:-1].islower() else token
    return "!=" if token == "<>" else token.lower()


def _drop_optional(words: list[str]) -> list[str]:
    """Without words that change nothing: INNER, OUTER, ASC. One spelling of ``count(*)`` and of LIMIT."""
    result: list[str] = []
    if words[:2] == ["select", "top"] and words[2:3] and words[2].isdigit() and "limit" not in words:
        words = ["select", *words[3:], "limit", words[2]]
    for position, word in enumerate(words):
        after = words[position + 1] if position + 1 < len(words) else ""
        if (
            (word == "inner" and after == "join")
            or (word == "outer" and after == "join")
            or (word == "asc" and position)
        ):
            continue
        if words[position : position + 2] == ["fetch", "first"] and words[position + 3 : position + 5] == [
            "rows",
            "only",
        ]:
            return [*result, "limit", words[position + 2], *words[position + 5 :]]
        if word == "1" and result[-2:] == ["count", "("] and after == ")":
            word = "*"
        result.append(word)
    if result[-2:] == ["offset", "0"]:
        result = result[:-2]
    return result


def _inline_views(words: list[str]) -> list[str]:
    """A view ``(SELECT * FROM t WHERE ...)``, under a name or in FROM, as its table and conditions.

    Only where the rest of the statement reads this one view and neither groups conditions by OR nor joins anything.
    """
    if {"or", "union", "join", "case"} & set(words) or words.count("select") != 2:
        return words
    if words[:1] == ["with"] and words[2:4] == ["as", "("] and len(words) > 5:
        end = _closing(words, 3)
        name, view, rest = words[1], words[4:end], words[end + 1 :]
        found = next((at for at, word in enumerate(rest) if rest[at : at + 2] == ["from", name]), -1)
        if rest.count(name) - sum(rest[at : at + 2] == [name, "."] for at in range(len(rest))) != 1:
            return words
        head, tail = rest[: found + 1], rest[found + 2 :]
    else:
        found = next((at for at in range(len(words)) if words[at : at + 3] == ["from", "(", "select"]), -1)
        if found < 0:
            return words
        end = _closing(words, found + 1)
        named = [word for word in words[end + 1 : end + 3] if word != "as"][:1]
        name = named[0] if named and _is_name(named[0]) and named[0] not in _AFTER_TABLE else ""
        head, view = words[: found + 1], words[found + 2 : end]
        tail = words[end + 1 + words[end + 1 : end + 3].index(name) + 1 :] if name else words[end + 1 :]
    plain = view[:3] == ["select", "*", "from"] and len(view) > 3 and (len(view) == 4 or view[4] == "where")
    if not plain or found < 0 or head[:1] != ["select"] or "," in tail[:1] or {"limit", "group", "order"} & set(view):
        return words
    table, conditions = view[3], view[5:]
    if tail[:1] == ["where"] and conditions:
        tail = ["where", *conditions, "and", *tail[1:]]
    elif conditions:
        tail = ["where", *conditions, *tail]
    return [*_renamed(head, name, table), table, *_renamed(tail, name, table)]


def _renamed(words: list[str], name: str, table: str) -> list[str]:
    return [table if word == name and words[at + 1 : at + 2] == ["."] else word for at, word in enumerate(words)]


def _closing(words: list[str], opening: int) -> int:
    """The position of the bracket that closes the one at ``opening``, or the last position."""
    depth = 0
    for at in range(opening, len(words)):
        depth += (words[at] == "(") - (words[at] == ")")
        if depth == 0:
            return at
    return len(words) - 1


def _tables(words: list[str]) -> tuple[dict[str, str], list[str], set[int]]:
    """Alias to table, the tables in order, and the positions of the alias words to drop."""
    aliases: dict[str, str] = {}
    tables: list[str] = []
    drop: set[int] = set()
    listing = False
    for position, word in enumerate(words):
        starts = word in ("from", "join", "update") or (listing and word == ",")
        if word in ("from", "where", "group", "order", "limit", "on", "select"):
            listing = word == "from"
        if not starts or position + 1 >= len(words) or not _is_name(words[position + 1]):
            continue
        end = position + 2
        while end + 1 < len(words) and words[end] == "." and _is_name(words[end + 1]):
            end += 2
        table = "".join(words[position + 1 : end])
        tables.append(table)
        marked = {end} if words[end : end + 1] == ["as"] else set()
        name_at = end + len(marked)
        if name_at < len(words) and _is_name(words[name_at]) and words[name_at] not in _AFTER_TABLE:
            aliases[words[name_at]] = table
            drop |= marked | {name_at}
    return aliases, tables, drop


def _is_name(word: str) -> bool:
    return word[:1].isalpha() or word[:1] == "_"


def _resolve_aliases(words: list[str]) -> list[str]:
    """Aliases replaced by their tables; a qualifier is dropped where only one table is read."""
    aliases, tables, drop = _tables(words)
    if len(set(tables)) != len(tables):
        return words
    single = tables[0] if len(tables) == 1 and words.count("select") <= 1 else None
    result: list[str] = []
    skip = False
    for position, word in enumerate(words):
        if position in drop:
            continue
        if skip:
            skip = False
            continue
        if words[position + 1 : position + 2] == ["."] and _is_name(word):
            table = aliases.get(word, word)
            if table == single:
                skip = True
                continue
            word = table
        result.append(word)
    return result


def _operands(words: list[str]) -> list[str]:
    """Tokens joined to operands: ``a . b`` becomes ``a.b``, a call or a bracket becomes one item."""
    result: list[str] = []
    depth = 0
    for word in words:
        dotted = result and (word == "." or result[-1].endswith(".")) and not depth
        if dotted or depth or (word == "(" and result and _is_callable(result[-1])):
            separator = " " if depth and not (word in ".()," or result[-1][-1] in ".(") else ""
            result[-1] += separator + word
        else:
            result.append(word)
        depth += (word == "(") - (word == ")")
        depth = max(depth, 0)
    return result


def _is_callable(word: str) -> bool:
    return _is_name(word) and word not in (
        "in",
        "and",
        "or",
        "not",
        "where",
        "on",
        "values",
        "select",
        "from",
        "exists",
        "any",
        "all",
    )


def _order_sides(words: list[str]) -> list[str]:
    """``b = a`` as ``a = b`` and ``y < x`` as ``x > y``, so that a comparison has one spelling."""
    items = _operands(words)
    for position in range(1, len(items) - 1):
        mirrored = _MIRRORED.get(items[position])
        before = items[position - 2] if position > 1 else "where"
        after = items[position + 2] if position + 2 < len(items) else "and"
        if mirrored is None or before not in _SIDE_ENDS or after not in _SIDE_ENDS:
            continue
        left, right = items[position - 1], items[position + 1]
        if _rank(right) < _rank(left):
            items[position - 1 : position + 2] = [right, mirrored, left]
    return items


_NEGATED: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_SIDE_ENDS: Final = frozenset(_GROUPS["side_ends"])


def _rank(operand: str) -> tuple[bool, str]:
    return (operand[:1] in "'0123456789-(:?", operand)


def _render_select(words: list[str]) -> str:
    clauses = _clauses(words)
    select, groups = clauses.get("select", []), clauses.get("group", [])
    select = _without_labels(select, words)
    where = clauses.get("where", [])
    conditions = _disjunction(where) if "or" in where else _conditions(where)
    source = clauses.get("from", [])
    joined = _inner_joins(source)
    if joined is not None:
        tables, on = joined
        source = " , ".join(sorted(tables)).split()
        conditions += on
    else:
        source = _order_sides(source)
    if groups[:1] == ["by"] and groups[1:] == select and "having" not in clauses:
        select, groups = ["distinct", *select], []
    having = _conditions(clauses.get("having", []))
    rest = [" ".join(clauses.get(name, [])) for name in ("order", "limit", "offset")]
    parts = [
        " ".join(select),
        " ".join(source),
        " & ".join(sorted(conditions)),
        " ".join(groups),
        " & ".join(sorted(having)),
    ]
    return "select " + " | ".join(parts + rest)


def _clauses(words: list[str]) -> dict[str, list[str]]:
    """Words of each top-level clause; a second clause of one name keeps its name as a word of the current one."""
    clauses: dict[str, list[str]] = {}
    current: list[str] = []
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0 and word in _CLAUSES and word not in clauses:
            current = clauses.setdefault(word, [])
        else:
            current.append(word)
    return clauses


def _without_labels(select: list[str], words: list[str]) -> list[str]:
    """The select list without ``AS name`` where nothing else in the statement uses the name."""
    result: list[str] = []
    times = Counter(words)
    position = 0
    while position < len(select):
        if select[position] == "as" and position + 1 < len(select) and times[select[position + 1]] == 1:
            position += 2
            continue
        result.append(select[position])
        position += 1
    return result


def _without_brackets(words: list[str]) -> list[str]:
    """``( a = 1 ) and ( b = 2 )`` without brackets: they group nothing where a conjunction is all there is."""
    result: list[str] = []
    at = 0
    while at < len(words):
        end = _closing(words, at) if words[at] == "(" and (not result or result[-1] in ("and", "(")) else -1
        whole = words[end + 1 : end + 2] in ([], ["and"])
        if end > at and whole and not {"select", ",", "or"} & set(words[at + 1 : end]):
            result += _without_brackets(words[at + 1 : end])
            at = end + 1
        else:
            result.append(words[at])
            at += 1
    return result


def _without_disjunction(words: list[str]) -> list[str]:
    """A statement without the WHERE clause if that is a plain disjunction, the one kind in which OR can be sorted."""
    clause = _clauses(words).get("where", [])
    if "or" not in clause or {"and", "("} & set(clause):
        return words
    return [word for word in words if word != "or"] if words.count("or") == clause.count("or") else words


def _disjunction(words: list[str]) -> list[str]:
    """Terms joined by OR alone, sorted; equal left sides make ``IN``."""
    terms: list[list[str]] = [[]]
    for item in _order_sides(words):
        if item == "or":
            terms.append([])
        else:
            terms[-1].append(item)
    if all(len(term) == 3 and term[1] == "=" and term[0] == terms[0][0] for term in terms):
        return [f"{terms[0][0]} in ({','.join(sorted(term[2] for term in terms))})"]
    return [" | ".join(sorted(" ".join(term) for term in terms))]


def _conditions(words: list[str]) -> list[str]:
    """A conjunction as its terms in one spelling; BETWEEN becomes two of them, brackets around a term fall away."""
    items = _order_sides(_without_brackets(words))
    terms: list[list[str]] = [[]]
    between = False
    for item in items:
        if item == "between":
            between = True
        elif item == "and" and not between:
            terms.append([])
            continue
        elif item == "and":
            between = False
        terms[-1].append(item)
    return [text for term in terms if term for text in _simplify(term)]


_LITERALS: Final = re.compile(r"\(\s*(?:'[^',]*'|[\w.]+)(?:\s*,\s*(?:'[^',]*'|[\w.]+))*\s*\)$")


def _simplify(term: list[str]) -> list[str]:
    if len(term) == 2 and term[0] == "not" and term[1][:1] == "(":
        inner = term[1][1:-1].split(" ")
        term = ["not", *inner] if len(inner) == 3 and inner[1] in _NEGATED else term
    if len(term) == 4 and term[0] == "not" and term[2] in _NEGATED:
        term = [term[1], _NEGATED[term[2]], term[3]]
    elif len(term) == 4 and term[0] == "not" and term[2] in ("in", "is", "like"):
        operator = ["is", "not"] if term[2] == "is" else ["not", term[2]]
        term = [term[1], *operator, term[3]]
    if len(term) == 5 and term[1] == "between" and term[3] == "and":
        return [f"{term[0]} >= {term[2]}", f"{term[0]} <= {term[4]}"]
    if len(term) in (3, 4) and term[-2] == "in" and _LITERALS.match(term[-1]):
        values = sorted(part.strip() for part in term[-1][1:-1].split(","))
        if len(values) == 1 and len(term) == 3:
            return [f"{term[0]} = {values[0]}"]
        return [" ".join([*term[:-1], f"({','.join(values)})"])]
    return [" ".join(term)]


def _inner_joins(source: list[str]) -> tuple[list[str], list[str]] | None:
    """Tables and join conditions if the FROM clause holds inner joins or a list only, else None."""
    if {"left", "right", "full", "cross", "natural", "using", "lateral", "("} & set(source):
        return None
    tables: list[str] = []
    on: list[str] = []
    for part in " ".join(source).replace(" , ", " join ").split(" join "):
        table, _, condition = part.partition(" on ")
        tables.append(table.strip())
        on += _conditions(condition.split())
    return tables, on
