"""A shell command line in one form: quotes, bundled flags, ``./`` and a few equal spellings."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from .sql import unfenced

_TOKEN: Final = re.compile(
    r"\s+|\d?>&\d|&>|\d?>>?|<<<?|<|&&|\|\||[|;&()]|(?:\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s'\"\\|;&()<>])+|.", re.DOTALL
)
_QUOTED: Final = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)", re.DOTALL)
_SEPARATORS: Final = frozenset(("&&", "||", "|", ";", "&", "(", ")", "\n"))

_BUNDLING: Final = {
    "ls": "", "rm": "", "cp": "", "mv": "", "ps": "", "du": "d", "df": "", "wc": "", "cat": "", "mkdir": "m", "ln": "",
    "grep": "ABCefm", "egrep": "ABCefm", "head": "nc", "tail": "nc", "sort": "kto", "uniq": "", "cut": "dfc",
    "free": "",
    "uname": "", "chown": "", "touch": "", "tree": "L", "rmdir": "", "diff": "U", "rsync": "e", "tee": "",
    "which": "", "pwd": "", "pytest": "kmnpcroW", "curl": "XHdFouAbcekmrTwxC", "tar": "fCTX",
}  # fmt: skip
"""Commands whose short flags may be bundled, with those of their flags that take a value."""
_LONG_FLAGS: Final = {
    "--all": "-a", "--recursive": "-r", "--force": "-f", "--human-readable": "-h", "--ignore-case": "-i",
    "--line-number": "-n",
    "--invert-match": "-v", "--lines": "-n", "--parents": "-p", "--reverse": "-r", "--count": "-c",
    "--files-with-matches": "-l",
    "--numeric-sort": "-n", "--unique": "-u", "--word-regexp": "-w", "--bytes": "-c",
}  # fmt: skip
_LONG_OF: Final = {
    "curl": {
        "--silent": "-s", "--show-error": "-S", "--location": "-L", "--request": "-X", "--header": "-H", "--data": "-d",
        "--output": "-o", "--fail": "-f", "--insecure": "-k", "--head": "-I", "--include": "-i", "--user": "-u",
        "--max-time": "-m", "--user-agent": "-A", "--form": "-F",
    },
    "cp": {"--archive": "-a"},
    "cut": {"--delimiter": "-d", "--fields": "-f", "--characters": "-c"},
    "du": {"--summarize": "-s", "--max-depth": "-d"},
    "rm": {"--verbose": "-v"},
    "rsync": {"--archive": "-a", "--compress": "-z", "--dry-run": "-n", "--rsh": "-e", "--verbose": "-v"},
    "sort": {"--field-separator": "-t", "--key": "-k", "--output": "-o"},
    "tail": {"--follow": "-f"},
    "tar": {"--bzip2": "-j", "--create": "-c", "--extract": "-x", "--file": "-f", "--gzip": "-z", "--list": "-t",
            "--verbose": "-v", "--xz": "-J"},
    "uniq": {"--repeated": "-d"},
    "wc": {"--lines": "-l", "--words": "-w", "--chars": "-m"},
}  # fmt: skip
"""Long flags by program, where the general table does not hold."""
_TAKING: Final = {
    "git": frozenset(("-n", "-C", "-c", "-m", "-S", "-G", "-L", "-U", "-b", "-B", "-F", "-O")),
    "kubectl": frozenset(
        ["-n", "-l", "-o", "-f", "-c", "-k", "-s", "--context", "--tail", "--since", "--field-selector", "--kubeconfig"]
    ),
    "docker": frozenset(("-n", "-f", "--tail", "--since", "--until", "--format")),
    "apt": frozenset(("-t", "-o", "-c")),
    "apt-get": frozenset(("-t", "-o", "-c")),
}
"""Commands whose flags may stand before or after the operands, with those that take the next word."""
_SWITCHES: Final = {
    "git": frozenset(
        ["--all", "--amend", "--cached", "--decorate", "--force", "--graph", "--hard", "--name-only", "--name-status",
         "--no-color", "--no-edit", "--oneline", "--patch", "--porcelain", "--quiet", "--short", "--soft", "--stat",
         "-a", "-d", "-D", "-f", "-i", "-p", "-q", "-r", "-s", "-u", "-v", "-w"]
    ),
    "kubectl": frozenset(
        ("-A", "-w", "-p", "--all-containers", "--no-headers", "--previous", "--show-labels", "--watch")
    ),
    "docker": frozenset(("-a", "-q", "-t", "--details", "--no-stream", "--no-trunc", "--timestamps")),
    "apt": frozenset(("-y", "--yes", "-q", "-qq", "--no-install-recommends")),
    "apt-get": frozenset(("-y", "--yes", "-q", "-qq", "--no-install-recommends")),
}  # fmt: skip
"""Flags of these commands that take no value; an unknown flag keeps the word after it."""
_READING: Final = frozenset(("logs", "ps", "images", "inspect", "stats", "top", "port"))
"""Subcommands of docker whose words after the first operand are no other program's."""
_SAME_FLAG: Final = {
    "git": {"--staged": "--cached", "--max-count": "-n"},
    "kubectl": {"--namespace": "-n", "--selector": "-l", "--output": "-o", "--filename": "-f", "--container": "-c",
                "--all-namespaces": "-A"},
    "docker": {"--all": "-a", "--quiet": "-q", "--interactive": "-i", "--tty": "-t"},
    "pip": {"--requirement": "-r", "--upgrade": "-U", "--editable": "-e", "--quiet": "-q"},
    "npm": {"--save-dev": "-D", "--global": "-g"},
    "wget": {"--output-document": "-O", "--quiet": "-q"},
    "journalctl": {"--unit": "-u", "--lines": "-n", "--follow": "-f", "--boot": "-b"},
}  # fmt: skip
"""Long flags by program, and the short ones that mean the same."""
_RESOURCES: Final = {
    "po": "pods", "pod": "pods", "svc": "services", "service": "services", "deploy": "deployments",
    "deployment": "deployments", "ns": "namespaces", "namespace": "namespaces", "no": "nodes", "node": "nodes",
    "cm": "configmaps", "configmap": "configmaps", "ing": "ingresses", "ingress": "ingresses", "ev": "events",
}  # fmt: skip
"""Names of Kubernetes resources, as ``kubectl api-resources`` prints them."""
_ENDS_FLAGS: Final = frozenset(("--", ">", ">>", "<", "2>"))
_COUNTED: Final = frozenset(("head", "tail"))
_ONE_CASE: Final = {"grep": {"-R": "-r"}, "rm": {"-R": "-r"}, "cp": {"-R": "-r"}}
_MODULES: Final = frozenset(
    ("pytest", "pip", "mypy", "ruff", "black", "flake8", "isort", "coverage", "tox", "pylint", "unittest")
)
_DIRECTORY_FLAGS: Final = {
    "git": ("-C",), "make": ("-C", "--directory"), "npm": ("--prefix", "-C"), "pnpm": ("-C", "--dir"),
    "tar": ("-C", "--directory"), "yarn": ("--cwd",),
}  # fmt: skip
_SUBCOMMANDS: Final = {("npm", "i"): "install", ("npm", "t"): "test", ("npm", "add"): "install", ("pip",
"uninstall"): "uninstall",
                       ("git", "co"): "checkout", ("git", "st"): "status"}  # fmt: skip
