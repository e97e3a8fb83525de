"""Pictures and other binary data in results are compared whole, and named instead of quoted."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate, record
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.text_bounds import with_digests

PNG = b"\x89PNG\r\n\x1a\n"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


FORMS: dict[str, Callable[[bytes], str]] = {
    "content block": lambda data: json.dumps([{"type": "image", "base64": _base64(PNG + data), "mime_type": "image/png"}]),
    "text and a picture": lambda data: json.dumps([
        {"type": "text", "text": "screenshot"},
        {"type": "image", "source_type": "base64", "data": _base64(data), "mime_type": "image/jpeg"},
    ]),
    "data URI": lambda data: json.dumps([
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + _base64(PNG + data)}}
    ]),
    "picture in Markdown": lambda data: f"Bildschirm: ![](data:image/webp;base64,{_base64(data)})",
    "lines of 76 characters, of a shell": lambda data: base64.encodebytes(data).decode(),
    "such lines in JSON": lambda data: json.dumps({"inhalt": base64.encodebytes(data).decode(), "größe": len(data)}),
    "slashes escaped by another language": lambda data: json.dumps({"bild": _base64(data)}).replace("/", "\\/"),
    "URL-safe letters": lambda data: "captura: " + base64.urlsafe_b64encode(data).decode(),
    "hexadecimal": lambda data: data.hex(),
    "list of bytes": lambda data: json.dumps({"type": "Buffer", "data": list(data)}),
    "literal of bytes": lambda data: repr(PNG + data),
    "decoded although it is no text": lambda data: (PNG + data).decode("utf-8", "replace"),
}  # fmt: skip


@pytest.mark.parametrize("size", [1_500, 40_000])
@pytest.mark.parametrize("form", FORMS)
def test_pictures_that_differ_are_progress(form: str, size: int) -> None:
    chance = random.Random(5)
    looks = [("screenshot", {}, FORMS[form](chance.randbytes(size))) for _ in range(25)]
    assert nudged(evaluate(steps(looks))) is None


@pytest.mark.parametrize("form", FORMS)
def test_the_same_picture_again_is_a_repeat(form: str) -> None:
    picture = FORMS[form](random.Random(5).randbytes(5_000))
    assert stopped(evaluate(steps([("screenshot", {}, picture)] * 8, gap=0.2))) is not None


@pytest.mark.parametrize("form", FORMS)
def test_a_nudge_names_a_picture_instead_of_quoting_it(form: str) -> None:
    picture = FORMS[form](random.Random(5).randbytes(102 * 1024))
    verdicts = evaluate(steps([("screenshot", {}, picture)] * 8, gap=0.2))
    text = next(one.nudge for one in verdicts if one is not None and one.nudge)
    assert " kB)" in text
    assert max(map(len, text.split())) < 60


def test_only_data_is_replaced() -> None:
    for text in ("=" * 500, "lorem ipsum " * 100, "/usr/share/doc " * 50, "1,2,3\n" * 100, "処理中" * 300, "x" * 400):
        assert with_digests(text) == text


@pytest.mark.parametrize("form", ["lines of 76 characters, of a shell", "hexadecimal"])
def test_data_of_200_characters_is_found_at_any_place(form: str) -> None:
    data = FORMS[form](random.Random(7).randbytes(200))[:200]
    for at in range(120):
        text = f"{'a b, ' * 30}{'. ' * at}{data} and so on, at last."
        assert data not in with_digests(text), at


def test_pictures_with_a_moving_id_beside_them_are_the_same() -> None:
    data = _base64(random.Random(5).randbytes(5_000))
    looks = [
        ("screenshot", {}, json.dumps([{"id": f"0ec0c22e-5421-4838-8e6c-2bbadc88a1{at:02d}", "base64": data}]))
        for at in range(12)
    ]
    assert stopped(evaluate(steps(looks, gap=0.2))) is not None


@pytest.mark.parametrize(
    "form",
    [
        'ok\n[{{"type":"text","text":"The screen now:"}},{{"type":"image","data":"{}"}}]',
        "content=[{{'type': 'image', 'data': '{}', 'mime': 'image/png'}}]",
        'ok [{{"image":"data:image/png;base64,{}","width":800}}]',
        "![screen](data:image/png;base64,{}) of 800x600",
        "<p>ok</p><img src='data:image/png;base64,{}' width=20><p>end</p>",
    ],
)
def test_another_picture_within_the_same_words_is_never_learned_as_noise(form: str) -> None:
    dice = random.Random(7)
    pictures = [base64.b64encode(b"\x89PNG\r\n\x1a\n" + dice.randbytes(900)).decode() for _ in range(30)]

    def pressed(shown: list[str]) -> list[Verdict]:
        calls = [record("press", {"key": "PageDown"}, form.format(one), t=2.0 * at) for at, one in enumerate(shown)]
        return [verdict for verdict in evaluate(calls) if verdict]

    assert {verdict.level for verdict in pressed(pictures)} == {Level.OBSERVE}
    assert any(verdict.stop_due for verdict in pressed(pictures[:1] * 30))
