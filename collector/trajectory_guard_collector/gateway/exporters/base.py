"""What an exporter is, how an attempt may fail, and what is counted of it."""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Protocol

from trajectory_guard_collector.otlp.signals import Batch, Signal

UNCLEAR_PATIENCE_S: Final = 300.0
"""An error of the backend that may come from something in the batch, such as 500, is taken for that after this time."""


class RetryableExportError(Exception):
    """The backend did not take the batch, and may take the same batch later.

    Parameters:
        message: what happened, with the endpoint.
        retry_after_s: shortest pause the backend asked for, in seconds; None if it did not.
        patience_s: seconds of attempts after which the batch itself is held to be the cause.
        unreadable: the reply says success, and is no OTLP reply.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        patience_s: float = math.inf,
        unreadable: bool = False,
    ) -> None:
        super().__init__(message)
        self.unreadable = unreadable
        self.retry_after_s = retry_after_s
        self.patience_s = patience_s


class PermanentExportError(Exception):
    """The backend will never take this batch.

    Parameters:
        message: what happened, with the endpoint.
        divisible: the batch was too large or something in it was refused, so parts of it may pass.
    """

    def __init__(self, message: str, *, divisible: bool = False) -> None:
        super().__init__(message)
        self.divisible = divisible


class ExportResult(NamedTuple):
    """What a backend answered to a batch that it took.

    Fields:
        rejected: items that the backend could not use; they must not be sent again.
        message: why, or a warning.
        unreadable: the reply says success, but it is not an OTLP reply.
    """

    rejected: int = 0
    message: str = ""
    unreadable: bool = False


class Exporter(Protocol):
    """One backend."""

    @property
    def name(self) -> str:
        """Name in the configuration."""

    @property
    def signals(self) -> frozenset[Signal]:
        """What it takes."""

    async def start(self) -> None:
        """Make the client; does not wait for the backend."""

    async def stop(self) -> None:
        """Close connections. Idempotent, legal without ``start``."""

    async def export(self, batch: Batch) -> ExportResult:
        """Make one attempt.

        Returns:
            The answer of the backend.

        Raises:
            RetryableExportError: the batch may be sent again.
            PermanentExportError: it must not.
        """