_TWO_WORDS: Final = {("docker", "container", "ls"): "ps", ("docker", "image", "ls"): "images",
                     ("npm", "run", "test"): "test", ("npm", "run", "start"): "start"}  # fmt: skip
_SHELLS: Final = frozenset(("bash", "sh", "zsh"))


_BRACED: Final = re.compile(r"\$\{(\w{1,64})\}(?!\w)")
_COMMENT_LINE: Final = re.compile(r"^[ \t]*#(?!!)[^\n]*\n", re.MULTILINE)
MAX_TOKENS: Final = 2_048
"""Longer scripts are compared by their words alone."""
MAX_FOLDERS: Final = 64
"""A script of more commands than this keeps each ``cd`` where it stands."""


def normalize_shell(text: str) -> str:
    """The canonical form of a command line; what is not understood stays in its order."""
    parts: list[str] = []
    folder = ""
    tokens = _TOKEN.findall(_BRACED.sub(r"$\1", _COMMENT_LINE.sub("", unfenced(text))).strip().rstrip(";").rstrip())
    if len(tokens) > MAX_TOKENS:
        return " ".join(text.split())
    commands = _counting(_split(tokens))
    follow = len(commands) <= MAX_FOLDERS
    for position, (words, separator) in enumerate(commands):
        if (
            follow
            and words[:1] == ["cd"]
            and len(words) == 2
            and separator in ("&&", ";")
            and position + 1 < len(commands)
        ):
            folder = posixpath.normpath(posixpath.join(folder, words[1]))
            continue
        parts.append(_render(words, folder))
        parts.append(separator)
    return " ".join(part for part in _line_range(_without_cat(parts)) if part)


