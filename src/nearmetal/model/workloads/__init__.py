"""Workloads: kernels, programs of a user, applications, and events of the instances themselves. This
package must not import results."""

from __future__ import annotations

from collections.abc import Iterable

from .event import EventSubject
from .kernel import KernelWorkload
from .programs import ApplicationWorkload, CommandWorkload

Workload = KernelWorkload | ApplicationWorkload | CommandWorkload | EventSubject


def quantiles_of(workloads: Iterable[Workload]) -> dict[str, frozenset[str]]:
    """Return the metrics for which quantiles are shown, by workload that has any."""
    return {w.name: w.quantiles for w in workloads if w.quantiles}
