"""Launches by Open MPI 4 and 5. The transport (pml ob1 and one btl) is selected explicitly, so that all
environments of a comparison use the same one."""

from __future__ import annotations

import re

from ..model.study import SingleCopy, Transport
from .job import JOB_VARIABLE, Launch, MpiJob, everywhere

_VERSION = re.compile(r"\(?Open MPI\)? v?(\d+)\.(\d+)\.(\d+)")

_POLLED = ("mpi_event_tick_rate", "1")
"""Parameter by which Open MPI polls its sockets at least every microsecond.

It works around a fault of Open MPI. If both ranks of a pair connect at the same time, which is likely on a
link with a delay, Open MPI drops one connection, and its counter of event loop users may become zero. It then
polls the sockets only every 10 ms for the rest of the job: short messages are a hundred times slower, in some
launches and not in others.
"""


def version(text: str) -> tuple[int, int, int] | None:
    """Return (major, minor, patch) from the output of `mpirun --version` or `mpicc --showme:version`; None
    for another MPI."""
    m = _VERSION.search(text)
    return (int(m[1]), int(m[2]), int(m[3])) if m else None


def _single_copy(wanted: SingleCopy, major: int) -> tuple[str, str]:
    """Return name and value of the MCA parameter that selects the single-copy mechanism of shared memory.

    Open MPI 5 ignores the parameter of version 4, and uses CMA by default. There, the parameter selects a
    component of smsc.
    """
    if major < 5:
        return "btl_vader_single_copy_mechanism", wanted.value
    return "smsc", "cma" if wanted is SingleCopy.CMA else "^cma,knem,xpmem"


def launch(job: MpiJob, mpirun: str, mpi_version: tuple[int, int, int]) -> Launch:
    """Return the command line and environment variables of a launch.

    The single-copy mechanism (CMA) is switched off unless the job requests it, because containers may forbid
    it, and it alone changes the bandwidth of 4 MiB messages by a factor of 1.6. mpirun must not bind ranks to
    CPUs, because it would bind the first rank of every instance to the same CPU. nm-rank or the program binds
    them.
    Raises UsageError if the number of ranks does not match the hosts.
    """
    job.check()
    major = mpi_version[0]
    shm = "vader" if major < 5 else "sm"
    mca: list[tuple[str, str]] = [("pml", "ob1")]
    if job.transport is Transport.SHM:
        mca += [("btl", f"{shm},self"), _single_copy(job.single_copy, major)]
        if job.shared_memory:
            mca.append((f"btl_{shm}_backing_directory", job.shared_memory))
    else:
        mca += [("btl", "tcp,self"), ("btl_tcp_if_include", job.interface), _POLLED]
    if job.yields:
        mca.append(("mpi_yield_when_idle", "1"))
    env = {
        **everywhere(job.scratch),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # All parameters are in argv, where the record shows them. None may come from the outer environment.
        "OMPI_MCA_plm_rsh_pass_environ_mca_params": "0",
        "OMPI_MCA_mca_base_param_files": "none",
    }
    argv = [mpirun, "--bind-to", "none"]
    if job.entering:
        # The ranks are in other network namespaces than their daemon, which by default listens on loopback
        # only. The parameters have different names in PMIx 4 and PMIx 3. Open MPI 4 may use either, so both
        # are set. Open MPI 5 fails if the names of PMIx 3 are set.
        for part in ("base", "tcp") if major < 5 else ("base",):
            env[f"PMIX_MCA_ptl_{part}_if_include"] = job.hub_interface
            env[f"PMIX_MCA_ptl_{part}_remote_connections"] = "1"
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
            # Without other hosts there are no daemons, so the loopback interface suffices. It always exists.
            mca += [("plm", "isolated"), ("oob_tcp_if_include", "lo")]
    for key, value in mca:
        argv += ["--mca", key, value]
    given = [token for name in (JOB_VARIABLE, *job.forward) for token in ("-x", name)]
    argv += ["-n", str(job.ranks), *given, *job.argv]
    kinds = ("pml", "btl", "smsc", "mpi_yield", "mpi_event")
    recorded = {k: v for k, v in mca if k.startswith(kinds) and not k.endswith("_directory")}
    return Launch(
        argv=tuple(argv),
        env=env,
        transport={
            "mpi": f"Open MPI {'.'.join(map(str, mpi_version))}",
            "kind": job.transport.value,
            "single_copy": job.single_copy.value,
            **recorded,
        },
    )
