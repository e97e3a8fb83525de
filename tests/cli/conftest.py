"""The command, run in this process."""

from __future__ import annotations

import pytest

from tests.cli.helpers_cli import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)
