"""Vocabulary of the text rules: general English and technical words, no names of things. Long lists are files.

A list may err in one direction only: a missing synonym costs recall, a missing opposite is caught by the slot rule
in most texts, but a false synonym would call two calls the same. So synonyms are near exact, opposites generous.
"""

from __future__ import annotations

from typing import Final

from trajectory_guard.core.wordlists import groups, runs, words

STOP_WORDS: Final = words("stop")
"""Dropped before texts are compared; opposites and directions among them are looked at first."""

SOFT_WORDS: Final = words("soft")
"""Words that one side may add without meaning something else. If both sides add such a word, they count."""

GENERIC_WORDS: Final = words("generic")
"""Names of a class of things: beside three shared words they add nothing ("train" / "train tickets")."""

IMPLIED: Final = {
    "when": frozenset(["time", "date", "day", "hour", "deadline"]),
    "where": frozenset(["location", "place", "region", "address", "function", "code", "file", "line"]),
    "why": frozenset(["reason", "cause", "explanation"]),
    "who": frozenset(["person", "name", "contact"]),
}
"""Words that a question word asks for: "when is it open" and "opening hours" are one question."""

FUNCTION_WORDS: Final = words("function")
"""Articles, prepositions and the like of other languages in Latin script."""

BINDING_WORDS: Final = frozenset(word for of_language in groups("binding").values() for word in of_language)
"""Short articles, pronouns, prepositions and conjunctions of other languages: they only bind content words."""

NEGATIONS: Final = words("negations")

NEGATING_ENDINGS: Final = ("ない", "なし", "ません", "ず", "なかった")
"""Endings in kana that negate."""
IMPLICIT_NEGATIONS: Final = words("implicit_negations")
"""Words that can stand for a negation ("not used" = "ignored"): with one of them, a differing count proves nothing."""

OPPOSITES: Final = tuple((left, right) for left, others in groups("opposites").items() for right in others)

NEGATING_PREFIXES: Final = ("un", "de", "dis", "in", "im", "ir", "il", "non", "a", "mis", "anti", "counter")

SYNONYMS: Final = groups("synonyms")
"""Words that are compared as another one, by that word."""

IRREGULAR: Final = {form: word for word, forms in groups("irregular").items() for form in forms}
"""Word to stem where the suffix rules would be wrong, or would leave two stems."""
WHOLE: Final = words("whole")
"""Words that are their own stem although they look as if they had an ending."""

PHRASES: Final = {run: tuple(target.split()) for target, found in runs("phrases").items() for run in found}
"""Word runs that stand for one word: question frames, phrasal verbs, fixed expressions. Longest match first."""

_TO_FIFTEEN: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen",
)  # fmt: skip
NUMBER_WORDS: Final = {
    **{word: str(number) for number, word in enumerate(_TO_FIFTEEN)},
    "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "hundred": "100", "thousand": "1000", "dozen": "12",
}  # fmt: skip
ORDINALS: Final = {
    word: f"#{number}"
    for number, word in enumerate(
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"], 1
    )
}
_CALENDAR = """monday tuesday wednesday thursday friday saturday sunday
january february april june july august september october november december"""  # "march" and "may" are verbs, too
CALENDAR: Final = {word: word[:3] for word in _CALENDAR.split()} | {
    "today": "today", "tomorrow": "tomorrow", "yesterday": "yesterday", "tonight": "tonight", "weekend": "weekend",
    "jan": "jan", "feb": "feb", "apr": "apr", "aug": "aug", "sept": "sep", "sep": "sep", "oct": "oct", "nov": "nov",
    "dec": "dec", "mon": "mon", "tue": "tue", "tues": "tue", "thu": "thu", "thurs": "thu", "fri": "fri",
}  # fmt: skip
UNITS: Final = {
    "$": "dollar", "usd": "dollar", "dollars": "dollar", "€": "euro", "eur": "euro", "euros": "euro", "£": "pound",
    "gbp": "pound", "pounds": "pound", "%": "percent",
}  # fmt: skip

NUMBERS_ELSEWHERE: Final = {word: number for number, found in groups("numbers").items() for word in found}
"""Number words of other languages, by word."""
MEASURES: Final = {word: symbol for symbol, found in groups("measures").items() for word in found}
"""Words for units of measure that count right after a number, by word."""

INTERCHANGEABLE: Final = tuple(frozenset(group) for group in groups("interchangeable").values())
"""Words without content of which one may stand for another: ``is`` for ``are``, ``on`` for ``at``. By their stems."""
QUESTION_WORDS: Final = frozenset(["who", "when", "where", "why"])
CONFLICTING_DIRECTIONS: Final = frozenset(
    frozenset(pair.split())
    for pair in (
        "from to",
        "from into",
        "before after",
        "during after",
        "during before",
        "within after",
        "until after",
        "since until",
        "inside outside",
        "under over",
        "above below",
        "by to",
        "on under",
        "by from",
        "for from",
        "about by",
        "about from",
    )
)
DIRECTIONS: Final = frozenset(word for pair in CONFLICTING_DIRECTIONS for word in pair)
QUANTITIES: Final = frozenset(
    head[0]
    for run, head in PHRASES.items()
    if run[0] == "how" and len(head) == 1 and head[0] not in ("number", "population")
)
"""The quantity that a question asks for: the age of a subject is not its height."""
MOODS: Final = {
    "must": "duty", "should": "duty", "ought": "duty", "can": "leave", "may": "leave", "allowed": "leave",
    "will": "future", "shall": "future", "was": "past", "were": "past", "did": "past", "had": "past",
}  # fmt: skip
"""Words without content that say whether something must or may be, will or was."""
OPPOSED_MOODS: Final = (("duty", "leave"), ("future", "past"))
BOUNDING: Final = {
    "before": "before", "until": "before", "after": "after", "since": "after", "over": "over", "above": "over",
    "under": "under", "below": "under", "within": "within",
}  # fmt: skip
"""Links that make a bound of the figure behind them, by the kind of the bound."""
ONE_WAY: Final = frozenset(["to", "into", "from", "by", "over", "before", "after", "than"])
"""Links that a word cannot follow here and go before there without another meaning: euro to krone, krone to euro."""
PREPOSITIONS: Final = frozenset(
    ["about", "against", "as", "by", "for", "from", "in", "of", "off", "on", "than", "to", "with", "without"]
)
"""Links between a head and what it is of, for or about: turned round, the head is another one."""
SYMMETRIC: Final = frozenset(["and", "or", "vs", "versus", "plus"])
"""Links whose two sides may change places."""
COUNTRIES: Final = words("countries")
"""A country after a comma only says which country a city is in; a state or county often distinguishes two towns."""
