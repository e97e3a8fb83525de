"""The version of both packages, which is also that of the guard's instrumentation scope."""

from typing import Final

__version__: Final = "0.1.0"
