"""Texts of an agent are read in silence: the compiler's warnings about them would reach the host's standard error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trajectory_guard.core.literals import parse_literal

READ_EVERYWHERE = r"""
import threading
from trajectory_guard.core.content.content_blocks import unwrap
from trajectory_guard.core.content.error_text import holds_error
from trajectory_guard.core.similarity.maths import normalize_math
from trajectory_guard.spans.content import python_literal
from trajectory_guard.transcripts.reprs import parse_repr

TEXTS = [
    r"{'path': 'C:\cats', 'error': 'no \d digits'}", r"[{'type': 'text', 'text': 'C:\cats'}]", "{'n': '\\400'}",
    r"[TextContent(type='text', text='C:\cats')]", "[1or 2, 3if 4else 5]", "{'call': 1(2), 'index': 1[2]}", "1 is 2",
]

def read() -> None:
    for text in TEXTS:
        for reader in (unwrap, holds_error, normalize_math, python_literal, parse_repr):
            reader(text)

threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert python_literal(TEXTS[0])["path"] == "C:\\cats", python_literal(TEXTS[0])
"""


@pytest.mark.parametrize("shown", ["default", "error"])
def test_nothing_is_printed_about_the_texts_of_an_agent(shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", shown, "-c", READ_EVERYWHERE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_blanks_around_a_literal_are_none_of_it() -> None:
    assert parse_literal("\n {'a': [1, None]} \n") == {"a": [1, None]}
