"""Whether a result says that something is still under way, in any language."""

from __future__ import annotations

import re
from typing import Final

from trajectory_guard.core.content.outcome import names_error
from trajectory_guard.core.text import both_ends, unescaped
from trajectory_guard.core.wordlists import ascii_beginnings, beginnings, may_hold

_PENDING: Final = re.compile(
    r"(?<![^\W_])(?<!\bof )(?<!\bby )(?<!\bafter )(?<!\bbefore )"
    r"(?:pending|running|in[ _-]?progress|queued|waiting|processing"
    r"|starting(?! (?:over|again|anew|afresh)\b)"
    r"|still (?:(?!fail|miss)\w{2,20}ing|not|no|in|at|on|under|being|open|queued|busy|to|\d{1,9})"
    r"|scheduled|(?<!not )(?<!are )accepted(?! (?:for delivery|by)\b)"
    r"|(?:http|status|code)(?:/[\d.]{1,3})?\W{1,3}202|^202$"
    r"|(?:^|(?<=[:\"\n(\[])|(?:is|are|still|now|currently) )\s?building"  # a building is none
    r"|not (?:yet )?(?:ready|finished|done|complete)|deploying|unchanged so far|provisioning|initiali[sz]ing"
    r"|\w{0,24}creating|pulling|terminating|installing|warming up|(?<!not )submitted|(?<!not )started|awaiting"
    r"|enqueued|initiated"
    r"|retrying|on hold"
    r"|no(?: new)? (?:output|data|results?|response|repl(?:y|ies)|answers?|messages?|events?|logs?|updates?) yet"
    r"|no (?:[a-z]{2,16} ){1,3}(?:received|arrived|came in|come in|delivered|posted|published|reported)(?: so far)? yet"
    r")(?![^\W_])"
    r"|(?<![^\W_])(?:status|state|phase|stage): [a-z]{3,20}ing(?:\.{1,3}|…|$)"
    # of a thing with a number: "Topic: marketing plan" is none
    r"|^[^:\n\d]{1,40}\d[^:\n]{0,40}: (?!(?:exist|fail|follow|includ|miss|noth|remain|someth|us|warn)ing\b)"
    r"[a-z]{3,20}ing(?:\.{1,3}$|…|$| \(?\d"
    r"| (?!(?:and|as|at|by|for|from|in|of|on|or|to|with)\b)[\w./-]{1,40}(?: [\w./-]{1,40}){0,2}$)"
    r"|\"\w{0,24}(?:status|state|phase|stage)\"\s{0,2}:\s{0,2}\"[A-Za-z_ ]{1,20}ing\""
    r"|\"(?:is_?)?(?:ready|done|completed?|finished|processed|confirmed|settled|loaded|synced|delivered)\""
    r"\s{0,2}:\s{0,2}false"
    r"|\"(?:completed|finished|ended|done|delivered|processed|confirmed)_?(?:at|on|time|date)\"\s{0,2}:\s{0,2}null",
    re.IGNORECASE,
)
_REJECTED: Final = re.compile(
    r"\b(?:reject\w*|invalid|incorrect|wrong|missing|required|fail(?:ed|ure)|not (?:passed|accepted|approved|convinced)"
    r"|please (?:add|fill|fix|prove|provide|resolve))\b",
    re.IGNORECASE,
)
_UNDER_WAY: Final = re.compile(r"\b(?:queued|retrying|running|processing|please wait|in progress)\b", re.IGNORECASE)
_PENDING_REMARK: Final = re.compile(
    r"\b(?:preparing|loading|in transit|out for delivery|under review|please wait)\b", re.IGNORECASE
)
_BECOMING: Final = re.compile(
    r"\W{0,3}(?:(?:storage[-_ ])?(?:activat|attach|configur|delet|deregister|detach|disabl|drain|enabl|migrat|modify"
    r"|optimiz|reboot|register|renam|resiz|restart|restor|rollback|scal|stopp|sync|updat|upgrad)ing|backing[-_ ]up"
    r"|storage-optimization|maintenance)\W{0,3}",
    re.IGNORECASE,
)
"""A state that passes, as a cloud names that of a database, where it is all that is said."""
_CONTAINER_UP: Final = re.compile(r"\bcontainer \S{1,100} {1,2}(?:started|running)\b", re.IGNORECASE)
"""As ``docker compose up`` reports that it is done."""
_PENDING_ELSEWHERE: Final = beginnings("pending")
_PENDING_IN_ASCII: Final = ascii_beginnings("pending")
_MAX_PENDING_CHARS: Final = 200
_LAST_LINES: Final = 2


