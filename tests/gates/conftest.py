"""A loop that nobody stops ends soon in these tests. Read by LangGraph when it is imported."""

from __future__ import annotations

import os

os.environ.setdefault("LANGGRAPH_DEFAULT_RECURSION_LIMIT", "200")