def _split(tokens: list[str]) -> list[tuple[list[str], str]]:
    """Simple commands as (words, separator after it). Merging stderr into stdout is presentation and is dropped."""
    commands: list[tuple[list[str], str]] = []
    words: list[str] = []
    for token in tokens:
        if token.isspace() and "\n" not in token:
            continue
        separator = ";" if token.isspace() else token
        if token.isspace() or token in _SEPARATORS:
            if words or separator != ";":
                commands.append((words, separator))
            words = []
        elif token not in ("2>&1", "&>1"):
            words.append(_unquote(token, is_path_kept="rsync" in words[:2]))
    return [*commands, (words, "")]


def _counting(commands: list[tuple[list[str], str]]) -> list[tuple[list[str], str]]:
    """``grep x file | wc -l`` as ``grep -c x file``: the same number. Of several files grep would count each."""
    last = commands[-2:]
    if len(last) == 2 and last[0][1] == "|" and last[1] == (["wc", "-l"], ""):
        words = last[0][0]
        if (
            words[:1] == ["grep"]
            and sum(word[:1] != "-" for word in words) <= _ONE_FILE
            and not _MANY_FILES.search(" ".join(words))
        ):
            return [*commands[:-2], (["grep", "-c", *words[1:]], "")]
    return commands


_ONE_FILE: Final = 3
_MANY_FILES: Final = re.compile(r" -[a-zA-Z]*[cmorRABC]| --|[*?]")
"""Flags of grep by which it reads folders or writes other lines than those it finds, and patterns of file names."""


def _unquote(token: str, *, is_path_kept: bool) -> str:
    """A word without its quotes, a path in one form, but for rsync: there a slash at the end means what is inside."""
    if "'" not in token and '"' not in token and "\\" not in token:
        return token if is_path_kept else _clean_path(token)
    return _QUOTED.sub(_bare, token).replace(" ", "\u00a0").replace("\n", "\u0085")


def _bare(match: re.Match[str]) -> str:
    """A quoted part without its quotes; marks stay where the quotes keep the shell from reading the text."""
    single, double, escaped = match.groups()
    if escaped is not None:
        return escaped if escaped == " " else "\\" + escaped
    inner = double if single is None else single
    if single is not None and _EXPANDED.search(inner):
        return f"\u2018{inner}\u2019"
    return f"\u201c{inner}\u201d" if _GLOB.search(inner) else inner


_EXPANDED: Final = re.compile(r"[$`\\]")
_GLOB: Final = re.compile(r"[*?\[~\\|;&<>]")


def _clean_path(token: str) -> str:
    if token.startswith("./") and len(token) > 2:
        token = token[2:]
    if token.endswith("/") and len(token) > 1 and not token.endswith("://"):
        token = token.rstrip("/") or "/"
    return _SLASHES.sub("/", token) if "//" in token and token[0] in "/~." else token


_SLASHES: Final = re.compile("//+")


def _render(words: list[str], folder: str) -> str:
    if not words:
        return ""
    if words[0] == "sudo" and len(words) > 1 and words[1][:1] != "-":
        return "sudo " + _render(words[1:], folder)
    words, inner = _take_directory(words)
    words = _program(_without_settings(words))
    if len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc") and not _QUOTE_MARK.search(words[2]):
        return normalize_shell(words[2].replace("\u00a0", " ").replace("\u0085", "\n"))
    folder = posixpath.normpath(posixpath.join(folder, inner)) if inner else folder
    program = words[0] if words else ""
    if program in _BUNDLING:
        arguments = [word for word in _flags(program, words[1:]) if word not in _QUIET.get(program, ())]
    else:
        same = _SAME_FLAG.get(program, {})
        arguments = _flags_first(program, [same.get(word, word) for word in _spread(words[1:])])
    prefix = [f"@{folder}"] if folder and folder != "." else []
    return " ".join([*prefix, program, *arguments])