def is_pending(text: str) -> bool:
    """Whether a short result says that something is still under way.

    >>> is_pending("job 7: still running"), is_pending("7 rows"), is_pending("Auftrag 7 wird bearbeitet")
    (True, False, True)
    >>> is_pending("(no output yet)"), is_pending("You have no key yet.")
    (True, False)
    >>> is_pending("Rejected: the answer is not complete"), is_pending("Still too long."), is_pending("Not accepted")
    (False, False, False)
    >>> is_pending("202 Accepted"), is_pending("Message accepted for delivery"), is_pending("No answer, starting over")
    (True, False, False)
    >>> is_pending("Building image 3/7"), is_pending("Empire State Building, 350 Fifth Avenue"), is_pending("Room 202")
    (True, False, False)
    >>> is_pending("It is updated. Here is the result of running `cat -n` on it"), is_pending("still running `make`")
    (False, True)
    >>> is_pending("Build 77: compiling core"), is_pending("Field: marketing"), is_pending("Line 4: missing comma")
    (True, False, False)
    >>> is_pending("modifying"), is_pending("nothing"), is_pending("available")
    (True, False, False)
    >>> is_pending("Container app-1  Started"), is_pending("Container app-1  Starting")
    (False, True)
    """
    if len(text) > _MAX_PENDING_CHARS:
        return False
    text = _CONTAINER_UP.sub("", unescaped(text)) if "ontainer " in text else unescaped(text)
    if _BECOMING.fullmatch(text) is not None:
        return True
    if _REJECTED.search(text) is not None and _UNDER_WAY.search(text) is None:
        return False  # it is not done because something is wrong with it: time will not mend that
    text = text.strip()
    if text[:1] not in ("{", "["):
        text = "\n".join(text.rsplit("\n", _LAST_LINES)[-_LAST_LINES:])  # what lines above say is under way has ended
    if _PENDING.search(text) is not None:
        return True
    if "\n" in text:
        return False  # a page may show such words, whatever it is about
    if _PENDING_REMARK.search(text) is not None:
        return True
    return may_hold(_PENDING_IN_ASCII, text) and _PENDING_ELSEWHERE.search(text) is not None


_ENDED_BADLY: Final = re.compile(
    r"(?<![^\W_])(?:\w{0,20}(?:status|state)|phase|conclusion|result|outcome)\W{1,12}"
    r"(?:error(?:ed)?|fail(?:ed|ure)|cancell?ed|aborted|crashed|rejected|expired)(?![^\W_])",
    re.IGNORECASE,
)


def has_ended_badly(text: str) -> bool:
    """Whether a short result names the state of something as failed, so that it does not get on any more.

    >>> has_ended_badly("status  ● Error, created [7m ago]"), has_ended_badly('{"readyState": "FAILED", "age": 12}')
    (True, True)
    >>> has_ended_badly("status: failed, retrying in 30s"), has_ended_badly("status: ok, error rate 0.1 %")
    (False, False)
    """
    if len(text) > _MAX_PENDING_CHARS or _ENDED_BADLY.search(text) is None:
        return False
    return not is_pending(text)


def rejects(text: str) -> bool:
    """Whether a text says that something was not accepted, or failed: what was entered, as a rule.

    >>> rejects("Log in. The password is wrong."), rejects("The member was added successfully to the list.")
    (True, False)
    """
    text = both_ends(text, _REJECTION_CHARS)
    return _REJECTED.search(text) is not None or names_error(text)


_REJECTION_CHARS: Final = 2_000
