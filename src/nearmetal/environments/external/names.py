"""Finds the instance that the user names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...errors import NearmetalError, UsageError
from ...host import Host
from .containers import LxcContainer, RuncContainer
from .contract import External
from .domains import LibvirtDomain
from .monitor import QemuProcess
from .process import ProcessTree
from .xen_domains import XenDomain


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _checked(text: str) -> str:
    """Return a name that programs cannot mistake for an option. It may come from a description that somebody
    else has made. Raises UsageError."""
    if text.startswith("-") or not text.isprintable():
        raise UsageError(f"{text!r} is no name of an instance", remedy=_REMEDY)
    return text


def _process(text: str) -> ProcessTree:
    if not _is_number(text) or not 2 <= int(text) < 1 << 31:
        raise UsageError(f"{text!r} is not a PID", remedy="pid: and a number of: ps -e")
    return ProcessTree(pid=int(text))


_NAMED: Mapping[str, Callable[[str], External]] = {
    "libvirt": lambda text: LibvirtDomain(domain=text),
    "runc": lambda text: RuncContainer(container=text),
    "lxc": lambda text: LxcContainer(container=text),
    "xl": lambda text: XenDomain(domain=text),
}
"""Prefix -> constructor, for instances that have a name at the program that manages them."""
_MAKE: Mapping[str, Callable[[str], External]] = {
    "pid": _process,
    "qmp": lambda text: QemuProcess(socket=Path(text)),
    **_NAMED,
}
KINDS = tuple(_MAKE)
"""All prefixes of names."""
FORMS = ("pid:N", "qmp:SOCKET", *(f"{kind}:NAME" for kind in _NAMED))
"""Each prefix with a word for what follows it."""
_REMEDY = f"one of the prefixes {', '.join(f'{kind}:' for kind in KINDS)}"


def named(text: str) -> External:
    """Return the instance for a name with a prefix, such as `pid:4711`, without checking that it exists.

    Raises UsageError if the text has no known prefix.
    """
    kind, colon, rest = text.partition(":")
    if not colon or not rest or kind not in _MAKE:
        raise UsageError(f"{text!r} names no instance", remedy=_REMEDY)
    return _MAKE[kind](_checked(rest))


def find_external(host: Host, text: str) -> External:
    """Return the instance that the user names.

    Without a prefix, a number is a PID, and a path is a QMP socket. Any other name is searched among the
    running instances of all programs that are installed.
    Raises UsageError if no instance, or more than one, has this name.
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
    if _is_number(text):
        return _process(text)
    if "/" in text or Path(text).is_socket():
        return QemuProcess(socket=Path(text))
    found = []
    for make in _NAMED.values():
        instance = make(_checked(text))
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