def _without_settings(words: list[str]) -> list[str]:
    """The words without long options that set how long, how often, how loudly or how colourfully a program works.

    >>> _without_settings(["pip", "install", "--no-cache-dir", "--timeout", "60", "--retries=3", "torch"])
    ['pip', 'install', 'torch']
    """
    if "--" not in " ".join(words):
        return words
    kept: list[str] = []
    skips = False
    for word in words:
        name, _, value = word.partition("=")
        if skips and _SETTING_VALUE.match(word):
            skips = False
        elif word == "--":
            return [*kept, *words[words.index(word) :]]
        else:
            skips = _SETTINGS.match(name) is not None or (name == "--silent" and words[0] not in _QUIET)
            if not skips:
                kept.append(word)
            skips = skips and not value
    return kept


_SETTINGS: Final = re.compile(
    r"--(?:(?:connect-|read-)?time-?out|max-time|retry|retries|retry-(?:delay|max-time)|(?:no-)?(?:cache(?:-dir)?|colou?r|progress)"
    r"|verbose|quiet|log-?level|progress-bar)\Z"
)
_QUIET: Final = {"curl": ("-s", "-S")}
_SETTING_VALUE: Final = re.compile(
    r"(?:\d{1,6}(?:\.\d{1,3})?[a-z]{0,2}|always|auto|debug|error|info|never|plain|warn)\Z"
)


_QUOTE_MARK: Final = re.compile("[\u2018\u2019\u201c\u201d\\\\]")


def _flags_first(program: str, words: list[str]) -> list[str]:
    """Flags of a command that takes them anywhere, sorted, before its operands; from ``--`` on nothing moves."""
    if program == "find":
        return _tests_of_find(words)
    if program not in _TAKING or (program == "docker" and words[:1] and words[0] not in _READING):
        return words
    flags: list[str] = []
    operands: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word in _ENDS_FLAGS:
            operands += [word, *reversed(rest)]
            break
        if word[:1] != "-" or len(word) < 2:
            operands.append(word)
        elif word in _SWITCHES[program] or not rest or (word not in _TAKING[program] and rest[-1][:1] == "-"):
            flags.append(word)
        else:
            flags.append(f"{word} {rest.pop()}")
    return sorted(flags) + operands


def _program(words: list[str]) -> list[str]:
    """``python -m pytest`` runs pytest; short names of subcommands are written out."""
    if words[0] == "env" and len(words) > 2 and _ASSIGNMENT.match(words[1]):
        words = words[1:]
    if words[0] == "docker-compose":
        words = ["docker", "compose", *words[1:]]
    if words[0] == "tar" and len(words) > 1 and words[1].isalpha():
        words = ["tar", "-" + words[1], *words[2:]]
    if tuple(words[:3]) in _TWO_WORDS:
        words = [words[0], _TWO_WORDS[words[0], words[1], words[2]], *words[3:]]
    if words[0] == "chmod" and len(words) > 1 and _OCTAL.match(words[1]):
        words = ["chmod", words[1][1:], *words[2:]]
    if words[0] in ("systemctl", "service"):
        words = [word.removesuffix(".service") for word in words]
    if words[0] == "kubectl":
        verb = next((at for at, word in enumerate(words) if word in ("get", "describe", "delete")), len(words))
        words = [_RESOURCES.get(word, word) if at == verb + 1 else word for at, word in enumerate(words)]
    if len(words) > 2 and words[0] in ("python", "python3", "py") and words[1] == "-m" and words[2] in _MODULES:
        words = words[2:]
    if len(words) > 1 and (words[0], words[1]) in _SUBCOMMANDS:
        words = [words[0], _SUBCOMMANDS[words[0], words[1]], *words[2:]]
    return words


_FIND_TESTS: Final = frozenset(
    ("-name", "-iname", "-path", "-type", "-size", "-mtime", "-user", "-maxdepth", "-mindepth")
)


