"""Launches by MPICH with Hydra. The transport is selected explicitly, so that all environments of a
comparison use the same one.

For ranks on one host, some builds of MPICH use their own shared memory, and others (Debian's) that of UCX.
With MPIR_CVAR_NOLOCAL, they use only UCX or libfabric."""

from __future__ import annotations

import re

from ..model.study import SingleCopy, Transport
from .job import Launch, MpiJob, everywhere

_VERSION = re.compile(r"HYDRA build details:\s+Version:\s+(\d+)\.(\d+)(?:\.(\d+))?")


def version(text: str) -> tuple[int, int, int] | None:
    """Return (major, minor, patch) from the output of `mpirun --version`; None for another MPI."""
    m = _VERSION.search(text)
    return (int(m[1]), int(m[2]), int(m[3] or 0)) if m else None


def _fixed(job: MpiJob) -> dict[str, str]:
    """Return the environment variables that select the transport. Some are for libraries with which MPICH may
    not be built; these have no effect then."""
    fixed = {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": job.interface}
    if job.transport is Transport.TCP:
        fixed |= {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": job.interface}
    elif job.single_copy is SingleCopy.CMA:
        # Before 4.2, MPICH's own shared memory does not support CMA, but that of UCX does.
        fixed |= {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "posix,cma,self", "MPIR_CVAR_CH4_CMA_ENABLE": "1"}
    else:
        fixed |= {"MPIR_CVAR_NOLOCAL": "0", "UCX_TLS": "posix,self", "MPIR_CVAR_CH4_CMA_ENABLE": "0"}
    return fixed


def launch(job: MpiJob, mpirun: str, mpi_version: tuple[int, int, int]) -> Launch:
    """Return the command line and environment variables of a launch. MpiJob.forward is not used, because
    Hydra passes its whole environment to the ranks.

    Raises UsageError if the number of ranks does not match the hosts.
    """
    job.check()
    fixed = _fixed(job)
    env = {**everywhere(job.scratch), **fixed, "HYDRA_BINDING": "none", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    argv = [job.box, "silent", "--", mpirun]
    if job.hosts:
        argv += ["-hosts", ",".join(f"{h.host}:{h.slots}" for h in job.hosts), "-wdir", "/"]
        argv += ["-launcher", "ssh", "-launcher-exec", job.agent[0], "-localhost", job.hub_address]
        env["HYDRA_LAUNCHER_EXTRA_ARGS"] = " ".join(job.agent[1:])
    else:
        argv += ["-launcher", "fork"]
    return Launch(
        argv=(*argv, "-n", str(job.ranks), *job.argv),
        env=env,
        transport={
            "mpi": f"MPICH {'.'.join(map(str, mpi_version))}",
            "kind": job.transport.value,
            "single_copy": job.single_copy.value,
            **fixed,
            # Whether a waiting rank yields its CPU is decided when MPICH is built.
            **({"yields": "as MPICH was built"} if job.yields else {}),
        },
    )
