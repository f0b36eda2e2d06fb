"""A running guest of Xen, and what the hypervisor holds it to."""

from __future__ import annotations

from dataclasses import dataclass

from ...host.counters.sources import Source
from ...model.environments.guest import GuestSettings
from ...model.scope import Scope
from ..contract import InstanceRequest
from ..guests.guest import GuestInstance, host_cpus_of
from .config import DomainConfig
from .counters import HypervisorSource
from .dom0 import Dom0Access
from .settings import XenScheduler, XenSettings, settings_for
from .xl import Xl


@dataclass(frozen=True, kw_only=True)
class XenInstance(GuestInstance):
    """A running guest of Xen, with what it is moved by.

    domain: its configuration, with the name by which it runs now.
    request: the request for it, at the place where it runs now.
    """

    xl: Xl
    at: Dom0Access
    domain: DomainConfig
    request: InstanceRequest

    @property
    def sources(self) -> tuple[Source, ...]:
        """Counter sources of the guest: those that every guest has, and the hypervisor's counters for it."""
        scope = Scope(kind="xen", name=self.hostname)
        return (*super().sources, HypervisorSource(scope=scope, guest=self.domain.name, xl=self.xl))


def settings_of(request: InstanceRequest) -> tuple[GuestSettings, XenSettings]:
    """Return the guest settings and the Xen settings of the request's environment, or the defaults."""
    return request.environment.guest or GuestSettings(), settings_for(request.environment)


def set_cpu_use(
    xl: Xl, scheduler: XenScheduler | None, request: InstanceRequest, domain: DomainConfig
) -> None:
    """Pin the vCPUs of a guest to the CPUs of a request, and set its weight and cap.

    scheduler: of the hypervisor; None if it has neither weights nor caps.
    Raises RunError.
    """
    guest, xen = settings_of(request)
    if guest.pin and request.cpus:
        xl.pin(domain.name, host_cpus_of(request, domain.vcpus))
    if scheduler is not None and (xen.weight, xen.cap) != (None, None):
        xl.set_share(scheduler, domain.name, weight=xen.weight, cap=xen.cap)
