"""Barrier: nobody goes on before everybody has come."""

from __future__ import annotations

from .collective import collective_kernel

KERNEL = collective_kernel("barrier", doc="MPI collective: the time of one barrier")
