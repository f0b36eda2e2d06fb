"""Runs one kernel alone, natively and with verification."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..host import LocalHost
from ..host.lock import machine_lock
from ..host.runtime import scratch_directory
from ..workloads.kernels.contract import CLASSES
from ..workloads.kernels.registry import kernel, kernel_names
from .catalog import catalog
from .workload_names import read_values

if TYPE_CHECKING:
    from ..node.progress import Progress
    from ..run.kernel_run import KernelResult
    from ..run.kernel_run import ProfiledRank as ProfiledRank

__all__ = ["CLASSES", "kernel_names", "run_kernel"]


def run_kernel(
    name: str,
    settings: Mapping[str, str],
    *,
    size: str = CLASSES[0],
    ranks: int | None = None,
    threads: int = 1,
    oversubscribe: bool = False,
    profile: bool = False,
    view: AbstractContextManager[Progress] | None = None,
) -> KernelResult:
    """Run a kernel once on this machine.

    settings: values of the kernel's own keys as text, as in a study file.
    size: class of a NAS benchmark, if the settings do not contain it; other kernels have none.
    ranks: MPI ranks; 2 if omitted, or 1 if the kernel does not run on 2 or the machine has one CPU.
    threads: threads of each rank.
    oversubscribe: let ranks share CPUs if the machine has too few.
    profile: also return the time of each rank in each MPI call, and its messages.
    view: opens a display, which receives a message for each slow step of the preparation. It is closed before
        the kernel runs, since a live display takes CPU time.

    Raises UsageError for a wrong name or value, UnavailableError or RunError.
    """
    from ..node.machine import new_label, prepare_machine
    from ..node.progress import NullProgress
    from ..run.kernel_run import run_once

    known = catalog().kernels
    if name not in known:
        raise UsageError(f"no kernel {name}", remedy=f"one of {', '.join(known)}")
    usual = {"class": size} if "class" in known[name] else {}
    params = read_values(name, {**usual, **settings}, known[name])
    with view or nullcontext(NullProgress()) as progress:
        machine = prepare_machine(LocalHost(), progress)
    if ranks is None:
        ranks = 2 if len(machine.cpus) > 1 and kernel(name).ranks.allow(2) else 1
    label = new_label()
    with machine_lock(label, command=f"nearmetal kernel {name}"), scratch_directory(label) as scratch:
        return run_once(
            machine,
            name,
            ranks,
            params,
            threads=threads,
            label=label,
            scratch=scratch,
            profiled=profile,
            oversubscribe=oversubscribe,
        )
