"""Do two texts ask for the same thing? Marks that must not differ come first, similarity of words last."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final

from . import vocabulary as vocab
from .features import ASKING, TextFeatures, begin_alike
from .scripts import has_unspaced, signs
from .words import GENERIC, concept

SAME_AT: Final = 0.6
"""Share of common content words (0 to 1) from which two texts count as the same."""
MAYBE_ABOVE: Final = 0.10
"""Share of common content words (0 to 1) up to which two texts count as different."""

_MAX_PART: Final = 3
_MIN_LETTERS: Final = 4
"""Shorter texts are compared by their words alone: "a i" is not "ai"."""
MAYBE_ABOVE_ELSEWHERE: Final = 0.15
"""The same in other languages, where words that bind are counted as content."""
MAYBE_ABOVE_OF_SIGNS: Final = 0.25
"""Share of common Chinese signs (0 to 1) up to which two texts without a word in common count as different."""
Judgement = tuple[str, str]
"""``("same" | "different" | "maybe", reason)``."""


_COUNTRIES: Final = frozenset(concept(name) for name in vocab.COUNTRIES)
_IMPLIED: Final = {asked: frozenset(concept(word) for word in words) for asked, words in vocab.IMPLIED.items()}


def _opposites() -> dict[str, frozenset[str]]:
    table: dict[str, set[str]] = {}
    for left, right in vocab.OPPOSITES:
        for one, other in ((left, right), (concept(left), concept(right))):
            if one != other:
                table.setdefault(one, set()).add(other)
                table.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in table.items()}


_OPPOSITE: Final = _opposites()


def opposites(one: str, other: str) -> bool:
    """Whether two concepts reverse each other, by the list or by a prefix: ``like``/``unlike``, ``open``/``reopen``."""
    if other in _OPPOSITE.get(one, ()):
        return True
    short, long = (one, other) if len(one) < len(other) else (other, one)
    return len(short) > 2 and long.endswith(short) and _negates(long[: -len(short)], short)


@lru_cache(maxsize=1024)
def _negates(prefix: str, root: str) -> bool:
    if prefix == "re":
        return "close" in _OPPOSITE.get(root, ())
    return prefix.rstrip("-") in vocab.NEGATING_PREFIXES and (len(prefix) > 1 or len(root) > 4)


def compare_texts(a: TextFeatures, b: TextFeatures) -> Judgement:
    """Compares two texts; symmetric. The first rule that applies decides."""
    relation, reason = _compare(a, b)
    if relation != "same" or (a.english and b.english):
        return relation, reason
    if _is_linked_otherwise(a, b):
        return "maybe", "another word binds the same words, which may change the direction"
    if not ASKING.isdisjoint(a.vocabulary - b.vocabulary) and not ASKING.isdisjoint(b.vocabulary - a.vocabulary):
        return "maybe", "another word that binds or asks"
    names = _alone(a, b)
    qualified = (names[0] | names[1]) <= _COUNTRIES and _is_qualified(a, b, names[0] | names[1])
    if any(names) and not qualified and a.letters != b.letters:
        return "maybe", f"a name of one side alone: {_some(names[0] | names[1])}"
    return relation, reason


def quotes_another(text: str, other: str) -> bool:
    """Whether two texts of one frame quote other names.

    >>> quotes_another("name contains 'Murray-Ford'", "name contains 'Let It Be'")
    True
    >>> quotes_another("name contains 'signed contract'", "name contains 'contract signed 2024'")
    False
    """
    if "'" not in text and '"' not in text:
        return False  # as most texts
    if _QUOTED.search(text) is None or _QUOTED.sub("''", text) != _QUOTED.sub("''", other):
        return False
    pairs = zip(_QUOTED.findall(text.casefold()), _QUOTED.findall(other.casefold()), strict=True)
    changed = [(set(one[1:-1].split()), set(two[1:-1].split())) for one, two in pairs if one != two]
    return bool(changed) and all(
        2 * len((one & two) - vocab.STOP_WORDS) < min(len(one), len(two)) for one, two in changed
    )


_QUOTED: Final = re.compile(r"(?<!\w)(?:'[^'\n]{1,80}'|\"[^\"\n]{1,80}\")(?!\w)")


def _compare(a: TextFeatures, b: TextFeatures) -> Judgement:
    doubt = _is_negated_otherwise(a, b)
    if doubt and not (a.implicit ^ b.implicit):
        return "different", "one side is negated"
    if a.letters == b.letters and len(a.letters) >= _MIN_LETTERS and a.negations == b.negations:
        return "same", "other spaces or hyphens"
    reason = _contradiction(a, b)
    if reason:
        return "different", reason
    if doubt or a.doubtful != b.doubtful or set(a.anchors) != set(b.anchors):
        return _by_overlap(a, b, cap=True)
    if a.sequence == b.sequence and a.vocabulary == b.vocabulary and a.participles != b.participles:
        return "maybe", f"another tense: {_some(a.participles ^ b.participles)}"
    if a.sequence == b.sequence:
        if a.english and b.english:
            if ("with" in a.vocabulary) != ("with" in b.vocabulary):
                return "maybe", "on one side alone, something is with it"
            bound = _bound_otherwise(a, b)
            if bound is not None:
                return "different", "one part is replaced: {} / {}".format(*bound)
        return ("same", "same words") if a.sequence or a.vocabulary == b.vocabulary else ("maybe", "no content words")
    return _by_words(a, b)


def _is_negated_otherwise(a: TextFeatures, b: TextFeatures) -> bool:
    """Whether one side alone is negated. Two negations cancel each other in English; elsewhere the second confirms."""
    if a.english and b.english:
        return (a.negations - b.negations) % 2 == 1
    return bool(a.negations) != bool(b.negations)


def _is_linked_otherwise(a: TextFeatures, b: TextFeatures) -> bool:
    """Whether a word of both texts follows one binding word here and another there: ``de Lima a Cusco``.

    In English ``_direction_mismatch`` knows the words that reverse a direction; elsewhere any of them may.
    """
    left, right = {word for word, _ in a.links - b.links}, {word for word, _ in b.links - a.links}
    return any(one == other or begin_alike(one, other) for one in left for other in right)


def _contradiction(a: TextFeatures, b: TextFeatures) -> str:
    only_a, only_b = a.vocabulary - b.vocabulary, b.vocabulary - a.vocabulary
    return (
        _opposed(only_a, only_b)
        or _anchor_mismatch(a, b)
        or _name_mismatch(a, b)
        or (f"a bound on one side alone: {_some(a.bounds ^ b.bounds)}" if a.bounds != b.bounds else "")
        or _direction_mismatch(a, b)
        or _role_mismatch(a, b)
        or _question_mismatch(a, b)
    )


def _opposed(only_a: frozenset[str], only_b: frozenset[str]) -> str:
    for one in sorted(only_a):
        for other in only_b:
            if opposites(one, other):
                return "opposite words: {} / {}".format(*sorted((one, other)))
    return ""


def _anchor_mismatch(a: TextFeatures, b: TextFeatures) -> str:
    if a.anchors == b.anchors:
        return ""
    left, right = set(a.anchors) - set(b.anchors), set(b.anchors) - set(a.anchors)
    if not left and not right:
        return ""
    if {one.removeprefix("#") for one in left} == {one.removeprefix("#") for one in right}:
        return ""  # the third floor is floor 3; the third largest city is not the 3 largest cities
    return f"a number, date or identifier differs: {_some(left)} / {_some(right)}"


def _some(items: set[str] | frozenset[str]) -> str:
    return " ".join(item[:40] for item in sorted(items)[:3]) or "none"


def _name_mismatch(a: TextFeatures, b: TextFeatures) -> str:
    if not a.names and not b.names:
        return ""
    for name in sorted(a.names & b.names) if a.named != b.named else ():
        forms = [{form for named, form in side.named if named == name} for side in (a, b)]
        if any(forms) and forms[0].isdisjoint(
            forms[1]
        ):  # synonyms name one thing, and distinguish two names: Lake Inn, Lake Hotel
            return f"a name differs: {_some(forms[0])} / {_some(forms[1])}"
    left, right = _alone(a, b)
    if not left and not right:
        return ""
    if not (a.english and b.english) and not (left and right) and not _extends(a, b):
        return ""  # capitals mean less elsewhere: other forms of a name, and German nouns; never "same", though
    if (not left or not right) and (left | right) <= _COUNTRIES and _is_qualified(a, b, left | right):
        return ""
    return f"a name differs: {_some(left)} / {_some(right)}"


def _alone(a: TextFeatures, b: TextFeatures) -> tuple[frozenset[str], frozenset[str]]:
    """The names of each side that the other does not hold, in any form."""
    left, right = a.names - b.vocabulary, b.names - a.vocabulary
    if not (a.english or b.english):
        left, right = _without_kin(left, b.vocabulary), _without_kin(right, a.vocabulary)
    return left, right


def _without_kin(names: frozenset[str], words: frozenset[str]) -> frozenset[str]:
    """The names of which no word is another form: ``Torino`` / ``torinesi``."""
    return frozenset(name for name in names if not any(begin_alike(name, word) for word in words))


def _is_qualified(a: TextFeatures, b: TextFeatures, countries: frozenset[str]) -> bool:
    """Whether the longer text is the shorter one, a place of few words, plus its country."""
    if any(word in countries for word, _ in a.links | b.links):
        return False  # "hotels in Peru" narrows; "Cusco, Peru" does not
    short, long = sorted((a.sequence, b.sequence), key=len)
    return 0 < len(short) <= 3 and len(long) == len(short) + len(countries) and long[: len(short)] == short


def _direction_mismatch(a: TextFeatures, b: TextFeatures) -> str:
    for word, link in sorted(a.directions - b.directions):
        for other, back in b.directions - a.directions:
            if word == other and frozenset((link, back)) in vocab.CONFLICTING_DIRECTIONS:
                return f"another direction: {link} {word} / {back} {word}"
    for word, link in sorted(a.links - b.links):
        for other, back in b.links - a.links:
            if link == back and link in vocab.ONE_WAY and _has_turned(a.sequence, b.sequence, word, other):
                return f"another direction: {link} {word} / {link} {other}"
    return ""


def _role_mismatch(a: TextFeatures, b: TextFeatures) -> str:
    """The first difference in roles (who does what to whom, what is part of what) or in mood; empty without any."""
    ends = {(left, right) for left, _, right in b.around} if a.around else ()
    for left, link, right in sorted(a.around) if ends else ():
        if (right, left) not in ends:
            continue
        for back in vocab.PREPOSITIONS if a.english and b.english and link in vocab.PREPOSITIONS else (link,):
            if (right, back, left) in b.around and left != right:
                return f"the roles of {left} and {right} are swapped"
    if not (a.english and b.english):
        return ""
    for one, other in vocab.OPPOSED_MOODS if a.moods != b.moods else ():
        if ({one, other} & a.moods, {one, other} & b.moods) in (({one}, {other}), ({other}, {one})):
            return f"another mood or time: {one} / {other}"
    if ("only" in a.vocabulary) != ("only" in b.vocabulary):
        return "one side excludes all others"
    if a.ending != b.ending:
        return f"another word ends what is asked: {a.ending or 'none'} / {b.ending or 'none'}"
    if a.sequence == b.sequence and ("by" in a.vocabulary) != ("by" in b.vocabulary):
        return "one side says who did it, the other to whom it was done"
    moved = a.frame != b.frame and len(a.frame) == len(b.frame) and sorted(a.frame) == sorted(b.frame)
    if moved and (a.sequence == b.sequence or _bindings(a) != _bindings(b)):
        return "the same words bind others"
    return "two names have changed places" if len(a.names) > 1 and _swaps_names(a, b) else ""


def _bindings(text: TextFeatures) -> set[tuple[str, str]]:
    """Content words with the word before them that binds them; neither bounds nor lists."""
    return {pair for pair in text.links if pair[1] not in vocab.BOUNDING and pair[1] not in vocab.SYMMETRIC}


def _swaps_names(a: TextFeatures, b: TextFeatures) -> bool:
    """Whether two names that stand side by side have changed places: ``train Oslo Bergen``, ``train Bergen Oslo``."""
    back = set(pairwise(b.sequence))
    return any(one in a.names and two in a.names and (two, one) in back for one, two in pairwise(a.sequence))


def _has_turned(a: tuple[str, ...], b: tuple[str, ...], end: str, other_end: str) -> bool:
    """Whether the word at which a link ends here stands before it there, and the other way round: euro to krone."""
    if other_end not in a or end not in b:
        return False
    return a.index(other_end) < a.index(end) and b.index(end) < b.index(other_end)


def _bound_otherwise(a: TextFeatures, b: TextFeatures) -> tuple[str, str] | None:
    """Two words, none of them of content, where texts differ in one or two such places alone: ``must I``, ``can I``."""
    pairs = [pair for pair in zip(a.frame, b.frame, strict=False) if pair[0] != pair[1]]
    if len(a.frame) != len(b.frame) or len(pairs) > _MAX_BOUND_OTHERWISE:
        return None
    if any(word in a.sequence for pair in pairs for word in pair):
        return None
    return next((pair for pair in pairs if not any(map(frozenset(pair).issubset, vocab.INTERCHANGEABLE))), None)


_MAX_BOUND_OTHERWISE: Final = 2
_QUANTITIES: Final = frozenset(map(concept, vocab.QUANTITIES))


def _question_mismatch(a: TextFeatures, b: TextFeatures) -> str:
    left, right = a.hard & _QUANTITIES, b.hard & _QUANTITIES
    if left and right and left.isdisjoint(right):
        return f"another quantity is asked for: {_some(left)} / {_some(right)}"
    for asks, other in ((a, b), (b, a)):
        if asks.questions and not other.questions and "how" in other.vocabulary and not _asks_alike(a, b):
            return f"another kind of question: {_some(asks.questions)} / how"
    if a.questions and b.questions and not a.questions & b.questions:
        return f"another kind of question: {_some(a.questions)} / {_some(b.questions)}"
    return ""


def _by_words(a: TextFeatures, b: TextFeatures) -> Judgement:
    replaced = _replaced(a.sequence, b.sequence)
    if replaced is not None:
        relation = "maybe" if _is_rephrased(a, b) else "different"
        return relation, "one part is replaced: {} / {}".format(*replaced)
    if len(a.frame) == len(b.frame) and _is_flipped(a, b):
        return "maybe", "two neighbours have changed places, which may be another compound"
    moved = _exchanged(a.sequence, b.sequence)
    if moved is not None and moved[1] - moved[0] > 1:  # not neighbours: subject and object
        relation = "different" if sorted(a.frame) == sorted(b.frame) else "maybe"  # other words bind them now
        return relation, "two words have changed places around others"
    left, right = _residues(a, b)
    if not left and not right:
        return _same_content(a, b)
    if not left or not right:
        return _by_addition(a, b, left | right)
    return _by_overlap(a, b)


def _replaced(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, str] | None:
    """The part, of at most three words, in which alone two texts differ, where the rest is as long: another name."""
    least, start, end = min(len(a), len(b)), 0, 0
    while start < least and a[start] == b[start]:
        start += 1
    while end < least - start and a[-1 - end] == b[-1 - end]:
        end += 1
    left, right = a[start : len(a) - end], b[start : len(b) - end]
    if not left or not right or not set(left).isdisjoint(right):
        return None
    if len(left) == len(right) == 1 or max(len(left), len(right)) <= min(_MAX_PART, start + end):
        return " ".join(left), " ".join(right)
    return None


def _is_rephrased(a: TextFeatures, b: TextFeatures) -> bool:
    """Whether the part in which two texts differ has another shape as well: words that bind, and another length.

    A mere other name leaves both as they are: "hotels near Rome", "hotels near New York". In English, where a sentence
    model may be asked, a replaced part is another thing: models take it for the same far too often.
    """
    if a.english and b.english:
        return False
    left, right = set(a.frame) - set(b.frame), set(b.frame) - set(a.frame)
    return len(left) != len(right) and not (left <= set(a.sequence) and right <= set(b.sequence))


def _extends(a: TextFeatures, b: TextFeatures) -> bool:
    """Whether one text holds all words of the other in their order, and more: it narrows, it does not reword."""
    short, long = sorted((a.frame, b.frame), key=len)
    rest = iter(long)
    return all(word in rest for word in short) or _extends_letters(*sorted((a.letters, b.letters), key=len))


def _asks_alike(a: TextFeatures, b: TextFeatures) -> bool:
    """Whether no side alone asks for a reason, a person, a time or a place without the other naming it."""
    return all(_IMPLIED[asked] & (a.hard | b.hard) for asked in a.questions ^ b.questions)


def _asks_other_side(a: TextFeatures, b: TextFeatures) -> bool:
    """Whether one text asks who or which thing does something, and the other, with *do*, to whom or what it is done."""
    if _DOING.isdisjoint(b.vocabulary - a.vocabulary):
        return False
    if "who" in a.questions | b.questions:
        return True
    chooses = not _CHOOSING.isdisjoint(a.vocabulary & b.vocabulary)
    return chooses and _PASSIVE.isdisjoint(a.vocabulary) and _in_order(a, b) != _in_order(b, a)


_DOING: Final = frozenset(map(concept, ("do", "does", "did")))
_CHOOSING: Final = frozenset(map(concept, ("which", "what")))
_PASSIVE: Final = frozenset(map(concept, ("by", "is", "are", "was", "were", "be", "been", "being")))


def _extends_letters(short: str, long: str) -> bool:
    """The same for texts without spaces between words."""
    if not has_unspaced(short):
        return False
    rest = iter(long)
    return all(letter in rest for letter in short)


def _residues(a: TextFeatures, b: TextFeatures) -> tuple[frozenset[str], frozenset[str]]:
    """Content words of one side alone, without what the other side's question word asks for, or names a class only."""
    left, right = a.hard - b.hard, b.hard - a.hard
    for asked in b.questions:
        left -= _IMPLIED[asked]
    for asked in a.questions:
        right -= _IMPLIED[asked]
    akin = _akin(a, b)
    left, right = left.difference(akin), right.difference(akin.values())
    if (left & GENERIC or right & GENERIC) and _shared(a, b) >= 3 and not (left & GENERIC and right & GENERIC):
        left, right = left - GENERIC, right - GENERIC
    return left, right


