"""Determines whether Xen itself runs on hardware, in a virtual machine or in an emulator. The figures of its
guests are labelled accordingly."""

from __future__ import annotations

from pathlib import PurePosixPath

from ...errors import RunError
from ...host import Host
from ...host.ssh import SshHost
from ..contract import Tools
from ..cpuid import TCG, hypervisors, machine_name, plain_name
from .dom0 import THERE

XEN = "XenVMMXenVMM"
COPY_SECONDS = 60.0


def nested(dom0: Host, tools: Tools, label: str) -> str:
    """Return where Xen itself runs: 'Xen in TCG: QEMU Standard PC', 'Xen in a virtual machine: KVM, …'.

    dom0: dom0 of a Xen whose processor reports that it is virtual (XenFacts.virtual).
    label: name of a temporary directory on dom0.
    """
    below = [name for name in _below(dom0, tools, label) if name != XEN]
    where = machine_name(dom0)
    if TCG in below:
        return f"Xen in TCG: {where}"
    named = ", ".join([*map(plain_name, below), where])
    return f"Xen in a virtual machine: {named}"


def _below(dom0: Host, tools: Tools, label: str) -> tuple[str, ...]:
    """Return the names of the hypervisors that CPUID reports on dom0; empty if nm-box cannot run there, or if
    Xen hides them."""
    if not isinstance(dom0, SshHost):
        return hypervisors(dom0, tools / "nm-box")
    # A private directory, because its parent is writable for everybody.
    directory = PurePosixPath(THERE) / label
    if not dom0.run(["mkdir", "-m", "700", str(directory)], timeout=COPY_SECONDS).ok:
        return ()
    try:
        dom0.copy(tools.directory / "nm-box", str(directory / "nm-box"), timeout=COPY_SECONDS)
        return hypervisors(dom0, str(directory / "nm-box"))
    except RunError:
        return ()
    finally:
        dom0.run(["rm", "-rf", str(directory)], timeout=COPY_SECONDS)
