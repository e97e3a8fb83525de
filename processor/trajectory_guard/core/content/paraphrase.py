"""Answers to one call that say the same in other words, as a model behind a tool gives them.

Asked the same again, a model takes other words, and soon only words that it has used before. A queue that is being
emptied uses known words only, too, but each time fewer; and where the host is at work a figure moves, or a new word
comes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from trajectory_guard.core.content.result_text import WORD
from trajectory_guard.core.fingerprints import checksum

_MAX_CHARS: Final = 4_096
_LEAST_WORDS: Final = 20
_LEAST_SENTENCES: Final = 3
_MAX_KEPT: Final = 192
_DIGITS: Final = 8
_SENTENCE: Final = re.compile(r"[^\W\d_]{2}['\"”»)]?[.!?。！？।؟](?:\s|\Z)|[。！？]")


class Vocabulary(NamedTuple):
    """The words of the answers to one call.

    Fields:
        words: their checksums, hex, those of the newest answer last; newest: number of these.
        returns: an answer has come back to words that the one before it did not use.
    """

    words: str = ""
    newest: int = 0
    returns: bool = False

    def add(self, text: str) -> tuple[Vocabulary, bool]:
        """The vocabulary with one more answer, and whether that answer is a paraphrase of the ones before."""
        now = _words_of(text)
        if not now:
            return Vocabulary(), False
        known = [int(self.words[at : at + _DIGITS], 16) for at in range(0, len(self.words), _DIGITS)]
        before = set(known[len(known) - self.newest :])
        kept = [word for word in known if word not in now]
        closed = bool(known) and len(kept) + len(now) == len(known)
        returns = self.returns or (closed and not now.keys() <= before)
        words = "".join([f"{word:0{_DIGITS}x}" for word in [*kept, *now][-_MAX_KEPT:]])
        return Vocabulary(words, len(now), returns), closed and (returns or now.keys() == before)


def _words_of(text: str) -> dict[int, None]:
    """Checksums of the words of prose, in order; empty if the text is none: a record, a list, a sentence or two.

    >>> len(_words_of("It rains. It pours. It ends.")), len(_words_of("a.txt, b.txt and c.txt"))
    (0, 0)
    """
    if len(text) > _MAX_CHARS or text[:1] in ("{", "["):
        return {}
    found = dict.fromkeys(map(checksum, WORD.findall(text.casefold())))
    prose = _LEAST_WORDS <= len(found) <= _MAX_KEPT and len(_SENTENCE.findall(text)) >= _LEAST_SENTENCES
    return found if prose else {}
