"""One spelling for a value that is a number, an amount, a quantity, or a number that identifies something."""

from __future__ import annotations

import re
from decimal import Decimal
from ipaddress import IPv6Address
from typing import Final

from . import vocabulary as vocab

MAX_CHARS: Final = 48
"""Longer values are no number."""
_GROUPED: Final = re.compile(r"\A(?:-?\d{1,3}(?:,\d{3})+|-?\d{1,3}(?:_\d{3})+)(?:\.\d+)?\Z", re.ASCII)
_EXPONENT: Final = re.compile(r"\A-?[1-9](?:\.\d{1,9})?[eE]\+?(\d{1,2})\Z", re.ASCII)
_NUMBER: Final = r"-?\d+(?:[.,_]\d+)*"
_SIGNS: Final = {
    "$": "usd",
    "\u20ac": "eur",
    "\xa3": "gbp",
    "\u20b9": "inr",
    "\u20bd": "rub",
    "\u20a9": "krw",
    "\u20ba": "try",
}
_SIGN: Final = "[" + "".join(_SIGNS) + "]"
_CURRENCIES: Final = (
    "AED|ARS|AUD|BGN|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KES|KRW|MXN|NGN|NOK|NZD|PEN"
    "|PHP|PLN|RON|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"
)
_MONEY: Final = re.compile(
    rf"\A(?:({_SIGN}|{_CURRENCIES}) ?({_NUMBER})|({_NUMBER}) ?({_SIGN}|{_CURRENCIES}))\Z", re.ASCII
)
_QUANTITY: Final = re.compile(rf"\A({_NUMBER}) ?([^\W\d_]{{1,14}}|%)\Z")
_DIGIT_GROUPS: Final = re.compile(r"\A(?:\+?\(?|\(\+)\d{1,12}\)?(?:(?:[ .-]|(?<=\)))\(?\d{1,12}\)?){0,8}\Z", re.ASCII)
_FOURS: Final = re.compile(r"\A\d{4}(?:[ -]\d{4}){2,4}\Z", re.ASCII)
_ISBN: Final = re.compile(r"\A97[89](?:[ -]?\d){10}\Z", re.ASCII)
_CODE_GROUPS: Final = re.compile(r"\A[A-Z]{2}(?:\d{2}(?: [A-Z0-9]{4}){2,8}(?: [A-Z0-9]{1,4})?| \d{6,12})\Z", re.ASCII)
_UUID: Final = re.compile(r"\A\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?\Z", re.ASCII | re.IGNORECASE)
_MAC: Final = re.compile(r"\A[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}\Z", re.ASCII | re.IGNORECASE)
_MAC_OF_ROUTERS: Final = re.compile(r"\A(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}\Z", re.ASCII | re.IGNORECASE)
_VERSION: Final = re.compile(r"\A[vV](\d{1,6}(?:\.\d{1,6}){1,3})\Z", re.ASCII)
_COLOUR: Final = re.compile(r"\A#([0-9a-f])([0-9a-f])([0-9a-f])\Z", re.ASCII | re.IGNORECASE)
_NAMES_COLOUR: Final = re.compile(r"colou?r|fill|stroke|background|foreground", re.IGNORECASE)
_DURATION: Final = re.compile(
    r"\A(?:P(?=[\dT])(?:(\d{1,6})D)?(?:T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9})S)?)?"
    r"|(?=\d{1,6}[hm]\d)(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?)\Z",
    re.ASCII,
)
"""As ISO 8601 writes it, and as Go and many tools do where it has more than one part: ``5m`` alone may be a length."""
_SECONDS_OF: Final = (86_400, 3_600, 60, 1, 3_600, 60, 1)
_PHONE: Final = re.compile(r"phone|tel|mobile|fax|whatsapp|msisdn", re.IGNORECASE)
_MIN_DIGITS: Final = 7


