"""Every entry of ``tests.thinned`` names a test that exists."""

from __future__ import annotations

from tests.helpers import TESTS
from tests.thinned import ONE_IN


def test_every_entry_names_a_test() -> None:
    for name in ONE_IN:
        module, _, test = name.partition("::")
        assert f"def {test}(" in (TESTS / module).read_text(encoding="utf-8"), name
