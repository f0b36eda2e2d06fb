"""Determines whether this machine is physical, virtual or emulated. On an emulated machine, every figure
describes the emulator."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from ..host import Host, text_of
from .contract import Tools

ASK_SECONDS = 60.0
TCG = "TCGTCGTCGTCG"
"""The hypervisor name that QEMU's emulator reports (target/i386/cpu.c of QEMU)."""
_NAMES = {
    TCG: "TCG",
    "KVMKVMKVM": "KVM",
    "Microsoft Hv": "Hyper-V",
    "VMwareVMware": "VMware",
    "VBoxVBoxVBox": "VirtualBox",
    "bhyve bhyve ": "bhyve",
}
_DMI = "/sys/class/dmi/id"


def hypervisors(host: Host, program: str) -> tuple[str, ...]:
    """Return the names of the hypervisors under which a machine runs, as the CPUID instruction reports them;
    empty if it reports none.

    host: the machine.
    program: path of nm-box on that machine.
    """
    done = host.run([program, "cpuid"], timeout=ASK_SECONDS)
    try:
        names = json.loads(done.stdout)["hypervisors"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def plain_name(name: str) -> str:
    """Return the usual name of a hypervisor, 'KVM' for 'KVMKVMKVM'. An unknown name is returned unchanged."""
    return _NAMES.get(name, name.strip())


def machine_name(host: Host) -> str:
    """Return maker and product of a machine from its DMI data, such as 'QEMU Standard PC (Q35 + ICH9, 2009)',
    or a text saying that the maker is unknown."""
    words = " ".join(text_of(host, f"{_DMI}/{item}") for item in ("sys_vendor", "product_name")).split()
    return " ".join(words) or "a machine of an unknown maker"


def emulator(host: Host, tools: Tools) -> str:
    """Return the emulator of this machine, such as 'TCG: QEMU Standard PC'; empty if it is not emulated, even
    if it is virtual.

    The answer is cached, since it does not change during a run.
    """
    hashable_host: Any = host  # the protocol Host does not declare that it can be hashed
    return _emulator(hashable_host, tools)


@lru_cache(maxsize=8)
def _emulator(host: Any, tools: Tools) -> str:
    return f"TCG: {machine_name(host)}" if TCG in hypervisors(host, tools / "nm-box") else ""
