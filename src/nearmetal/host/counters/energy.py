"""Energy of the processor packages by RAPL (/sys/class/powercap), which most machines let only root read, and
virtual machines hardly ever have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..base import Unavailable
from .procfiles import Counters

PLACE = "sys/class/powercap"


@dataclass(frozen=True, kw_only=True)
class EnergyDomain:
    """A package as the kernel names it ('package-0'). wraps: microjoules at which its counter begins anew."""

    name: str
    file: Path
    wraps: float


def energy_domains(root: Path = Path("/")) -> tuple[EnergyDomain, ...] | Unavailable:
    """The packages whose energy can be read; root: of another tree, for tests."""
    place = root / PLACE
    # A colon more is a part of a package: its cores, its memory.
    found = sorted(place.glob("*-rapl:*")) if place.is_dir() else []
    packages = [p for p in found if p.name.count(":") == 1]
    if not packages:
        return Unavailable(f"no RAPL domain in /{PLACE}")
    domains = []
    try:
        for package in packages:
            file = package / "energy_uj"
            file.read_text()
            name, wraps = (package / "name").read_text(), (package / "max_energy_range_uj").read_text()
            domains.append(EnergyDomain(name=name.strip(), file=file, wraps=float(wraps)))
    except (OSError, ValueError) as e:
        return Unavailable(f"energy cannot be read: {e}")
    return tuple(domains)


def energy_files() -> dict[str, str]:
    """Path by name, for the sampler; empty where there is nothing to read."""
    found = energy_domains()
    return {} if isinstance(found, Unavailable) else {f"energy.{d.name}": str(d.file) for d in found}


class EnergyMeter:
    """Joules of the whole node since it was made, a counter that begins anew between two reads allowed for;
    none where a domain cannot be read any more. A source of counters."""

    name = "node"

    def __init__(self, domains: tuple[EnergyDomain, ...]) -> None:
        self._domains = domains
        self._last: Mapping[str, float] | None = self._read()
        self._joules = 0.0

    def read(self) -> Counters:
        now, last = self._read(), self._last
        if now is None or last is None:
            self._last = None
            return {"energy": None}
        for d in self._domains:
            more = now[d.name] - last[d.name]
            self._joules += (more if more >= 0 else more + d.wraps) / 1e6
        self._last = now
        return {"energy": self._joules}

    def _read(self) -> Mapping[str, float] | None:
        try:
            return {d.name: float(d.file.read_text()) for d in self._domains}
        except (OSError, ValueError):
            return None
