"""The budgets in replies to gates: ``budget`` of ``GET /v1/flags/{trajectory}?service=…&agent=…``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trajectory_guard.config.choices import Mode
from trajectory_guard.spending.answers import plain_status
from trajectory_guard.spending.spending import Spending
from trajectory_guard.spending.stores import LedgerError
from trajectory_guard_collector.api.flag_replies import tenant_asked
from trajectory_guard_collector.scoring.booking import named
from trajectory_guard_collector.scoring.registry import TrajectoryRegistry

_PAUSE_S: Final = 1.0


class CallerBudgets:
    """The budgets of all services that one caller has to keep.

    Parameters:
        spending: the ledger; None without one.
        registry: knows trajectories by other names.
        separate_by: resource attributes that form the tenant.
        mode: limits the level, as it limits that of flags.
    """

    def __init__(
        self, spending: Spending | None, registry: TrajectoryRegistry, separate_by: Sequence[str], mode: Mode
    ) -> None:
        self._spending = spending if spending is not None and spending.budgets else None
        self._registry, self._separate_by = registry, tuple(separate_by)
        self._mode = mode
        self._unreadable_until = 0.0

    def reply(self, name: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        """The budgets before a model call, in the form of the JSON reply. None if none is configured.

        Parameters:
            name: of a trajectory, also of one that has not begun.
            query: ``service`` and ``agent`` of the caller, and ``resource.<key>`` for the attributes of its resource
                that form the tenant, by default that of the trajectory.
        """
        if self._spending is None:
            return None
        if time.monotonic() < self._unreadable_until:
            return {}
        tenant, trajectory = self._key(name, query)
        try:
            status = self._spending.status(
                named(trajectory), named(query.get("agent", "")), named(query.get("service", "")), tenant=named(tenant)
            )
        except LedgerError as error:  # for the moment; the gate goes on
            self._spending.failed(error)
            self._unreadable_until = time.monotonic() + _PAUSE_S  # it may have waited for a lock, in the event loop
            return {}
        return plain_status(status.within(self._mode))

    def _key(self, name: str, query: Mapping[str, str]) -> tuple[str, str]:
        """Tenant and id of a trajectory."""
        tenant = tenant_asked(query, self._separate_by)
        known = self._registry.find(name, tenant)
        if tenant is None:
            return known.key if known is not None else ("", name)
        return known.key if known is not None and known.key[0] == tenant else (tenant, name)
