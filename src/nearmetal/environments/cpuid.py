"""What a machine itself is: one of its own, a virtual one, or one that is emulated, and then every figure of
it is an emulator's."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from ..host import Host
from ..host.base import Unavailable
from .contract import Tools

ASK_SECONDS = 60.0
TCG = "TCGTCGTCGTCG"
"""The name that QEMU's translator gives (target/i386/cpu.c of QEMU)."""
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
    """Names of those under a machine, as its processor gives them; empty where there is none or it does not
    tell. program: nm-box, there."""
    done = host.run([program, "cpuid"], timeout=ASK_SECONDS)
    try:
        told = json.loads(done.stdout)["hypervisors"]
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(str(name) for name in told) if isinstance(told, list) else ()


def plain_name(name: str) -> str:
    """'KVM' of 'KVMKVMKVM'; an unknown one as it is."""
    return _NAMES.get(name, name.strip())


def machine_name(host: Host) -> str:
    """Maker and product, 'QEMU Standard PC (Q35 + ICH9, 2009)'; where it tells neither, that it does not."""
    texts = [host.read(f"{_DMI}/{item}") for item in ("sys_vendor", "product_name")]
    words = [" ".join(t.decode(errors="replace").split()) for t in texts if not isinstance(t, Unavailable)]
    return " ".join(filter(None, words)) or "a machine that does not tell its maker"


def emulator(host: Host, tools: Tools) -> str:
    """By what this machine is emulated, 'TCG: QEMU Standard PC'; empty where it is not, also for a virtual
    machine on a processor. Asked once, since the answer does not change while we run."""
    asked: Any = host  # a protocol says nothing of hashing
    return _emulator(asked, tools)


@lru_cache(maxsize=8)
def _emulator(host: Any, tools: Tools) -> str:
    return f"TCG: {machine_name(host)}" if TCG in hypervisors(host, tools / "nm-box") else ""
