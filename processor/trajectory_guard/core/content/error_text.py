"""The parts of a result that are no sign of an error, whatever their words, and the names a validation error asks for.

A member such as ``"error": null`` says that nothing failed; a warning above a result is not the result; a prefix that
names the tool is not the answer. None of the three is an error because of the words in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from trajectory_guard.core.content.result_text import MAX_FORM_CHARS
from trajectory_guard.core.fingerprints import object_in
from trajectory_guard.core.literals import parse_literal
from trajectory_guard.core.wordlists import ascii_beginnings, beginnings, may_hold

ERROR_WORDS: Final = (
    "error|exception|traceback|fatal|failed|failure|invalid|cannot|could not|unable to|unknown|unrecognized"
    "|fehler|erreur|errore|erro|fout|fel|błąd|ошибка|помилка|σφάλμα|hata|خطأ|שגיאה|त्रुटि|ข้อผิดพลาด|lỗi|エラー|错误|錯誤|오류"
)

_ERROR_LIKE: Final = re.compile(
    rf"^\W*(?:{ERROR_WORDS}|usage(?=:))(?:\b|\s|:|：)"
    r"|^[\w./-]{1,40}: (?:.{0,80}\b)?(?:unmatched|invalid|cannot|can't|no such|not found|denied|unrecognized|unknown"
    r"|missing|illegal|bad|failed|error|unexpected|expected|undefined|unable to|could not|does not exist)\b",
    re.IGNORECASE,
)
_FORM_OF_ERROR: Final = re.compile(
    r"\A\W{0,9}(?:(?:[\w.-]{1,40}:|[Ll]ine \d{1,6}:?) )?(?:Uncaught (?:\(in promise\) )?|Unhandled exception\. )?"
    r"(?:[^\W\d]\w{0,60}[.$]){0,9}[^\W\d]?\w{0,80}(?:Error|Exception)"  # an exception with its message
    r"(?: (?:at|on|in) line \d{1,6})? ?[:(]"
    r"|\A[^\s:()]{1,200}[:(]\d{1,6}(?:[:,]\d{1,6})?\)?: (?:fatal )?error\b"  # a place in a program, by its compiler
    r"|\A(?:SQLSTATE\[|(?:ORA|PLS|TNS)-\d{4,5}: |Msg \d{1,6}, Level \d)"
    r"|\A(?P<program>[\w@./-]{1,40}) (?:ERR!|error [^\n]{0,400}\n(?P=program) error )"
    r"|\A\W{0,3}(?i:segmentation fault|no such [^\W\d_]{2,20}:|(?:an|a \w{1,20}) error (?:has )?occurred)\b"
)
"""As exceptions, compilers, databases and package managers write one. A status of HTTP may be what was asked for."""
_FIRST_LINE_ERROR: Final = re.compile(rf"^\W*(?:{ERROR_WORDS})\s?[:：]", re.IGNORECASE | re.MULTILINE)
_HAS_FAILED: Final = re.compile(
    r"\A(?:\s{0,9}[❌⛔🚫✖✘✗]\ufe0f?\s*[^\W\d_]"
    r"|\W{0,3}(?!\d|(?:why|what|how|which|who|where|if|when|all|no|none)\b)(?:[\w'\"`./()-]{1,60} ){1,5}?"
    r"(?<!tests )(?<!cases )(?<!checks )(?<!that )(?<!which )(?:has |have |was )?failed\s?"
    r"(?:[:：]|because|due to|with (?:error|exit|status|code))"
    r"|[^\n]{0,120}\breturned (?:a )?non-?zero exit\b)",
    re.IGNORECASE,
)
_EXIT: Final = re.compile(r"\bexit(?:ed)?(?: with)? (?:code|status|value)\W{0,3}-?[1-9]\d{0,9}\b", re.IGNORECASE)
_FAILED_ELSEWHERE: Final = beginnings("failed")
_FAILED_IN_ASCII: Final = ("failed", "exit", "nonzero", *ascii_beginnings("failed"))
"""In ASCII text one of them is part of every match of the two above."""
_HEAD_CHARS: Final = 400
_SUBJECT_CHARS: Final = 60
_COUNT: Final = re.compile(r"[\d:：\n]")
_REASON: Final = re.compile(r"[^\W\d_]{0,8} ?[:：] ?[^\W\d]")
"""Without a reason, the answer may be the outcome of a game or a deal, which is what was asked for."""


def begins_as_error(text: str) -> bool:
    """Whether a text begins, or a line of it, as the message of an error does.

    >>> begins_as_error("grep: Unmatched ("), begins_as_error("❌ no such page"), begins_as_error("上传失败: 没有权限")
    (True, True, True)
    >>> begins_as_error("Tool search failed: quota"), begins_as_error("3 tests failed: a, b, c")
    (True, False)
    >>> begins_as_error("npm error code E404\\nnpm error 404 Not Found"), begins_as_error("Added error codes")
    (True, False)
    >>> begins_as_error("command terminated with exit code 252"), begins_as_error("done (exit code 0)")
    (True, False)
    """
    if _ERROR_LIKE.search(text) is not None or _FIRST_LINE_ERROR.search(text) is not None:
        rest = without_denied_errors(text)
        if rest == text or _ERROR_LIKE.search(rest) is not None or _FIRST_LINE_ERROR.search(rest) is not None:
            return True
        text = rest
    if _FORM_OF_ERROR.match(text) is not None:
        return True
    head = text[:_HEAD_CHARS].lower()
    if head.isascii() and not [word for word in _FAILED_IN_ASCII if word in head]:
        return False
    if _HAS_FAILED.match(text) is not None or _EXIT.search(text) is not None:
        return True
    head = head[:_SUBJECT_CHARS]
    found = _FAILED_ELSEWHERE.search(head)
    if found is None or _COUNT.search(head[: found.start()]) is not None:
        return False  # a number or a colon before the word makes it one of a list of figures
    return _REASON.match(head, found.end()) is not None


# --- members that say that there was no error ----------------------------------------------------------------

_NOTHING: Final = r"(?:null|none|nil|undefined|false|n/a|0|ok|success|no errors?)"
_SCALAR: Final = (
    rf"(?:{_NOTHING}|\\{{0,7}}[\"']{_NOTHING}?\\{{0,7}}[\"']|no|nan|0\.0{{1,3}}|-|\[\s{{0,9}}\]|\{{\s{{0,9}}\}}|\(\s{{0,9}}\)"
    r"|kein[er]{0,2}|aucune?|ninguno|nessuno|nenhum|geen|inga|brak|нет|немає|yok|なし|无|無|没有|없음)"
)
_NAME: Final = r"\\{0,7}[\"']?"
_EMPTY_OBJECT: Final = (
    rf"\{{\s{{0,99}}(?:{_NAME}\w{{1,40}}{_NAME}\s?:\s{{0,9}}{_SCALAR}\s{{0,99}},?\s{{0,99}}){{1,8}}\}}"
)
_END: Final = r"[ \t]{0,9}(?:[,;，]\s?|(?=[)}\]\r\n\"']|\\[nr\"]|[.!]?\Z| \w{1,40}=))"
_EMPTY_VALUE: Final = re.compile(rf"[:=：][ \t]{{0,9}}(?:{_SCALAR}|{_EMPTY_OBJECT}){_END}", re.IGNORECASE)
"""Part of every match of ``_EMPTY_MEMBER``, and found much sooner."""
_EMPTY_MEMBER: Final = re.compile(
    rf"(?P<open>{_NAME})(?<!\w)(?P<key>(?:\w{{1,40}}[ -]){{0,2}}\w{{1,40}}){_NAME}[ \t]{{0,4}}[:=：][ \t]{{0,9}}"
    rf"(?P<value>{_SCALAR}|{_EMPTY_OBJECT}){_END}",
    re.IGNORECASE,
)
_BLANK_MEMBER: Final = re.compile(
    r"\A\W{0,3}(?:errors?|stderr|exceptions?)\s?:[ \t]{0,9}\r?\n"
    r"(?=\"?(?:results?|outputs?|data|response|stdout|content|items|value|status)\"?\s?:)",
    re.IGNORECASE,
)
_NAMES_ERROR: Final = re.compile(rf"{ERROR_WORDS}|errs?\b|errno|err_|fault", re.IGNORECASE)
_VERBS: Final = re.compile(r"(?:failed|invalid|fatal|unknown|unrecognized|cannot|could not|unable to)\Z", re.IGNORECASE)
_OF_ERROR: Final = re.compile(
    r"\A(?:codes?|counts?|details?|infos?|lists?|messages?|msgs?|numbers?|status|texts?|total)\Z", re.IGNORECASE
)
_RAISED: Final = re.compile(r"\A[A-Z]\w{0,39}[a-z](?:Error|Exception)\Z")
_DENIED_KEY: Final = re.compile(r"\A(?:no|not|without|is_?no|ignore)(?:[_ -]|(?-i:(?=[A-Z])))", re.IGNORECASE)


def without_empty_errors(text: str) -> str:
    """A text without the members that say that there was no error: their name is no sign of one.

    >>> without_empty_errors('{"error": null, "data": 7}'), without_empty_errors("{'ok': 1, 'errors': []}")
    ('{"data": 7}', "{'ok': 1, }")
    >>> without_empty_errors("status: done\\nerror: none\\n")
    'status: done\\n\\n'
    >>> without_empty_errors("ToolResult(error=None, output='7')")
    "ToolResult(output='7')"
    >>> without_empty_errors('{"error": "no such id"}'), without_empty_errors("KeyError: 0")
    ('{"error": "no such id"}', 'KeyError: 0')
    """
    if _EMPTY_VALUE.search(text) is not None:
        text = _EMPTY_MEMBER.sub(_unless_error, text)
    return _BLANK_MEMBER.sub("", text, count=1)


def _unless_error(found: re.Match[str]) -> str:
    """Nothing in place of an empty member that is named after an error; any other member as it is."""
    key, quoted = found["key"], bool(found["open"])
    if _DENIED_KEY.match(key) is not None or (not quoted and _RAISED.match(key) is not None):
        return found[0]
    *before, last = re.split(r"[ -]", key)
    if before and _OF_ERROR.match(last) is not None:
        last = before[-1]
    elif before and _VERBS.search(last) is not None and not found["value"].startswith(("0", "[")):
        return found[0]  # "Tool failed: None" quotes an exception without a message
    return "" if _NAMES_ERROR.search(last) is not None else found[0]


# --- phrases that say that there was no error ------------------------------------------------------------------

_NOUNS: Final = (
    r"errors?|exceptions?|failures?|faults?|fehlern?|erreurs?|errore|errori|erros?|errores|fouten|fout|fel"
    r"|(?:błęd|ошиб|помил|σφάλμα|virhe|chyb)[^\W\d_]{0,20}|hata|त्रुटि|ข้อผิดพลาด|lỗi|오류|kesalahan|erori"
)
_NONE_BEFORE: Final = (
    "0|no(?! such)|zero|without|nor|ohne|kein(?:e[nr]?)?|sans|ni|aucune?|sin|ning[uú]na?|senza|nessun[ao]?|sem|nenhuma?"
    "|geen|zonder|inga|inget|utan|ingen|uten|uden|brak|bez|без|нет|немає|ei|tanpa|tidak ada|không có|ไม่มี|कोई|fără"
    "|žádn[éáý]|χωρίς|καμία|κανένα"
)
_NONE_BEHIND: Final = (
    "yok(?:tur)?|bulunamadı|bulunmadı|bulunmuyor|(?:tespit|rapor) edilmedi|saptanmadı|görülmedi|없음|없습니다|없다"
    "|0 ?건|नहीं|none|free"
)
_DENIED_ERROR: Final = re.compile(
    rf"(?<![^\W_])(?:{_NONE_BEFORE})\s{{1,3}}(?:[^\W\d]{{1,24}},?\s)?(?:(?:or|and|nor|oder|und|ou|et|o|e|y|i)\s)?"
    rf"(?:{_NOUNS})(?![^\W_])"
    rf"|(?<![^\W_])(?:{_NOUNS})[가는은이도]?[ -]{{1,3}}(?:{_NONE_BEHIND})(?![^\W_])"
    # the label of a setting, a share or a count of none
    rf"|(?<![^\W_])(?:(?:{_NOUNS})(?:[ -][^\W\d]{{1,24}}){{0,2}}|(?:failed|invalid|unknown) [^\W\d]{{1,24}}s)"
    r"(?:\s?:?\s{1,3}\d{1,3}(?:[.,]\d{1,6})?\s?%|\s?[:=]\s{1,3}(?:0(?![\w.,:-])"
    r"|(?:enabled|disabled|on|off|empty)(?![^\W_])(?= ?[,;.)]| ?$)))",
    re.IGNORECASE | re.MULTILINE,
)
_LABELLED: Final = re.compile(r"\A[A-Z][^\W\d_]{0,30}: (?:[Uu]nknown|(?:Error|Exception|Failure) [a-z]{2,20})\Z")
"""A field of a record whose value is unknown, or a topic."""


def without_denied_errors(text: str) -> str:
    """A text without the phrases that say that there was no error, or that only name what has to do with errors.

    >>> without_denied_errors("Hata yok"), without_denied_errors("12 pages, error-free")
    ('', '12 pages, ')
    >>> without_denied_errors("Failed logins: 0"), without_denied_errors("Compilé sans avertissement ni erreur.")
    ('', 'Compilé sans avertissement .')
    >>> without_denied_errors("Error: no such file"), without_denied_errors("Hata: dosya bulunamadı")
    ('Error: no such file', 'Hata: dosya bulunamadı')
    """
    return "" if _LABELLED.match(text) is not None else _DENIED_ERROR.sub("", text)


# --- warnings above a result ---------------------------------------------------------------------------------

_NOTICE: Final = re.compile(
    r"\A[^\w\n]{0,4}(?:(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d[\d:.,Z+-]{0,14}\]?[ -]{1,3}\[?)?"
    r"(?:\S{1,200}:\d{1,7}:? |\w{1,20}:\d{1,9}\) )?"
    r"(?:"
    r"(?:(?:npm|pnpm|yarn|pip|docker|git)[ :]{1,2}|(?=(?-i:[A-Z]{4})))"
    r"(?:warn(?:ing)?|notice|info|hint|deprecat(?:ed|ion))\b[\])]?(?: {0,4}\[[^\]\n]{0,60}\])?[ :]"
    r"|(?:(?-i:[A-Z]\w{0,40})?warn(?:ing)?s?|notice|note|info|hint|tip|deprecat(?:ed|ion)|hinweis|warnung|achtung"
    r"|avertissement|remarque|advertencia|advertência|aviso|nota|avviso|attenzione|waarschuwing|let op|varning|advarsel"
    r"|ostrzeżenie|uwaga|предупреждение|внимание|примечание|попередження|uyarı|dikkat|peringatan|cảnh báo|تحذير|אזהרה"
    r"|चेतावनी|คำเตือน|警告|注意|提示|提醒|경고|참고|주의)"
    r"[\])】]?(?: ?[(\[][^)\]\n]{0,60}[)\]])? ?[:：]"
    r"|\[(?:warn(?:ing)?|notice|note|info)\]"
    r"|(?:time=\"[^\"\n]{0,40}\" )?level=(?:warn(?:ing)?|info|debug)\b"
    r")",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(r"\A\S{1,200}:\d{1,7}:? ")
_QUOTED_SOURCE: Final = re.compile(r"\A[ \t]{1,40}\S")
_ADVICE: Final = re.compile(
    r"\A(?:\W{0,3}(?:please|try|retry|check|see|use|run|set|add|install|did you mean|for (?:more|help|details)|bitte)\b"
    r"|[^\n]{0,200}\?\s{0,9}\Z)",
    re.IGNORECASE,
)
_MAX_NOTICES: Final = 20


def without_notices(text: str) -> str:
    """A text without the warnings above its content; all of it if nothing but advice is behind them.

    >>> without_notices("Warning: no API key was found, using the cache.\\n\\n[1] Red shoes")
    '[1] Red shoes'
    >>> without_notices("Warning: no API key was found\\nPlease set one.")
    'Warning: no API key was found\\nPlease set one.'
    """
    rest, seen = text.lstrip(), 0
    while seen < _MAX_NOTICES and _NOTICE.match(rest) is not None:
        head, _, rest = rest.partition("\n")
        if _PLACE.match(head) is not None and _QUOTED_SOURCE.match(rest) is not None:
            rest = rest.partition("\n")[2]  # Python quotes the line of the program under its warnings
        rest, seen = rest.lstrip(), seen + 1
    if not seen or all(_ADVICE.match(line) for line in _lines(rest)):
        return text
    return rest


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip())


# --- prefixes that name the tool -----------------------------------------------------------------------------

_REPORT: Final = re.compile(
    r"\A\s{0,9}(?:"
    r"(?:the )?(?:tool|command|function|action|skill|step|api|agent|call|script|program|cell|code)\b[^\n:]{0,80}?"
    r"\b(?:returned|executed|execution|answered|responded|replied|gave|outputs?|results?|response|completed|finished|ran)"
    r"\b(?: (?:with|successfully|an?|the|output|result))*\s?(?:[:：]|\.(?=\s))"
    r"|(?:observation|(?:tool |execution |function |command )?(?:results?|outputs?|response)|stdout|stderr"
    r"|return(?:ed)?(?: value)?|ergebnis|ausgabe|antwort|résultat|resultado|risultato|результат|結果|结果|결과)"
    r"\s{0,2}#?\d{0,3}\s?[:：]"
    r"|\[(?:tool|observation|result|output)[^\]\n]{0,60}\](?=\s)"
    r")\s{0,9}",
    re.IGNORECASE,
)
_MAX_PREFIXES: Final = 3


def without_report(text: str) -> str:
    """A text without the words at its beginning that only say which tool returned something.

    >>> without_report("Command write_fix returned: Error: 'NoneType' object is not iterable")
    "Error: 'NoneType' object is not iterable"
    >>> without_report("Tool 'search' executed.\\nResult: 7 hits"), without_report("7 hits: a, b")
    ('7 hits', '7 hits: a, b')
    """
    for _ in range(_MAX_PREFIXES):
        found = _REPORT.match(text)
        if found is None or found.end() == len(text):
            return text
        text = text[found.end() :]
    return text


# --- objects -------------------------------------------------------------------------------------------------

_MAX_OBJECT_CHARS: Final = 1_000
_ENVELOPE_KEYS: Final = frozenset(
    ("result", "response", "output", "data", "content", "body", "text", "message", "msg", "detail", "observation")
)
_RESULT_KEYS: Final = (
    "result", "results", "data", "items", "output", "rows", "content", "response", "hits", "documents",
)  # fmt: skip
_ERROR_KEYS: Final = (
    "error", "err", "exception", "error_message", "errormessage", "error_msg", "fehler", "erreur", "错误", "エラー",
)  # fmt: skip
_MESSAGE_KEYS: Final = ("message", "msg", "detail", "reason", "error")
_CODE_KEYS: Final = ("statuscode", "status_code", "http_status", "code")
_STATE_KEYS: Final = ("status", "state", "phase")
_FAILED_CODE: Final = re.compile(r"\A[45]\d\d\Z")


def _members(text: str) -> dict[str, Any]:
    """The members, by name in lower case, of a short object in JSON or as Python writes it; none of anything else."""
    if text[:1] != "{" or len(text) > _MAX_OBJECT_CHARS:
        return {}
    value: Any = object_in(text)
    if not value and "'" in text:
        try:
            value = parse_literal(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return {}
    return {str(key).lower(): item for key, item in value.items()} if isinstance(value, dict) else {}


def holds_error(text: str) -> bool:
    """Whether a short object is the message of an error: it names one, or a status code of one, beside no result.

    The record of a job that has failed is none: it is what was asked for.

    >>> holds_error('{"id": 7, "error": {"code": -32602, "message": "no such tool"}}')
    True
    >>> holds_error("{'title': 'Bad Request', 'status': 400}")
    True
    >>> holds_error('{"status": "failed", "error": "no memory"}')
    False
    """
    members = _members(text)
    if any(members.get(key) for key in _RESULT_KEYS):
        return False
    stated = [key for key in ("status", *_CODE_KEYS) if _FAILED_CODE.match(str(members.get(key))) is not None]
    if stated:  # RFC 9457 calls the message a title
        keys = ("title", *_MESSAGE_KEYS) if stated[0] == "status" else _MESSAGE_KEYS
        return any(isinstance(members.get(key), str) for key in keys)
    states = [members[key] for key in _STATE_KEYS if isinstance(members.get(key), str)]
    if any(members.get(key) for key in _ERROR_KEYS):
        return all(state.lower() == "error" for state in states)
    return str(members.get("status")).lower() == "error" and isinstance(members.get("message"), str)  # JSend


def raises(result: str) -> bool:
    """Whether a result is an exception with its message, short or below a traceback; a log may end in one, too.

    >>> raises("Cell In[7], line 1\\nValueError: could not convert '1,2'"), raises("3 tests of ValueError: passed")
    (True, False)
    """
    if "rror: " not in result and "xception: " not in result:
        return False
    if len(result) > MAX_FORM_CHARS and _TRACEBACK.match(result) is None:
        return False
    return _RAISED_LAST.match(result[-MAX_FORM_CHARS:].rstrip().rpartition("\n")[2]) is not None


_TRACEBACK: Final = re.compile(r"\s{0,9}(?:Traceback \(|Cell In ?\[|-{20,200}\s)")
_RAISED_LAST: Final = re.compile(r"[\w.]{0,80}(?:Error|Exception): \S")


def _opened(text: str) -> str:
    """The text in an object that has no other member; any other text as it is."""
    members = _members(text)
    if len(members) != 1:
        return text
    ((key, value),) = members.items()
    return value.strip() if key in _ENVELOPE_KEYS and isinstance(value, str) else text


_MAX_LAYERS: Final = 3


@lru_cache(maxsize=8)  # several rules ask within one step
def answer_in(text: str) -> str:
    """The part of a result whose words may say that the call failed.

    >>> answer_in("Warning: the index was not found.\\nTool 'search' returned: 7 hits, error: none")
    '7 hits,'
    >>> answer_in('{"error": "", "response": "{\\'message\\': \\'unknown service\\'}"}')
    'unknown service'
    """
    for _ in range(_MAX_LAYERS):
        inner = _opened(without_empty_errors(without_report(without_notices(text))).strip())
        if inner == text:
            break
        text = inner
    return text


# --- names that a validation error asks for ------------------------------------------------------------------

_WORDS_OF_LACK: Final = re.compile(
    r"required|missing|must (?:have|contain|provide|specify)|erforderlich|pflichtfeld|fehlt|obligatoire|requis|manquant"
    r"|obligatori|requerid|richiest|mancante|verplicht|wymagan|обязател|必填|必須|必须|缺少|필수",
    re.IGNORECASE,
)
_QUOTED_NAME: Final = r"\\?[\"'`‘“«「] ?([A-Za-z_$-][\w.$\[\]-]{0,60}) ?\\?[\"'`’”»」]"
_LACK: Final = rf"(?:{_WORDS_OF_LACK.pattern})"
_AFTER_NAME: Final = re.compile(rf"{_QUOTED_NAME}[^\n'\"`‘“«「.]{{0,40}}{_LACK}", re.IGNORECASE)
_BEFORE_NAMES: Final = re.compile(
    rf"{_LACK}[^\n'\"`‘“«「.]{{0,60}}"
    rf"(?P<names>{_QUOTED_NAME}(?:(?:,| and| or|,? ?und| et| y| e)? {{0,2}}{_QUOTED_NAME}){{0,7}})",
    re.IGNORECASE,
)
_BARE_NAMES: Final = re.compile(
    rf"{_LACK}[^\n:：'\"]{{0,60}}[:：]\s{{0,3}}"
    r"(?P<names>[A-Za-z_-][\w.-]{0,60}(?:, ?[A-Za-z_-][\w.-]{0,60}){0,7})[.\s]{0,3}$",
    re.IGNORECASE | re.MULTILINE,
)
_BARE_NAME: Final = re.compile(
    r"(?<![\w.'\"`])(?P<names>[A-Za-z_][\w.-]{0,60})(?: is| are)?(?: an?)? (?:required|missing)\b"
    r"|(?<![\w.'\"`])(?P<field>[A-Za-z_][\w.-]{0,60}): (?:field |value )?(?:is )?(?:required|missing)\b",
    re.IGNORECASE,
)
_PROPERTY_LINE: Final = re.compile(
    r"^(?P<names>[A-Za-z_][\w.\[\]-]{0,80})\r?\n[ \t]{1,8}(?![ \t]|Extra|Unexpected)[^\n]{1,300}?"
    r"(?:\[type=(?P<kind>\w{1,40})|$)",
    re.MULTILINE,
)
_PROPERTY_PATH: Final = re.compile(
    r"\"(?:path|loc|missingProperty)\"\s{0,3}:\s{0,3}(?:\[(?P<names>[^\]]{1,160})\]|\"(?P<field>[^\"]{1,80})\")"
)
_EACH_NAME: Final = re.compile(r"[A-Za-z_$][\w.$-]*")
_LACK_STEMS: Final = (
    "requi", "missing", "must ", "erforderlich", "pflichtfeld", "fehlt", "obligato", "manquant", "requerid", "richiest",
    "mancante", "verplicht", "wymagan",
)  # fmt: skip
"""In ASCII text one of them is part of every match of ``_WORDS_OF_LACK``."""
_VALIDATING: Final = ("valid", "required", "missing")
_VALIDATES: Final = re.compile("|".join(_VALIDATING), re.IGNORECASE)
_MAX_NAMES: Final = 8
_MAX_MESSAGE_CHARS: Final = 2_000
"""Longer texts are logs and tracebacks, which name many things."""
_ID: Final = re.compile(r"\d\d")


def names_asked_for(text: str) -> tuple[str, ...]:
    """The properties that a validation error finds missing or of a wrong type, sorted, at most ``_MAX_NAMES``.

    Names that a call should not have are not among them: another guess is refused as the one before.

    >>> names_asked_for("Input validation error: 'file_hash' is a required property")
    ('file_hash',)
    >>> names_asked_for("run() missing 2 required positional arguments: 'project' and 'bug'")
    ('bug', 'project')
    >>> names_asked_for("unexpected keyword argument 'name'"), names_asked_for("KeyError: 'user'")
    ((), ())
    """
    return _names_asked_for(text) if len(text) <= _MAX_MESSAGE_CHARS else ()


@lru_cache(maxsize=128)  # a run that is stuck fails in the same words
def _names_asked_for(text: str) -> tuple[str, ...]:
    names: list[str] = []
    if may_hold(_LACK_STEMS, text) and _WORDS_OF_LACK.search(text) is not None:
        quoted = [found[1] for found in _AFTER_NAME.finditer(text)]
        quoted += [name for found in _BEFORE_NAMES.finditer(text) for name in _EACH_QUOTED.findall(found["names"])]
        names = quoted or [found["names"] or found["field"] for found in _BARE_NAME.finditer(text)]
        for found in _BARE_NAMES.finditer(text):
            names += _EACH_NAME.findall(found["names"])
    if may_hold(_VALIDATING, text) and _VALIDATES.search(text) is not None:
        for pattern in (_PROPERTY_LINE, _PROPERTY_PATH):
            for found in pattern.finditer(text):
                names += _EACH_NAME.findall(" ".join(part for part in found.groups() if part))
    named = {name.casefold() for name in names if _ID.search(name) is None}
    return tuple(sorted(named - _NO_NAMES)[:_MAX_NAMES])


_NO_NAMES: Final = frozenset(
    (
        "a", "an", "and", "are", "argument", "arguments", "field", "fields", "input", "is", "it", "missing",
        "parameter", "parameters", "property", "required", "the", "this", "value", "values",
    )
)  # fmt: skip
_EACH_QUOTED: Final = re.compile(_QUOTED_NAME)
