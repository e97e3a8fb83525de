"""An arithmetic expression as a tree in one order: ``(4 + 6) / 2`` and ``(6 + 4) / 2`` give one text."""

from __future__ import annotations

import ast
import re
from typing import Final

from trajectory_guard.core.literals import parse_expression

from .words import plain_number

MAX_CHARS: Final = 400
"""Longer expressions are compared as they stand."""
_MAX_DEPTH = 40

_BRACKETS: Final = re.compile(r"([(\[)\]])")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
_WORDS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), repl)
    for pattern, repl in (
        (r"\bwhat(?:'s| is)\b|\bcalculate\b|\bcompute\b|\bevaluate\b|\bthe\b|[=?] ?$", " "),
        (r"(?<!\d)(\d+(?:\.\d+)?) ?(?:%|percent) of\b", r"(\1/100) *"),
        (r"(?<!\d)(\d+(?:\.\d+)?) ?%(?! ?[\d(\w])", r"(\1/100)"),
        (r"\bsquare root of (\d+(?:\.\d+)?|\([^()]*\))", r"sqrt(\1)"),
        (r"\bcube root of (\d+(?:\.\d+)?|\([^()]*\))", r"cbrt(\1)"),
        (r"\bto the power of\b|\braised to\b|\^", "**"),
        (r"(?<=[\d)]) ?squared\b", "**2"),
        (r"(?<=[\d)]) ?cubed\b", "**3"),
        (r"\bdivided by\b|\bover\b(?= ?[\d(])|÷", "/"),
        (r"\bmultiplied by\b|\btimes\b|\u00d7|\u00b7|(?<=\d) ?x ?(?=\d)", "*"),
        (r"\bplus\b", "+"),
        (r"\bminus\b|\u2212", "-"),
        (
            r"\b(mean|average|avg|sum|product|median|max|min|maximum"
            r"|minimum) of ([\d., -]+(?:\band\b[\d. -]+)?)$",
            r"\1(\2)",
        ),
        (r",? ?\band\b", ","),
    )
)
_READABLE: Final = re.compile(r"\A[\w\s.,+*/%()\[\]-]+$")
_GLUED: Final = re.compile(r"(?<![\w.])\d[\d.]*(?![eE][+-]?\d)[^\W\d]")
"""A letter right after a number: no arithmetic, and Python's parser would print a warning about it."""
_FUNCTIONS: Final = {
    "average": "mean", "avg": "mean", "maximum": "max", "minimum": "min", "pow": "**", "ln": "log", "math.log": "log",
    "statistics.mean": "mean", "np.mean": "mean", "absolute": "abs", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan",
}  # fmt: skip
_UNORDERED: Final = frozenset(
    ("max", "min", "mean", "sum", "median", "gcd", "lcm", "hypot", "product", "prod", "+", "*")
)


def normalize_math(text: str) -> str | None:
    """The expression in one form, or None if it is not one that can be read."""
    if len(text) > MAX_CHARS:
        return None
    text = _without_thousands(" ".join(text.split()))  # the patterns know single blanks only: longer runs cost time
    for pattern, repl in _WORDS:
        text = " ".join(pattern.sub(repl, text).split())
    if not _READABLE.match(text) or _GLUED.search(text):
        return None
    try:
        return _render(parse_expression(text).body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _without_thousands(text: str) -> str:
    """``1,000`` as ``1000``, but not before a closing bracket: there a comma separates arguments."""
    parts = _BRACKETS.split(text)
    for at in range(0, len(parts), 2):
        if at + 1 == len(parts) or parts[at + 1] in "([":
            parts[at] = _THOUSANDS.sub("", parts[at])
    return "".join(parts)


def _render(node: ast.expr, depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(node, ast.BinOp):
        return _render_operation(node, depth + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return (
            _negate(_render(node.operand, depth + 1))
            if isinstance(node.op, ast.USub)
            else _render(node.operand, depth + 1)
        )
    if isinstance(node, ast.Call) and not node.keywords:
        return _render_call(node, depth + 1)
    if isinstance(node, (ast.List, ast.Tuple)):
        return "[" + ",".join(_render(item, depth + 1) for item in node.elts) + "]"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return plain_number(repr(node.value))
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _name(ast.unparse(node))
    raise ValueError(f"{type(node).__name__} is not arithmetic")


def _name(text: str) -> str:
    text = text.lower()
    text = _FUNCTIONS.get(text, text)
    return text.removeprefix("math.").removeprefix("np.").removeprefix("numpy.")


def _negate(text: str) -> str:
    return text[1:] if text.startswith("-") else "-" + text


def _render_call(node: ast.Call, depth: int) -> str:
    name = _name(ast.unparse(node.func))
    args = [_render(item, depth) for item in node.args]
    if name == "**" and len(args) == 2:
        return f"({args[0]}**{args[1]})"
    if len(args) == 1 and args[0][0] == "[" and name in _UNORDERED:
        args = args[0][1:-1].split(",") if "[" not in args[0][1:] and "(" not in args[0] else args
    if name == "sum" and len(args) > 1:
        return _join("+", args)
    return f"{name}({','.join(sorted(args) if name in _UNORDERED else args)})"


def _join(operator: str, parts: list[str]) -> str:
    return f"({operator} {' '.join(sorted(parts))})"


def _render_operation(node: ast.BinOp, depth: int) -> str:
    if isinstance(node.op, (ast.Add, ast.Sub)):
        return _join("+", _terms(node, depth))
    if isinstance(node.op, (ast.Mult, ast.Div)):
        return _render_product(_factors(node, depth))
    left, right = _render(node.left, depth), _render(node.right, depth)
    symbol = {ast.Pow: "**", ast.Mod: "%", ast.FloorDiv: "//"}.get(type(node.op))
    if symbol is None:
        raise ValueError("not arithmetic")
    return f"({left}{symbol}{right})"


def _render_product(factors: list[str]) -> str:
    """A product in one order; a whole number over 100 becomes a decimal, so that 20 % equals 0.2."""
    if "1/100" in factors:
        whole = next((item for item in factors if item.replace(".", "", 1).isdigit()), None)
        if whole is not None:
            factors = list(factors)
            factors.remove("1/100")
            factors.remove(whole)
            factors.append(plain_number(f"{float(whole) / 100:.12g}"))
    return _join("*", factors) if len(factors) > 1 else factors[0]


def _terms(node: ast.expr, depth: int) -> list[str]:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        right = _terms(node.right, depth + 1)
        if isinstance(node.op, ast.Sub):
            right = [_negate(term) for term in right]
        return _terms(node.left, depth + 1) + right
    return [_render(node, depth + 1)]


def _factors(node: ast.expr, depth: int) -> list[str]:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        right = _factors(node.right, depth + 1)
        if isinstance(node.op, ast.Div):
            right = [term[2:] if term.startswith("1/") else "1/" + term for term in right]
        return _factors(node.left, depth + 1) + right
    return [_render(node, depth + 1)]