def _tests_of_find(words: list[str]) -> list[str]:
    """The tests of ``find`` sorted, where there is nothing but tests that all must hold."""
    start = next((at for at, word in enumerate(words) if word[:1] == "-"), len(words))
    tests = [f"{name} {value}" for name, value in zip(words[start::2], words[start + 1 :: 2], strict=False)]
    if (len(words) - start) % 2 or not all(test.split(" ", 1)[0] in _FIND_TESTS for test in tests):
        return words
    return [*words[:start], *sorted(tests)]


_OCTAL: Final = re.compile(r"\A0[0-7]{3}\Z")
_ASSIGNMENT: Final = re.compile(r"\A[A-Za-z_]\w*=")


def _take_directory(words: list[str]) -> tuple[list[str], str]:
    """The words without the option that sets the working directory, and that directory."""
    flags = _DIRECTORY_FLAGS.get(words[0], ())
    for position in range(1, len(words) if flags else 0):
        flag, given, value = words[position].partition("=")
        if flag in flags and given:
            return words[:position] + words[position + 1 :], value
        if flag in flags and position + 1 < len(words):
            return words[:position] + words[position + 2 :], words[position + 1]
    return words, ""


def _spread(arguments: list[str]) -> list[str]:
    """``--option=value`` as two words; ``-5`` of ``git log`` as ``-n 5``."""
    result: list[str] = []
    for word in arguments:
        if word.startswith("--") and "=" in word:
            result.extend(word.split("=", 1))
        elif "log" in arguments[:2] and word[:1] == "-" and word[1:].isdigit():
            result.extend(("-n", word[1:]))
        else:
            result.append(word)
    return result


def _flags(program: str, arguments: list[str]) -> list[str]:
    """Flags of a well-known program, unbundled and sorted, before its operands in their order."""
    taking = _BUNDLING[program]
    flags: list[str] = []
    operands: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in _ENDS_FLAGS:
            operands.extend((word, *words))
        elif word.startswith("--"):
            short = _long_flag(program, word)
            valued = program in _LONG_OF and len(short) == 2 and short[1] in taking
            flags.append(f"{short} {next(words, '')}" if valued else short)
        elif word[:1] == "-" and len(word) > 1:
            flags.extend(_unbundle(program, word, taking, words))
        else:
            operands.append(word)
    folded = _ONE_CASE.get(program, {})
    if program == "curl" and not any(flag[:2] in ("-d", "-F", "-T", "-I") for flag in flags):
        flags = [flag for flag in flags if flag != "-X GET"]
    return sorted(folded.get(flag, flag) for flag in flags) + operands


def _long_flag(program: str, word: str) -> str:
    name, _, value = word.partition("=")
    if program in ("grep", "egrep") and name == "--reverse":
        return word
    known = _LONG_OF.get(program, {})
    return known.get(name, name if program == "curl" else _LONG_FLAGS.get(name, name)) + (f" {value}" if value else "")


def _unbundle(program: str, word: str, taking: str, rest: Iterator[str]) -> list[str]:
    if program in _COUNTED and word[1:].isdigit():
        return [f"-n {word[1:]}"]
    flags: list[str] = []
    for position, letter in enumerate(word[1:], 1):
        if letter in taking:
            value = word[position + 1 :] or next(rest, "")
            return [*flags, f"-{letter} {value}"]
        flags.append("-" + letter)
    return flags


def _without_cat(parts: list[str]) -> list[str]:
    """``cat file | grep x`` and ``grep x < file`` as ``grep x file``: the same reading of one file."""
    if len(parts) >= 3 and parts[1] == "|" and parts[0].startswith("cat ") and parts[0].count(" ") == 1:
        program = parts[2].split(" ", 1)[0]
        if program in _READERS and "-" not in parts[0][:5]:
            return [f"{parts[2]} {parts[0][4:]}", *parts[3:]]
    if parts and parts[0].split(" ", 1)[0] in _READERS and parts[0].count(" < ") == 1:
        return [parts[0].replace(" < ", " "), *parts[1:]]
    return parts


_READERS: Final = frozenset(("grep", "egrep", "head", "tail", "sort", "sed", "wc", "awk", "jq", "uniq", "cut"))
_HEAD: Final = re.compile(r"head (?:-n (\d+) )?(\S+)\Z")
_SED: Final = re.compile(r"sed -n (\d+)(?:,(\d+))?p (\S+)\Z")
_FROM_LINE: Final = re.compile(r"tail -n \+(\d+)\Z")
_LAST_LINES: Final = re.compile(r"tail -n (\d+)\Z")


