"""The exporter interface, the errors of an attempt, and the result of a successful one."""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Protocol

from trajectory_guard import __version__
from trajectory_guard_collector.otlp.signals import Batch, Signal

USER_AGENT: Final = f"trajectory-guard-collector/{__version__}"
UNCLEAR_PATIENCE_S: Final = 300.0
"""Seconds after which an error that the batch may cause, such as 500, counts as caused by the batch."""


class RetryableExportError(Exception):
    """The backend did not take the batch, and may take the same batch later.

    Parameters:
        message: description of the failure, with the endpoint.
        retry_after_s: shortest pause the backend asked for, in seconds; None if it did not.
        patience_s: seconds of attempts after which the batch itself counts as the cause.
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
        message: description of the failure, with the endpoint.
        divisible: the batch was too large or something in it was refused, so parts of it may pass.
    """

    def __init__(self, message: str, *, divisible: bool = False) -> None:
        super().__init__(message)
        self.divisible = divisible


class ExportResult(NamedTuple):
    """Reply of a backend to a batch that it accepted.

    Fields:
        rejected: items that the backend could not use; they must not be sent again.
        message: reason for the rejection, or a warning.
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
        """Signals that the backend accepts."""

    async def start(self) -> None:
        """Create the client; does not wait for the backend."""

    async def stop(self) -> None:
        """Close connections. Idempotent; may be called without ``start``."""

    async def export(self, batch: Batch) -> ExportResult:
        """Make one attempt.

        Returns:
            The answer of the backend.

        Raises:
            RetryableExportError: the batch may be sent again.
            PermanentExportError: the batch must not be sent again.
        """
