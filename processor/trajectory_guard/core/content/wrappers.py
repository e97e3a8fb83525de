"""Frames that a harness or a service puts around an answer: streams of a command, ids of the exchange, reminders.

None of it is the answer: a reminder makes "ok" a long text, a request id makes it a new one. An unknown frame stays,
and so does every frame that says that something went wrong.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from trajectory_guard.core.content.masking import is_volatile_key
from trajectory_guard.core.fingerprints import object_in
from trajectory_guard.core.similarity.keys import names_exchange
from trajectory_guard.core.text import text_of
from trajectory_guard.core.text_bounds import MAX_UNDERSTOOD_CHARS

_STEMS: Final = (
    'tdout"', 'utput"', 'ata"', 'esult"', 'esults"', 'esponse"', 'ayload"', 'alue"', 'ontent"', "isclaimer", "opyright",
    "owered", "equest", "race", "orrelation",
)  # fmt: skip
"""An object that is a wrapper holds one of these parts of the names of its members: most objects hold none."""


def unwrapped(result: str, args: Any) -> str:
    """An object without what a harness or a service put around its content: all that the functions below know."""
    if len(result) > MAX_UNDERSTOOD_CHARS or not [stem for stem in _STEMS if stem in result]:
        return result
    return content_of(without_exchange(output_of(result), args))


EXIT_KEYS: Final = frozenset(
    f"{kind}{gap}{what}" for kind in ("exit", "return") for gap in ("", "_", "-", " ") for what in ("code", "status")
)
"""Names of the exit status of a command, in lower case."""
EXIT_STATUS: Final = "|".join(sorted(EXIT_KEYS))
"""The same, to be part of a pattern."""
_STREAM: Final = re.compile(r'"(?:stdout|output)"')
_HEAD_CHARS: Final = 256
_STREAMS: Final = (("stdout", "stderr"), ("output", "error"), ("output", "stderr"))
_OF_COMMAND: Final = re.compile(
    rf"{EXIT_STATUS}|code|status|success|ok|error|signal|pid|cmd|command|cwd|shell"
    r"|user|host(?:name)?|truncated|timed_?out|interrupted|is_?image|no_?output_?expected|wall_?time(?:_\w{1,12})?",
    re.IGNORECASE,
)
_WELL: Final = (None, 0, "0", False, "", "success", "completed", "ok")


def output_of(result: str) -> str:
    """The output of a command that ended well, of an object with its streams; ``result`` itself if it is none.

    >>> output_of('{"stdout": "3 rows", "stderr": "", "exit_code": 0, "wall_time": 0.31}')
    '3 rows'
    >>> output_of('{"output": "", "error": "", "success": true}')
    ''
    >>> output_of('{"output": "half", "error": "", "success": false}')
    '{"output": "half", "error": "", "success": false}'
    >>> output_of('{"stdout": "", "stderr": "no such table", "exit_code": 1}')
    '{"stdout": "", "stderr": "no such table", "exit_code": 1}'
    """
    if _STREAM.search(result[:_HEAD_CHARS]) is None:
        return result
    members = object_in(result)
    names = next((pair for pair in _STREAMS if all(type(members.get(name)) is str for name in pair)), ())
    if not names:
        return result
    streams = [members[name] for name in names]
    others = {key: item for key, item in members.items() if key not in names and not is_volatile_key(key)}
    if not all(_OF_COMMAND.fullmatch(key) is not None for key in others):
        return result  # it holds more than the output of a command
    if any(_ENDED.fullmatch(key) is not None and item not in _WELL for key, item in others.items()):
        return result
    if (names[1] == "error" and streams[1]) or any(members.get(key) is False for key in ("success", "ok")):
        return result
    return "\n".join([one for one in streams if one])


_ENDED: Final = re.compile(rf"{EXIT_STATUS}|code|status|error|signal|timed_?out|interrupted", re.IGNORECASE)

_EXCHANGE_MEMBER: Final = re.compile(
    r'"(?:(?:x[_-])?(?:amzn[_-])?(?:request|trace|correlation)[_-]?id|disclaimer|copyright|powered_?by)"\s{0,4}:',
    re.IGNORECASE,
)
_LEGAL: Final = re.compile(r"disclaimer|copyright|powered_?by", re.IGNORECASE)
_LASTED: Final = re.compile(
    r"(?:took|latency|elapsed|duration|response_?time|processing_?time|server_?time)(?:_?(?:ms|s|us|ns|secs?|seconds))?",
    re.IGNORECASE,
)


def without_exchange(result: str, args: Any) -> str:
    """An object without the id of the exchange that brought it, the time that this took, and a disclaimer.

    An id that the request names is what was asked for.

    >>> without_exchange('{"ok": true, "request_id": "8fff2e2a", "took_ms": 874}', {"id": 7})
    '{"ok": true}'
    >>> without_exchange('{"status": "open", "request_id": "8fff2e2a"}', {"request": "8fff2e2a"})
    '{"status": "open", "request_id": "8fff2e2a"}'
    """
    if _EXCHANGE_MEMBER.search(result) is None:
        return result
    members = object_in(result)
    ids = [key for key, item in members.items() if names_exchange(key) and type(item) in (str, int)]
    legal = [key for key in members if _LEGAL.fullmatch(key) is not None]
    if not (ids or legal) or (args and any(text_of(members[key]) in text_of(args) for key in ids)):
        return result
    left = {
        key: item
        for key, item in members.items()
        if key not in ids and key not in legal and not (ids and _LASTED.fullmatch(key) is not None)
    }
    return json.dumps(left, ensure_ascii=False) if left else result


_CONTENTS: Final = ("data", "result", "results", "response", "payload", "value", "content", "output", "stdout")
_ASIDE: Final = (
    r"meta(?:data)?|_meta|version|api_?version|jsonrpc|id|server|timestamp|role|tool_?call_?id"
    r"|disclaimer|copyright|powered_?by|served_?by|host|node|region|quota|rate_?limits?|usage"
)
_SAYS_NOTHING: Final = re.compile(_ASIDE, re.IGNORECASE)
_OF_ENVELOPE: Final = re.compile(
    r"success(?:ful)?|succeeded|ok|is_?error|status_?code|code|err_?(?:code|no)|(?:exit|return)_?(?:code|status)|stderr|errors?|warnings?|messages?|msg|errmsg|"
    + _ASIDE,
    re.IGNORECASE,
)
_GOES_WELL: Final[tuple[Any, ...]] = (
    None, 0, 200, "", "0", "200", "ok", "OK", "success", "Success", "succeeded", "done", [], {},
)  # fmt: skip


def _goes_well(item: Any) -> bool:
    """Whether a member of an envelope says that nothing went wrong. A truth value is no number here."""
    return item is True or (item is not False and item in _GOES_WELL)


def content_of(result: str) -> str:
    """The one content of an object that else only says that all went well; ``result`` itself if it is none.

    >>> content_of('{"success": true, "data": {"rows": 7}, "meta": {"version": "2.3"}}')
    '{"rows": 7}'
    >>> content_of('{"success": false, "data": {"rows": 7}}'), content_of('{"status": "queued", "data": "7"}')
    ('{"success": false, "data": {"rows": 7}}', '{"status": "queued", "data": "7"}')
    >>> content_of('{"output": "7 rows", "metadata": {"exit_code": 0}}')
    '7 rows'
    >>> content_of('{"output": "", "metadata": {"exit_code": 1}}'), content_of('{"stdout": "7", "exitCode": 1}')
    ('{"output": "", "metadata": {"exit_code": 1}}', '{"stdout": "7", "exitCode": 1}')
    >>> content_of('{"data": {"rows": 7}}')
    '{"data": {"rows": 7}}'
    """
    if _CONTENT.search(result) is None:
        return result
    members = object_in(result)
    names = [key for key in members if key.lower() in _CONTENTS]
    others = [(key, item) for key, item in members.items() if key not in names]
    if len(names) != 1 or not others or ("id" in members and "jsonrpc" not in members):
        return result
    for key, item in others:
        if isinstance(item, dict) and any(
            name.lower() in EXIT_KEYS and code not in _GOES_WELL for name, code in item.items()
        ):
            return result
        failed = key.lower().replace("_", "") == "iserror"
        well = item is False if failed else _goes_well(item)
        if _OF_ENVELOPE.fullmatch(key) is None and not is_volatile_key(key):
            return result
        if not (well or _SAYS_NOTHING.fullmatch(key) is not None or is_volatile_key(key)):
            return result
    content = members[names[0]]
    if content in _NOTHING:
        left = {key: item for key, item in members.items() if _SAYS_NOTHING.fullmatch(key) is None}
        return json.dumps(left, ensure_ascii=False) if len(left) > 1 else result  # the others say that it went well
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


_CONTENT: Final = re.compile(r'"(?:data|results?|response|payload|value|content|output|stdout)"\s{0,4}:')
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {}, False)


_END_CHARS: Final = 200
_MAX_FRAMES: Final = 6
_LINE_CHARS: Final = 60
_BLOCK_CHARS: Final = 4_200
_UNIT: Final = r"(?:ms|s|secs?|seconds)"
_FEET: Final = re.compile(
    # the id of the request, and how long it took
    r"\n[^\w\n]{0,4}(?:x-)?(?:request|trace|correlation)(?:[ _-]?id)?[ :=#(]{1,4}(?=[\w-]{0,63}\d)[\w-]{6,64}"
    rf"(?:[^\w\n]{{1,4}}(?:took|in|after|elapsed|duration|latency)?[ :=]{{0,3}}\d[\d.]{{0,9}} ?{_UNIT})?"
    r"[^\w\n]{0,4}\s*\Z"
    # what is left of the means of the agent, and not of those of its task
    r"|\n[^\w\n]{0,4}(?:tokens?|context(?: window)?|queries|api (?:calls|requests|quota|credits)|costs?(?= so far))\b"
    r"(?=[^\n]{0,60}\d)"
    r"(?=[^\n]{0,60}\b(?:used|left|remain(?:s|ing)?|so far|today)\b)[^\n]{0,80}\s*\Z"
    # how long it took, by whom it is, where the next command goes
    rf"|\n[^\w\n]{{0,4}}(?:(?:completed|finished|done) in|took) \d[\d.]{{0,9}} ?{_UNIT}[^\w\n]{{0,4}}\s*\Z"
    r"|\n[^\w\n]{0,4}powered by [^\n]{1,60}\Z"
    r"|(?:\A|\n)[\w.-]{1,32}@[\w.-]{1,64}:[^\s$#]{0,80}(?: \([\w./-]{1,40}\))?(?: \d{1,3})? ?[$#]\s*\Z"
    r"|\n(?:bash|sh|zsh)-?[\d.]{0,8}[$#]\s*\Z"
    # where a command has run
    r"|(?:\A|\n)[(\[](?:open file|current (?:working )?directory|working directory|cwd|python interpreter)[:=] ?"
    r"[^\n]{0,120}[)\]]\s*\Z"
    # a command ended well
    r"|(?:\A|\n)[^\w\n]{0,3}(?:[A-Za-z]{1,12} ){0,4}(?:exit(?:ed)?|return(?:ed)?|finished|completed)[ _-]?(?:with )?"
    r"(?:exit )?(?:code|status)[ :=]{1,3}0(?: ?\((?=[a-z]+ )[^()\n]{1,80}\))?[^\w\n]{0,3}\s*\Z"
    r"|(?:\A|\n)exit_?(?:code|status)[=:] ?0(?: (?:duration|elapsed|time|took|cwd|pid)[=:] ?[^\s=]{1,80}){0,4}\s*\Z"
    r"|(?:\A|\n)\[exit(?: code)? 0\](?: ?\[[^\]\n]{1,60}\]){0,4}\s*\Z",
    re.IGNORECASE,
)
"""All of a last line, and the break before it."""
_NOTE: Final = (
    r"(?:note|notice|disclaimer|hint|tip|important|reminder|nota|aviso|hinweis|remarque|примечание"
    r"|注意?|提示|参考) ?[:：]"
)
_REMARK: Final = re.compile(
    rf"\n\s{{0,9}}\n{_NOTE}[^\d\n{{}}\[\]<>|]{{1,400}}\Z|\A{_NOTE}[^\d\n{{}}\[\]<>|]{{1,400}}\n\s{{0,9}}\n",
    re.IGNORECASE,
)
"""A paragraph of advice before or behind an answer, without figures and fields."""
_REMARK_CHARS: Final = 420
_CLOSING: Final = re.compile(r"</((?:system|environment|budget|token)[_:-][\w:-]{1,40}|reminder)>\Z", re.IGNORECASE)
"""The end of a block that a harness writes to the model."""
_FRAMES: Final = re.compile(
    r"\A\s{0,9}(?:"
    r"```[\w-]{0,20}\n(?P<fenced>(?s:.){0,8000}?)\n?```"
    r"|<(?:std)?out(?:put)?>(?P<streamed>(?:(?!</?std)(?s:.)){0,8000}?)</(?:std)?out(?:put)?>\s{0,9}<stderr>\s{0,9}</stderr>"
    r"(?:\s{0,9}<(?P<code>exit_?code|returncode)>0</(?P=code)>)?"
    r"|(?:<returncode>0</returncode>\s{0,9})?"
    r"<(?P<tag>(?:tool_|function_)?(?:output|results?|response|stdout|observation|system))(?: [^<>\n]{0,120})?>\n?"
    r"(?P<tagged>(?:(?!</?(?P=tag)>)(?s:.)){0,8000}?)\n?</(?P=tag)>"
    r"|(?:std ?out|output):[ \t]{0,9}\n?(?P<printed>(?s:.){0,8000}?)\n?(?:std ?err|errors?):"
    r")\s{0,9}\Z",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(
    r"\A\s{0,9}(?:(?:observation|tool (?:output|result|response))(?: \((?:ok|success)\))?:\s{0,3}"
    r"|#{1,4} (?:output|results?|response)\s{0,3}\n\s{0,9})",
    re.IGNORECASE,
)
_CLOCK: Final = re.compile(
    r"\A\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[ :-]{1,3}"
    r"(?=[^\W\d]|[{\[\x22]|\Z)"
)
"""The time at which a short line was written."""
_COUNT: Final = re.compile(
    r"\A\W{0,9}(?:step|turn|iteration|round|call|action|observation)(?: ?no\.?| ?number)?[ :#=-]{1,3}\d{1,6}"
    r"(?: ?(?:of|/) ?\d{1,6})?\W{0,9}\n",
    re.IGNORECASE,
)
"""A first line that only counts the calls."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_OPENS: Final = ("`", "<", "#", "s", "S", "o", "O", "t", "T")
_ESCAPE: Final = "\x1b"


def without_frame(result: str) -> str:
    """A text without what was put around it: reminders of the harness, ids of the request, labels, fences, colours.

    >>> without_frame("saved\\n(request 8fff2e2a5120a33f, took 244 ms)"), without_frame("Observation: saved")
    ('saved', 'saved')
    >>> without_frame("saved\\n\\n<system-reminder>\\nThe list of tasks is empty.\\n</system-reminder>")
    'saved'
    >>> without_frame("STDOUT:\\n\\nSTDERR:\\n"), without_frame("<returncode>0</returncode>\\n<output>\\n</output>")
    ('', '')
    >>> without_frame("[Command succeeded with exit code 0]"), without_frame("exit code: 1")
    ('', 'exit code: 1')
    >>> without_frame("[Step 4 of 80]\\nsaved"), without_frame("Step 4 of 80: copied")
    ('saved', 'Step 4 of 80: copied')
    >>> without_frame("food\\nbudget left: 40"), without_frame("table: users\\nrows returned: 0")
    ('food\\nbudget left: 40', 'table: users\\nrows returned: 0')
    """
    if result[:1] == "{" and "\n" not in result:
        return result  # as most results: an object by itself
    text = _COLOURS.sub("", result) if _ESCAPE in result[:_END_CHARS] else result
    for _ in range(_MAX_FRAMES):
        inner = _inside(text)
        if inner is text:
            break
        text = inner
    return text


def _inside(text: str) -> str:
    """A text without one of its frames; ``text`` itself if it has none."""
    end = text[-_END_CHARS:].rstrip()
    if end[-1:] == ">" and (closing := _CLOSING.search(end)) is not None:
        start = text.rfind(f"<{closing[1]}>", max(0, len(text) - _BLOCK_CHARS))
        if start >= 0:
            return text[:start].rstrip()
    if "\n" in end or "0" in end or "@" in end or "[" in end:
        last_line = text.rstrip().rfind("\n")
        if (foot := _FEET.match(text, max(0, len(text) - _END_CHARS, last_line))) is not None:
            return text[: foot.start()]
    if "\n\n" in text[-_REMARK_CHARS:] or "\n\n" in text[:_REMARK_CHARS]:
        for part in (_REMARK.search(text, max(0, len(text) - _REMARK_CHARS)), _REMARK.match(text)):
            if part is not None:
                return text[: part.start()] + text[part.end() :]
    if text.lstrip()[:1] in _OPENS:
        if (frame := _FRAMES.match(text)) is not None:
            return next((one for one in frame.group("fenced", "tagged", "printed", "streamed") if one is not None), "")
        if (label := _LABEL.match(text)) is not None:
            return text[label.end() :]
    if "\n" in text[:_LINE_CHARS] and (count := _COUNT.match(text)) is not None:
        return text[count.end() :]
    if (
        text[_LINE_CHARS:] == ""
        and text[:5].count(":") + text[:5].count("-")
        and (clock := _CLOCK.match(text)) is not None
    ):
        return text[clock.end() :]
    return text
