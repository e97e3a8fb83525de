"""``${env:NAME}``, ``${env:NAME:-default}``, ``${file:PATH}`` and ``$$`` in configuration values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from trajectory_guard.config.values import why_no_path
from trajectory_guard.text_files import read_text

Report = Callable[[str, str], None]
"""Called with the key path and the mistake there."""
_REFERENCE: Final = re.compile(r"\$\$|\$\{([^{}]*)\}|\$\{")
_WHOLE: Final = re.compile(r"\$\{[^{}]*\}")
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HELP: Final = "use ${env:NAME}, ${env:NAME:-default} or ${file:PATH}; $$ stands for a dollar sign"


_FORGOTTEN: Final = re.compile(r"(?:(?:basic|bearer|token|apikey) +)?\$[a-z_]", re.IGNORECASE)
FORGOTTEN: Final = "begins with $ and a name: a variable is written ${env:NAME}, a dollar sign $$"


class Text(str):
    """A value that is text only because it came from a variable, a file or the command line.

    It becomes a number, a truth value or a list if its key wants one, and is unchanged if its key wants text.
    """

    __slots__ = ()


def forgets_braces(written: str) -> bool:
    """Whether a credential, as it is written, is surely meant to be a variable.

    >>> forgets_braces("Bearer $TOKEN"), forgets_braces("${env:TOKEN}"), forgets_braces("$$TOKEN")
    (True, False, False)
    """
    return _FORGOTTEN.match(written) is not None


def resolve(value: Any, environ: Mapping[str, str], report: Report, path: str = "") -> Any:
    """A copy of decoded YAML with all references replaced. Invalid references are reported and become empty.

    A value that is empty because of its references is reported too: it would leave a key out, and with it
    authentication or storage. ``${env:NAME:-}`` permits it.
    """
    if isinstance(value, Mapping):
        return {key: resolve(one, environ, report, f"{path}.{key}" if path else key) for key, one in value.items()}
    if isinstance(value, list):
        return [resolve(one, environ, report, f"{path}.{index}") for index, one in enumerate(value)]
    if isinstance(value, str) and "$" in value:
        return _resolved(value, environ, lambda message: report(path, message))
    return value


def _resolved(text: str, environ: Mapping[str, str], report: Callable[[str], None]) -> str:
    reported: list[str] = []
    result = _REFERENCE.sub(lambda match: _replacement(match, environ, reported.append), text)
    empty = [] if result.strip() or reported else [one for one in map(_source, _WHOLE.findall(text)) if one is not None]
    if empty:
        reported.append(f"{' and '.join(empty)}: empty; write null, or ${{env:NAME:-}}, to leave the value out")
    for message in reported:
        report(message)
    return Text(result) if isinstance(text, Text) or _WHOLE.fullmatch(text) else result


def _source(reference: str) -> str | None:
    """The variable or file that a reference names; None if its own default permits that it is empty."""
    scheme, _, rest = reference[2:-1].partition(":")
    if scheme == "file":
        return f"file {rest}"
    name, default = _name_and_default(rest)
    return None if default == "" else f"environment variable {name}"


def _replacement(match: re.Match[str], environ: Mapping[str, str], report: Callable[[str], None]) -> str:
    whole, inner = match.group(0), match.group(1)
    if whole == "$$":
        return "$"
    if inner is None:
        report(f"a reference is not closed, or has another one inside; {_HELP}")
        return ""
    scheme, _, rest = inner.partition(":")
    if scheme == "env":
        return _variable(rest, environ, report)
    if scheme == "file" and rest:
        return _contents(rest, report)
    report(f"unknown reference {whole!r}; {_HELP}")
    return ""


def _variable(reference: str, environ: Mapping[str, str], report: Callable[[str], None]) -> str:
    name, default = _name_and_default(reference)
    if not _NAME.fullmatch(name):
        report(f"{name!r} is not a valid environment variable name: letters, digits and _ only, no digit first")
        return ""
    if name in environ:
        return environ[name]
    if default is None:
        report(f"environment variable {name} is not set, and there is no default (${{env:{name}:-default}})")
    return default or ""


def _name_and_default(reference: str) -> tuple[str, str | None]:
    """Name of a variable and its default, None where there is none."""
    name, dash, default = reference.partition(":-")
    return name, default if dash else None


def _contents(file: str, report: Callable[[str], None]) -> str:
    if (reason := why_no_path(file)) is not None:
        report(f"{file}: {reason}")
        return ""
    try:
        return read_text(Path(file)).rstrip()
    except OSError as error:
        report(f"{file}: cannot be read: {error.strerror or error}")
    except UnicodeDecodeError:
        report(f"{file}: is not UTF-8 text")
    except ValueError as error:
        report(f"{file}: {error}")
    return ""
