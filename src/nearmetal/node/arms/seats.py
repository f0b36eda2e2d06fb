"""Preparations of network addresses that some backends make once for a whole run, before instances can use
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from ...environments import Backend, InstanceRequest, Seated
from ...model.study import Arm
from ...network.build import Network
from ..machine import Machine


def slot(arms: Iterable[str], arm: str, aa: bool) -> str:
    """Return a short name of an arm for labels and host names: its number among the arms, with r for the A/A
    arm."""
    return f"{list(arms).index(arm)}{'r' if aa else ''}"


def with_aa(arms: Iterable[Arm], first_baseline: str) -> Iterator[tuple[Arm, bool]]:
    """Yield (arm, whether it is the A/A arm): each arm, and after it the A/A arm if the arm is one of the
    first baseline."""
    for arm in arms:
        yield arm, False
        if arm.environment.name == first_baseline:
            yield arm, True


def hostname(own: str) -> str:
    """Return the host name of an instance from the last part of its label."""
    return f"nm{own}"


def prepare_seats(
    machine: Machine,
    arms: Mapping[str, Arm],
    backends: Mapping[str, Backend],
    networks: Mapping[tuple[str, bool], Network],
    label: str,
    scratch: Path,
    stack: ExitStack,
) -> None:
    """Let the backends prepare the network addresses of all instances.

    networks: by (arm name, whether it is the A/A arm).
    stack: undoes the preparation when it is closed.

    Raises RunError, UnavailableError.
    """
    for (name, aa), network in networks.items():
        environment = arms[name].environment
        backend = backends[environment.backend]
        if not environment.attachment.seated or not isinstance(backend, Seated):
            continue
        for number, seat in enumerate(network.seats):
            own = f"{slot(arms, name, aa)}-{number}"
            request = InstanceRequest(
                label=f"{label}-{own}-seat",
                hostname=hostname(own),
                environment=environment,
                seat=seat,
                scratch=scratch,
            )
            stack.enter_context(backend.seated(machine.host, machine.tools, request))
