"""The machine that a run measures on, and where what was made for it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..environments import Tools
from ..host import Host
from ..host.runtime import user_cache
from ..images import ImageStore
from ..launchers import InstalledMpi
from ..workloads.build import BuiltTools
from .hardware import Hardware


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The host with everything compiled.

    llc: bytes of the last-level cache.
    cpus: usable CPUs in the order in which ranks take them.
    cores: that these belong to.
    hardware: what applications size themselves by.
    """

    host: Host
    tools: Tools
    built: BuiltTools
    mpi: InstalledMpi
    llc: int
    cpus: tuple[int, ...]
    cores: int
    hardware: Hardware


def cache_directory() -> Path:
    """Where compiled tools are kept: $XDG_CACHE_HOME/nearmetal, else ~/.cache/nearmetal."""
    return user_cache() / "nearmetal"


def image_store() -> ImageStore:
    """The images of this user."""
    return ImageStore(cache_directory() / "images")
