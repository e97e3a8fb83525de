"""Convert a checkout of an origin: ``python -m tests.bench.origins ORIGIN FOLDER OUT``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench.origins import (
    code_repair,
    coding_sessions,
    screen_logs,
    support_chats,
    terminal_agent,
    text_games,
    tool_bench,
)
from tests.bench.origins.runs import Run, write

LOADERS: Final[dict[str, Callable[[Path], Iterator[Run]]]] = {
    tool_bench.ORIGIN: tool_bench.load,
    screen_logs.ORIGIN: screen_logs.load,
    support_chats.ORIGIN: support_chats.load,
    text_games.ADAPT: text_games.load_adapt,
    text_games.BALROG: text_games.load_balrog,
    coding_sessions.ORIGIN: coding_sessions.load,
    terminal_agent.ORIGIN: terminal_agent.load,
    code_repair.ORIGIN: code_repair.load,
}
"""Where they come from and under which licence: ``tests/data/README.md``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many runs went into each split."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.origins", description=__doc__)
    parser.add_argument("origin", choices=sorted(LOADERS))
    parser.add_argument("folder", type=Path, help="files of the origin, as it keeps them")
    parser.add_argument("out", type=Path, help="gets dev/<origin>.jsonl and held/<origin>.jsonl")
    options = parser.parse_args(arguments)
    counts = write(LOADERS[options.origin](options.folder), options.out)
    print(f"{options.origin}: " + ", ".join(f"{count} {split}" for split, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
