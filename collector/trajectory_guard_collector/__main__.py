"""``python -m trajectory_guard_collector``: the ``trajectory-guard-collector`` command."""

import sys

from trajectory_guard_collector.cli import main

if __name__ == "__main__":
    sys.exit(main())
