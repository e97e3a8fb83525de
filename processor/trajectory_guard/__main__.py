"""``python -m trajectory_guard``: the ``trajectory-guard`` command."""

import sys

from trajectory_guard.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
