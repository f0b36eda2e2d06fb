"""Finds the instance that a user has named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...errors import NearmetalError, UsageError
from ...host import Host
from .containers import LxcContainer, RuncContainer
from .contract import External
from .domains import LibvirtDomain, XenDomain
from .monitor import QemuProcess
from .process import ProcessTree


def _process(text: str) -> ProcessTree:
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"{text!r} is no PID", remedy="pid: and a number of: ps -e")
    return ProcessTree(pid=int(text))


_NAMED: Mapping[str, Callable[[str], External]] = {
    "libvirt": lambda text: LibvirtDomain(domain=text),
    "runc": lambda text: RuncContainer(container=text),
    "lxc": lambda text: LxcContainer(container=text),
    "xl": lambda text: XenDomain(domain=text),
}
"""Kinds whose instances have names."""
_MAKE: Mapping[str, Callable[[str], External]] = {
    "pid": _process,
    "qmp": lambda text: QemuProcess(socket=Path(text)),
    **_NAMED,
}
KINDS = tuple(_MAKE)
"""The prefixes of names."""
_REMEDY = f"one of the prefixes {', '.join(f'{kind}:' for kind in KINDS)}"


def named(text: str) -> External:
    """Return the instance that a name with a prefix stands for, such as `pid:4711`. Raises UsageError for
    another text."""
    kind, colon, rest = text.partition(":")
    if not colon or not rest or kind not in _MAKE:
        raise UsageError(f"{text!r} names no instance", remedy=_REMEDY)
    return _MAKE[kind](rest)


def find_external(host: Host, text: str) -> External:
    """Return the instance that a user has named.

    Without a prefix, a number is a PID, a path is a QMP socket, and another name is looked for in every
    program that is installed.
    Raises UsageError if there is none, or more than one.
    """
    kind, _, name = text.partition(":")
    if kind in _MAKE:
        return named(text)
    if kind == "podman" and name:
        raise UsageError(
            f"{text!r}: a container of Podman is moved by Podman itself",
            remedy=f"podman container checkpoint --export FILE {name}; where its image is: podman container "
            "restore --import FILE",
        )
    if text.isdigit():
        return _process(text)
    if "/" in text or Path(text).is_socket():
        return QemuProcess(socket=Path(text))
    found = []
    for make in _NAMED.values():
        instance = make(text)
        try:
            instance.inspect(host)
        except NearmetalError:
            continue
        found.append(instance)
    if not found:
        raise UsageError(f"no running instance is named {text!r}", remedy=_REMEDY)
    if len(found) > 1:
        names = " or ".join(i.name for i in found)
        raise UsageError(f"{text!r} names several instances", remedy=f"write {names}")
    return found[0]