def _same_content(a: TextFeatures, b: TextFeatures) -> Judgement:
    if a.soft - b.soft and b.soft - a.soft and not _shared(a, b):
        return "different", "only words of decoration differ, and nothing else is there"
    if a.soft - b.soft and b.soft - a.soft:
        return "maybe", f"a side word differs: {_some(a.soft - b.soft)} / {_some(b.soft - a.soft)}"
    if not _shared(a, b):
        return "maybe", "no content word in common"
    if _asks_other_side(a, b) or _asks_other_side(b, a):
        return "different", "one side asks who did it, the other to whom it was done"
    if not (a.english or b.english) and _in_order(a, b) != _in_order(b, a):
        return "maybe", "another order, which may change who does what to whom"
    return "same", "same words in another order or frame"


def _in_order(a: TextFeatures, b: TextFeatures) -> tuple[str, ...]:
    """The words of one text that the other holds too, in their order."""
    return tuple(word for word in a.sequence if word in b.sequence)


def _shared(a: TextFeatures, b: TextFeatures) -> int:
    return len(a.hard & b.hard) + len(set(a.anchors) & set(b.anchors)) + len(_akin(a, b))


def _akin(a: TextFeatures, b: TextFeatures) -> dict[str, str]:
    """Words of one text alone by words of the other alone that begin alike: other forms of one word.

    Only where neither text is English, whose endings ``words.stem`` knows: a common beginning is weak evidence.
    """
    if a.english or b.english:
        return {}
    found: dict[str, str] = {}
    others = set(b.hard - a.hard)
    for word in sorted(a.hard - b.hard):
        other = next((one for one in sorted(others) if begin_alike(word, one)), None)
        if other is not None:
            found[word] = other
            others.discard(other)
    return found


