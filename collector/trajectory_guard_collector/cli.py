"""The ``trajectory-guard-collector`` command. What takes time to load is loaded once signals are handled."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from trajectory_guard_collector.early_stop import stoppable

SERVING: Final = ("run",)
"""Commands that end with status 0 if they are asked to stop, however early."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 fine, 1 failed while running, 2 bad configuration or usage.

    Parameters:
        argv: the arguments; without them, those of the process, which is then to exit with the status.
    """
    arguments = sys.argv[1:] if argv is None else argv

    def program() -> int:
        from trajectory_guard_collector.commands import run

        return run(arguments, serving=SERVING, exits=argv is None)

    return stoppable(program) if arguments and arguments[0] in SERVING else program()


if __name__ == "__main__":
    sys.exit(main())
