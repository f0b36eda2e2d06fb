"""Determines by which methods the instances of each backend can be checkpointed and moved on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...environments import Backend, Checkpoints, Migrates, Unavailable
from ...environments.dmtcp import find_dmtcp
from ...host import Host
from ...lifecycle import Method
from ...model.environments.guest import GuestSettings
from ...model.study import Attachment, Environment
from ...node.criu import CHECKED_METHODS, find_criu
from ...subjects.migrate import Migrate
from ..checking import NOT_HERE, WORKS, Check, unless

_IMAGE = "debian-kernel"
"""Image of the guest for which moves are checked: guests with image `host` cannot be moved."""


def check_checkpoints(host: Host) -> Iterator[Check]:
    """Check whether processes can be written to files and restored, and by which methods."""
    found = find_criu(host)
    if isinstance(found, Unavailable):
        yield unless(found, "criu")
    else:
        yield unless(None, "criu", f"{found.version}, {found.argv[-1]}")
        for method in CHECKED_METHODS:
            yield unless(found.unable.get(method), f"checkpoint {method}")
    dmtcp = find_dmtcp(host)
    if isinstance(dmtcp, Unavailable):
        yield unless(dmtcp, f"checkpoint {Method.DMTCP}")
    else:
        yield unless(None, f"checkpoint {Method.DMTCP}", f"{dmtcp.version}, {dmtcp.directory}")


def check_moves(host: Host, backends: Iterable[Backend]) -> Iterator[Check]:
    """Check by which methods instances can be moved on this machine.

    backends: those that can start instances here. Backends whose instances cannot be moved are left out.
    """
    by_criu = _lacking(host)
    for backend in backends:
        methods = Migrate.methods(backend)
        if not methods:
            continue
        # What CRIU lacks is in the lines of check_checkpoints().
        absent = ", ".join(m for m in methods if by_criu.get(m) is not None)
        asked = {m: _refused(host, backend, m) for m in methods if by_criu.get(m) is None}
        able = ", ".join(m for m, why in asked.items() if why is None)
        refused = [f"not {m}: {why.reason}" for m, why in asked.items() if why is not None]
        yield Check(
            state=WORKS if able else NOT_HERE,
            what=f"move {backend.name}",
            why="; ".join(filter(None, (able, f"not {absent}, see above" if absent else "", *refused))),
        )


def _lacking(host: Host) -> Mapping[Method, Unavailable | None]:
    """Return what each method of CRIU lacks on this machine; None if it works."""
    criu = find_criu(host)
    return {m: criu if isinstance(criu, Unavailable) else criu.unable.get(m) for m in Method if m.by_criu}


def _refused(host: Host, backend: Backend, method: Method) -> Unavailable | None:
    """Return why a usual instance of a backend cannot be moved by a method; None if it can."""
    if method.by_criu and isinstance(backend, Checkpoints):
        alone = Attachment.NONE if "net" in backend.capabilities.own else Attachment.HOST
        usual = Environment(name=backend.name, backend=backend.name, attachment=alone)
        return backend.refuses_checkpoint(host, usual)
    guest = Environment(
        name=backend.name,
        backend=backend.name,
        image=_IMAGE,
        attachment=Attachment.VETH_BRIDGE,
        guest=GuestSettings(),
    )
    return backend.unmovable(guest, method) if isinstance(backend, Migrates) else None