def normalize_value(text: str, key: str) -> str | None:
    """The value of an argument under ``key`` in one spelling, None if it is none of these.

    >>> [normalize_value(text, "x") for text in ("1,000", "1e3", "$50", "50.00 USD", "90 seconds", "10MB", "1-2")]
    ['1000', '1000', '50 usd', '50 usd', '90 s', '10 mb', None]
    >>> normalize_value("+1 (415) 555-0132", "x"), normalize_value("0049 30 1234567", "phone")
    ('+14155550132', '+49301234567')
    >>> [normalize_value(text, "x") for text in ("PT5M", "1h30m", "v1.2.0", "AA-BB-CC-DD-EE-01", "2001:0db8::0001")]
    ['300 s', '5400 s', '1.2.0', 'aa:bb:cc:dd:ee:01', '2001:db8::1']
    """
    if len(text) > MAX_CHARS or not any(char.isdigit() for char in text):
        return None
    if _UUID.match(text):
        return text.strip("{}").replace("-", "").lower()
    if _MAC.match(text):
        return text.replace("-", ":").lower()
    if _MAC_OF_ROUTERS.match(text):
        digits = text.replace(".", "").lower()
        return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))
    if text.count(":") > 1 and (address := _ipv6(text)):
        return address
    duration = _DURATION.match(text)
    if duration:
        return f"{sum(int(part or 0) * s for part, s in zip(duration.groups(), _SECONDS_OF, strict=True))} s"
    version, colour = _VERSION.match(text), _COLOUR.match(text)
    if version:
        return version[1]
    if colour and _NAMES_COLOUR.search(key):
        return "".join(digit * 2 for digit in colour.groups()).lower()
    if _GROUPED.match(text) or _EXPONENT.match(text):
        return number(text)
    money = _MONEY.match(text)
    if money:
        unit, amount = money[1] or money[4], money[2] or money[3]
        return f"{number(amount)} {_SIGNS.get(unit, unit.lower())}"
    quantity = _QUANTITY.match(text)
    if quantity:
        unit = quantity[2].casefold() if len(quantity[2]) > 1 else quantity[2]
        known = "%" if unit == "%" else vocab.MEASURES.get(unit)
        return _measured(number(quantity[1]), known) if known else None
    if _CODE_GROUPS.match(text):
        return text.replace(" ", "").lower()
    return _joined(text, key)


def _ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except ValueError:
        return ""


def _measured(amount: str, unit: str) -> str:
    """A quantity in the base unit where the factor is exact: ``5 km`` as ``5000 m``. A kilobyte has 1,000 or 1,024."""
    factor, base = _FACTORS.get(unit, ("1", unit))
    if base == unit or not _PLAIN.match(amount):
        return f"{amount} {unit}"
    return f"{(Decimal(amount) * Decimal(factor)).normalize():f} {base}"


_PLAIN: Final = re.compile(r"\A-?\d{1,12}(?:\.\d{1,6})?\Z", re.ASCII)
_FACTORS: Final = {
    "h": ("3600", "s"), "min": ("60", "s"), "ms": ("0.001", "s"), "km": ("1000", "m"), "cm": ("0.01", "m"),
    "mm": ("0.001", "m"), "kg": ("1000", "g"), "ml": ("0.001", "l"),
}  # fmt: skip


def _joined(text: str, key: str) -> str | None:
    """The digits of a telephone number, a card or an ISBN; groups of other numbers mean something: dates, addresses."""
    if not _DIGIT_GROUPS.match(text):
        return None
    abroad = "+" in text[:2]
    if abroad:
        text = text.replace("(0)", "")  # dialled within the country only
    digits = "".join(char for char in text if char.isdigit())
    is_phone = abroad or _PHONE.search(key) is not None
    if len(digits) < _MIN_DIGITS or not (is_phone or _FOURS.match(text) or _ISBN.match(text)):
        return None
    if is_phone and digits[:2] == "00":
        return "+" + digits[2:]
    return "+" + digits if abroad else digits


def number(text: str) -> str:
    """``"1,000.50"``, ``"1.000,50"``, ``"1_000.5"``, ``"1e3"`` and ``"50,00"`` as plain decimals."""
    if "e" in text.lower():
        return f"{float(text):.0f}" if float(text).is_integer() else text
    text = text.replace("_", "")
    if "." in text and text.rfind(",") > text.rfind("."):
        text = text.replace(".", "").replace(",", ".")
    if text.count(",") == 1 and "." not in text and len(text.partition(",")[2]) != 3:
        text = text.replace(",", ".")
    text = text.replace(",", "")
    return text.rstrip("0").rstrip(".") if text.count(".") == 1 else text
