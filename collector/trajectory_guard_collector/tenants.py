"""Tenants: spans, readers of flags, budgets and metrics name them in one form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trajectory_guard.core.names import bounded_name


def tenant_of(attributes: Mapping[str, Any], separate_by: Iterable[str]) -> str:
    """The tenant of a resource: the values of the attributes that keep equal ids apart.

    Different values give different tenants, hence the escapes, and hence only slashes at the end are left out. Values
    that are absent, and all of them for most applications, are as if they were empty.

    >>> both = ("service.namespace", "deployment.environment.name")
    >>> tenant_of({"service.namespace": "eu"}, both), tenant_of({"deployment.environment.name": "eu"}, both)
    ('eu', '/eu')
    >>> tenant_of({"service.namespace": "eu", "deployment.environment.name": "a/b"}, both)
    'eu/a%2Fb'
    """
    return bounded_name("/".join(escaped(attributes.get(name)) for name in separate_by).rstrip("/"))


def escaped(value: Any) -> str:
    """A value as a part between slashes; empty for None."""
    return "" if value is None else str(value).replace("%", "%25").replace("/", "%2F")