def _share_of_signs(a: str, b: str) -> float:
    """Share of common Chinese signs and katakana: most of them are words of their own, so that pairs miss much."""
    left, right = signs(a), signs(b)
    return len(left & right) / len(left | right) if left and right else 0.0


def _is_flipped(a: TextFeatures, b: TextFeatures) -> bool:
    """Whether two neighbours alone have changed places, beside other words: ``chocolate milk``, ``milk chocolate``."""
    moved = _exchanged(a.frame, b.frame)
    if moved is None or moved[1] - moved[0] > 1 or len(a.frame) < _MIN_FLIPPED:
        return False
    one, other = a.frame[moved[0]], a.frame[moved[1]]
    return (one, other) in a.compounds and (other, one) in b.compounds and a.hard.issuperset((one, other))


_MIN_FLIPPED: Final = 3
"""In a text of two words their order is a matter of taste: ``weather Oslo``."""


def _exchanged(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[int, int] | None:
    """The positions of two words which alone have changed places; None if there are no such two."""
    if len(a) != len(b):
        return None
    moved = [position for position, one in enumerate(a) if one != b[position]]
    if len(moved) != 2 or (a[moved[0]], a[moved[1]]) != (b[moved[1]], b[moved[0]]):
        return None
    return moved[0], moved[1]


def _by_addition(a: TextFeatures, b: TextFeatures, added: frozenset[str]) -> Judgement:
    """One side holds every content word of the other and more: it narrows, but for one word beside a long text."""
    if added <= _COUNTRIES and _is_qualified(a, b, added):
        return "same", f"the country is named: {_some(added)}"
    if len(added) == 1 and _shared(a, b) >= _LONG_TEXT:
        return "same", f"one side adds: {_some(added)}"
    replaced = _replaced(a.frame, b.frame)  # a word without content that stands for one with: "steps", "mean"
    if replaced is not None:
        return "different", "one part is replaced: {} / {}".format(*replaced)
    if not _extends(a, b) and _asks_alike(a, b):
        return "maybe", f"one side adds, in another order or frame: {_some(added)}"
    return "different", f"one side adds: {_some(added)}"


_LONG_TEXT: Final = 12
"""Content words from which a text is more than a question, so that one more word hardly changes what it says."""


def _by_overlap(a: TextFeatures, b: TextFeatures, *, cap: bool = False) -> Judgement:
    if _extends(a, b):
        return "different", f"one side adds: {_some(a.hard ^ b.hard)}"
    left, right = _residues(a, b)
    shared = _shared(a, b)
    share = shared / (shared + len(left) + len(right)) if shared else 0.0
    if share <= (MAYBE_ABOVE if a.english or b.english else MAYBE_ABOVE_ELSEWHERE):
        if _share_of_signs(a.letters, b.letters) > MAYBE_ABOVE_OF_SIGNS:
            return "maybe", "some signs are shared"
        return "different", "other words"
    if share >= SAME_AT and shared >= _LONG_TEXT and not cap:
        return "same", f"most words are shared, {_some(left)} / {_some(right)} are not"
    return "maybe", f"some words are shared, {_some(left)} / {_some(right)} are not"