def _line_range(parts: list[str]) -> list[str]:
    """``head -n 20 f``, ``sed -n 1,20p f`` and ``head -n 20 f | tail -n +1`` in one form: which lines of which file."""
    head, sed = _HEAD.match(parts[0]) if parts else None, _SED.match(parts[0]) if parts else None
    if sed:
        return [f"lines {sed[1]}-{sed[2] or sed[1]} {sed[3]}", *parts[1:]]
    if head is None or head[2].startswith("-"):
        return parts
    last = int(head[1] or 10)
    if len(parts) > 2 and parts[1] == "|":
        onwards, tail = _FROM_LINE.match(parts[2]), _LAST_LINES.match(parts[2])
        if onwards:
            return [f"lines {onwards[1]}-{last} {head[2]}", *parts[3:]]
        if tail and int(tail[1]) <= last:
            return [f"lines {last - int(tail[1]) + 1}-{last} {head[2]}", *parts[3:]]
    return [f"lines 1-{last} {head[2]}", *parts[1:]]


def seeks_the_same(command: str, other: str) -> bool:
    """Whether two command lines in normal form look for one thing: a file by its name, a text, what a file holds.

    >>> seeks_the_same("find . -name app.toml", "git ls-files | grep app.toml")
    True
    >>> seeks_the_same("tail -n 50 /var/log/app.log", "sudo cat /var/log/app.log")
    True
    >>> seeks_the_same("grep -n todo a.py", "grep -n todo b.py"), seeks_the_same("grep foo a.py", "grep bar a.py")
    (False, False)
    >>> seeks_the_same("cat >> notes.txt", "cat notes.txt"), seeks_the_same("find . -name a.tmp -delete", "ls a.tmp")
    (False, False)
    """
    sought, place = _sought(command)
    others, other_place = _sought(other)
    if place and other_place and place != other_place:
        return False  # one place after the other
    return any(one in two or two in one for one in sought for two in others)


def _sought(command: str) -> tuple[frozenset[str], str]:
    """What a command line looks for, in lower case without wildcards; and the place in which it looks, if it names one.

    Nothing where it writes: then silence means that all went well.
    """
    if _WRITES.search(command) is not None:
        return frozenset(), ""
    for part in reversed(re.split(r" (?:\|\|?|&&|;) ", command[:_MAX_SOUGHT_CHARS].lower())):
        words = [word for word in part.split() if word not in ("sh", "sudo") and word[:1] != "@"]
        program, operands = words[0] if words else "", [word for word in words[1:] if word[:1] not in "-&<>0123456789"]
        place = ""
        if program == "find":
            place = " ".join([word for word in operands[:1] if word not in _EVERYWHERE])
            operands = [value for test, value in pairwise(words) if test in _NAME_TESTS]
        elif program in _SEARCHERS:
            place = " ".join([word for word in operands[1:] if word not in _EVERYWHERE])
            operands = operands[:1]
        elif program not in _SHOWERS:
            continue
        found = frozenset(name for word in operands if len(name := max(_WILD.split(word), key=len)) >= _MIN_SOUGHT)
        if found:
            return found, place
    return frozenset(), ""


_WRITES: Final = re.compile(r"(?<!2)>|<<| -(?:exec|execdir|delete|ok)\b| tee ")
_MAX_SOUGHT_CHARS: Final = 512
_MIN_SOUGHT: Final = 4
_EVERYWHERE: Final = frozenset((".", "..", "/", "~", "*", "$home"))
_NAME_TESTS: Final = frozenset(("-name", "-iname", "-path", "-ipath", "-wholename"))
_SEARCHERS: Final = frozenset(
    ("ack", "ag", "egrep", "fd", "fdfind", "fgrep", "grep", "locate", "rg", "type", "whereis", "which", "zgrep")
)
_SHOWERS: Final = frozenset(
    ("awk", "bat", "cat", "cut", "du", "file", "head", "jq", "less", "lines", "ls", "more", "nl", "od", "stat",
     "strings", "tac", "tail", "tree", "wc", "xxd", "zcat")
)  # fmt: skip
_WILD: Final = re.compile(r"[*?\[\]^$\\\u2018\u2019\u201c\u201d\u00a0]")
