"""The ``trajectory-guard-fleet`` command. What takes time to load is loaded once signals are handled."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Final

from trajectory_guard_collector.early_stop import stoppable

SERVING: Final = ("run", "flags", "scores")
"""Commands that end with status 0 if they are asked to stop, however early."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 fine, 1 failed while running, 2 bad configuration or usage."""
    arguments = sys.argv[1:] if argv is None else argv

    def program() -> int:
        logging.captureWarnings(True)  # else those of libraries, as they are imported, stand between lines of JSON
        from trajectory_guard_collector.fleet.commands import run

        return run(arguments, serving=SERVING)

    return stoppable(program) if arguments and arguments[0] in SERVING else program()


if __name__ == "__main__":
    sys.exit(main())
