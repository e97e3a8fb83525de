"""``python -m trajectory_guard_collector.fleet``: the ``trajectory-guard-fleet`` command."""

import sys

from trajectory_guard_collector.fleet.cli import main

if __name__ == "__main__":
    sys.exit(main())
