"""Energy of the processor packages by RAPL (/sys/class/powercap).

Most machines let only root read it, and few virtual machines have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...model.scope import NODE
from ..base import MissingValue
from .procfiles import Counters

PLACE = "sys/class/powercap"


@dataclass(frozen=True, kw_only=True)
class EnergyDomain:
    """A processor package, with the kernel's name for it ('package-0').

    wraps: value in microjoules at which its counter restarts at 0.
    """

    name: str
    file: Path
    wraps: float


def energy_domains(root: Path = Path("/")) -> tuple[EnergyDomain, ...] | MissingValue:
    """Return the packages of the machine; MissingValue with the reason if the energy of one cannot be read.

    root: root of another directory tree, for tests.
    """
    place = root / PLACE
    # A name with one more colon is a part of a package, such as its cores or its memory.
    found = sorted(place.glob("*-rapl:*")) if place.is_dir() else []
    packages = [p for p in found if p.name.count(":") == 1]
    if not packages:
        return MissingValue(f"no RAPL domain in /{PLACE}")
    domains = []
    try:
        for package in packages:
            file = package / "energy_uj"
            file.read_text()
            name, wraps = (package / "name").read_text(), (package / "max_energy_range_uj").read_text()
            domains.append(EnergyDomain(name=name.strip(), file=file, wraps=float(wraps)))
    except (OSError, ValueError) as e:
        return MissingValue(f"energy cannot be read: {e}")
    return tuple(domains)


def energy_files() -> dict[str, str]:
    """Return the paths of the counters by name, for the sampler; empty if none can be read."""
    found = energy_domains()
    return {} if isinstance(found, MissingValue) else {f"energy.{d.name}": str(d.file) for d in found}


class EnergyMeter:
    """A source of counters: the energy of the whole node in joules, since the meter was made.

    A counter may restart at 0 once between two reads. If a domain can no longer be read, the value is None
    from then on.
    """

    scope = NODE

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
