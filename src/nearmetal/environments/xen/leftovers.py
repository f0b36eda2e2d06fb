"""Finds and removes the leftovers of Xen guests on their dom0s: domains, and the files and volumes of their
disks. The names of all of them begin with the label of the instance."""

from __future__ import annotations

import contextlib
import os
from pathlib import PurePosixPath

from ...errors import RunError, UnavailableError
from ...host import Host
from ..contract import Unavailable
from .disk import FILES, SAVED, remove_volume, volumes
from .dom0 import THERE, LeftoverNote, noted, visited
from .xl import AWAY, INCOMING, Xl

_PREFIX = "nearmetal-"
_PARTS = ("-writable", "-swap", SAVED)
_SHORT = 20.0


def domain_names(host: Host) -> tuple[str, ...]:
    """Return the labels of the instances that have leftovers on this machine or on another dom0 that is named
    in a note. A dom0 that does not answer is skipped."""
    found: set[str] = set()
    for place in _places(host):
        try:
            with visited(place.dom0, _visit()) as dom0:
                found |= _names(dom0, place)
        except (RunError, UnavailableError):
            continue  # the note is kept until this dom0 answers again
    return tuple(sorted(found))


def not_searched(host: Host) -> tuple[str, ...]:
    """See leftovers.ReportsSilence."""
    found = []
    for place in _places(host):
        try:
            with visited(place.dom0, _visit()) as dom0:
                _names(dom0, place)
        except (RunError, UnavailableError) as e:
            name = "dom0" if place.dom0 is None else place.dom0.destination
            found.append(f"{name} does not answer: its guests were not looked at ({e.what})")
    return tuple(dict.fromkeys(found))


def remove_named(host: Host, name: str) -> None:
    """Remove the leftovers of an instance on all dom0s. Harmless if there are none.

    name: label of the instance.
    Raises RunError or UnavailableError if a dom0 does not answer and no other dom0 has leftovers of this
    instance.
    """
    silent: RunError | UnavailableError | None = None
    removed = False
    for place in _places(host):
        try:
            with visited(place.dom0, _visit()) as dom0:
                there = name in _names(dom0, place)
                if there:
                    _remove(dom0, place, name)
        except (RunError, UnavailableError) as e:
            silent = e
            continue
        removed = removed or there
    if silent is not None and not removed:
        raise silent


def _remove(dom0: Host, place: LeftoverNote, name: str) -> None:
    for domain in Xl(dom0).domains():
        if _instance(domain.name) == name:
            Xl(dom0).destroy(domain.name)
    for volume in volumes(dom0):
        if _instance(volume.partition("/")[2]) == name:
            remove_volume(dom0, volume)
    for directory in dict.fromkeys((place.disks, FILES, THERE)):
        paths = [f"{directory}/{name}{part}" for part in ("", *_PARTS)]
        dom0.run(["rm", "-rf", "--", *paths], timeout=_SHORT)


def _places(host: Host) -> tuple[LeftoverNote, ...]:
    """Return the places to search for leftovers: this machine if it is a dom0, and the places in notes of
    runs."""
    here = LeftoverNote(dom0=None, disks=FILES)
    own = (here,) if host.which("xl") is not None and host.is_root() else ()
    return tuple(dict.fromkeys((*own, *(n for n in noted() if n.dom0 is not None or own))))


def _names(dom0: Host, place: LeftoverNote) -> set[str]:
    """Return the labels of the instances that have leftovers on a dom0; empty if it runs no hypervisor."""
    if isinstance(Xl(dom0).facts(), Unavailable):
        return set()
    found: set[str] = set()
    # Files and volumes are listed even if xl fails because the guests leave dom0 no CPU time.
    with contextlib.suppress(RunError):
        found |= {_instance(d.name) for d in Xl(dom0).domains()}
    found |= {_instance(v.partition("/")[2]) for v in volumes(dom0)}
    for directory in dict.fromkeys((place.disks, FILES, THERE)):
        listed = dom0.run(["find", directory, "-maxdepth", "1", "-name", f"{_PREFIX}*"], timeout=_SHORT)
        found |= {_instance(PurePosixPath(path).name) for path in listed.stdout.splitlines()}
    return {name for name in found if name.startswith(_PREFIX)}


def _instance(name: str) -> str:
    """Return the label of the instance to which a file, volume or domain of this name belongs."""
    for part in (*_PARTS, INCOMING, AWAY):
        name = name.removesuffix(part)
    return name


def _visit() -> str:
    return f"nearmetal-check-{os.getpid()}-clean"
