"""Open MPI 4 and 5: pml ob1 and one named transport, so that both sides of a comparison use the same."""

from __future__ import annotations

import re

from ..errors import UsageError
from ..model.study import Transport
from .job import Launch, MpiJob

_VERSION = re.compile(r"\(?Open MPI\)? v?(\d+)\.(\d+)\.(\d+)")


def version(text: str) -> tuple[int, int, int] | None:
    """(major, minor, patch) from what `mpirun --version` or `mpicc --showme:version` says; None for another
    MPI."""
    m = _VERSION.search(text)
    return (int(m[1]), int(m[2]), int(m[3])) if m else None


def launch(job: MpiJob, mpirun: str, mpi_version: tuple[int, int, int]) -> Launch:
    """Tokens and environment of one launch.

    The single-copy mechanism (CMA) is switched off alike everywhere: containers may forbid it, and it alone
    changes 4 MiB bandwidth by a factor of 1.6. Ranks are bound by nm-rank or by themselves, never by mpirun,
    which would bind the first rank of every instance to the same CPU.
    """
    if job.hosts and sum(h.slots for h in job.hosts) != job.ranks:
        raise UsageError(f"{job.ranks} ranks do not fit hosts {job.hosts}")
    major = mpi_version[0]
    shm = "vader" if major < 5 else "sm"
    mca: list[tuple[str, str]] = [("pml", "ob1")]
    if job.transport is Transport.SHM:
        mca += [("btl", f"{shm},self"), (f"btl_{shm}_single_copy_mechanism", "none")]
    else:
        mca += [("btl", "tcp,self"), ("btl_tcp_if_include", job.interface)]
    if job.yields:
        mca.append(("mpi_yield_when_idle", "1"))
    env = {
        # Not /tmp: there another user's session directory may stand in the way.
        "TMPDIR": job.scratch,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # The parameters stand in argv, where the record shows them; none is to come in from outside.
        "OMPI_MCA_plm_rsh_pass_environ_mca_params": "0",
        "OMPI_MCA_mca_base_param_files": "none",
        # CPU-wide probing of the node by hwloc through X11 or OpenCL would only cost start-up time.
        "HWLOC_COMPONENTS": "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero",
    }
    argv = [mpirun, "-n", str(job.ranks), "--bind-to", "none"]
    if job.hosts:
        argv += ["--host", ",".join(f"{h.host}:{h.slots}" for h in job.hosts), "--map-by", "slot"]
        argv += ["--wdir", "/"]
        if major < 5:
            env["OMPI_MCA_plm_rsh_agent"] = " ".join(job.agent)
            mca.append(("oob_tcp_if_include", f"{job.hub_interface},{job.interface}"))
        else:
            argv += [
                "--prtemca",
                "plm_ssh_agent",
                " ".join(job.agent),
                "--prtemca",
                "plm_ssh_no_tree_spawn",
                "1",
            ]
    else:
        argv += ["--oversubscribe"]
        if major < 5:
            # Without remote hosts no daemon has to be reached: the loopback is enough and never absent.
            mca += [("plm", "isolated"), ("oob_tcp_if_include", "lo")]
    for key, value in mca:
        argv += ["--mca", key, value]
    recorded = {k: v for k, v in mca if k.startswith(("pml", "btl", "mpi_yield"))}
    return Launch(
        argv=(*argv, *job.argv),
        env=env,
        transport={
            "mpi": f"Open MPI {'.'.join(map(str, mpi_version))}",
            "kind": job.transport.value,
            **recorded,
        },
    )
