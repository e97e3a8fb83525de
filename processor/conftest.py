"""Doctests of modules that need a package which this Python does not have."""

from __future__ import annotations

import sys

collect_ignore = [] if sys.version_info >= (3, 11) else ["trajectory_guard/integrations/a2a.py"]  # operon-ai
