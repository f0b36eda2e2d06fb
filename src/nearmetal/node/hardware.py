"""What of the machine an application may size itself by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..host import Host
from ..host.provenance import cpu_flags, memory_bytes

RDMA = Path("/sys/class/infiniband")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What applications may need of this machine.

    memory: bytes.
    cpu_flags: as in /proc/cpuinfo, empty where there are none.
    rdma: names of devices.
    """

    memory: int
    cpu_flags: frozenset[str] = frozenset()
    rdma: tuple[str, ...] = ()


def hardware_of(host: Host, rdma: Path = RDMA) -> Hardware:
    """rdma: where Linux lists its RDMA devices."""
    return Hardware(
        memory=memory_bytes(host) or 1 << 30,
        cpu_flags=cpu_flags(host),
        rdma=tuple(sorted(p.name for p in rdma.iterdir())) if rdma.is_dir() else (),
    )
