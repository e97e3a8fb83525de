"""Default bounds of a request's structure. Configuration reads them, and must load without protobuf."""

from __future__ import annotations

from typing import Final

MAX_ELEMENTS: Final = 262_144
"""Resources, scopes and items of a request, by default."""
MAX_FIELDS: Final = 32_768
"""Fields of one item, resource or scope, by default."""
