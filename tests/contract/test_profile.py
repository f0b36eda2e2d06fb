"""The profile of MPI calls against programs whose traffic is known: C, `use mpi` and `use mpi_f08`, Open MPI
and MPICH, each call counted once."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from nearmetal.host import Completed, LocalHost
from nearmetal.host.runtime import cache_directory
from nearmetal.model.workloads.profile import PeerProfile
from nearmetal.samplers.profile import LaunchProfile, LevelProfile, parse_profile
from nearmetal.subjects.launches.profiles import read_profiles
from nearmetal.workloads.build import build_tools
from nearmetal.workloads.protocol import parse_report

pytestmark = pytest.mark.more

KERNELS = Path(__file__).parents[2] / "kernels"
RANKS = 3
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
LAUNCHERS = {
    "openmpi": ("mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1"),
    "mpich": ("mpiexec.hydra",),
}
SOURCES = {"c": "traffic.c", "use mpi": "traffic_mpi.f90", "use mpi_f08": "traffic_f08.f90"}

EVERY_RANK = {
    "MPI_Sendrecv": (5, 5 * 80),
    "MPI_Isend": (3, 3 * 28),
    "MPI_Irecv": (3, 0),
    "MPI_Send_init": (1, 0),
    "MPI_Startall": (6, 6 * 16),
    "MPI_Request_free": (2, 0),
    "MPI_Waitall": (9, 0),
    "MPI_Comm_split": (1, 0),
    "MPI_Comm_free": (1, 0),
    "MPI_Win_create": (1, 0),
    "MPI_Win_fence": (2, 0),
    "MPI_Win_free": (1, 0),
    "MPI_Allreduce": (4, 4 * 8),
    "MPI_Alltoall": (1, 3 * 8),
    "MPI_Allgather": (1, 8),
}
"""Count and bytes of every rank's calls in traffic.c."""
OWN = (
    {"MPI_Send": (1, 0), "MPI_Bcast": (1, 0), "MPI_Put": (1, 40)},
    {"MPI_Send": (1, 0), "MPI_Bcast": (1, 12), "MPI_Recv": (2, 0)},
    {"MPI_Send": (3, 200), "MPI_Bcast": (1, 0)},
)
PEERS = (
    {1: (5 + 6, 400 + 96), 2: (3 + 1, 84 + 40)},  # the Put: rank 0 of the reversed order is 2
    {0: (3, 84), 2: (5 + 6, 400 + 96)},
    {0: (5 + 6, 400 + 96), 1: (3 + 2, 84 + 200)},  # the Sends: rank 1 of the reversed order is 1
)
"""Messages and bytes by world rank, of each rank."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """The library and nm-rank, built for one MPI. own: where the test programs go."""

    mpi: str
    directory: Path
    own: Path

    def program(self, source: str) -> str:
        """A test program, compiled once by this MPI's own wrapper; MPICH's headers warn about themselves."""
        program = self.own / Path(source).stem
        if not program.exists():
            wrapper = "mpif90" if source.endswith(".f90") else "mpicc"
            argv = [f"{wrapper}.{self.mpi}", "-w", "-o", str(program), str(KERNELS / "tests" / source)]
            subprocess.run(argv, check=True, timeout=600, cwd=self.own)
        return str(program)

    def run(self, profiles: Path, *program: str) -> Completed:
        wrapper = [str(self.directory / "nm-rank"), "--report", str(profiles)]
        wrapper += ["--preload", str(self.directory / "libnm-profile.so"), "--profile", str(profiles)]
        argv = [*LAUNCHERS[self.mpi], "-n", str(RANKS), *wrapper, "--", *program]
        return LocalHost().run(argv, timeout=600, env=ENVIRONMENT)


@pytest.fixture(scope="module", params=list(LAUNCHERS))
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    made = build_tools(LocalHost(), cache_directory(), progress=None, mpicc=f"mpicc.{request.param}")
    return Built(mpi=request.param, directory=made.directory, own=tmp_path_factory.mktemp("own"))


def level(profile: LaunchProfile, number: int) -> LevelProfile:
    (found,) = (s for s in profile.sections if s.level == number)
    return found


def outside(profile: LaunchProfile) -> dict[str, tuple[int, int]]:
    return {name: (c.count, c.bytes) for name, c in level(profile, 1).calls.items()}


@pytest.mark.parametrize("binding", list(SOURCES))
def test_every_call_and_every_message_is_counted_once(built: Built, binding: str, tmp_path: Path) -> None:
    done = built.run(tmp_path, built.program(SOURCES[binding]))
    assert done.ok, done.failure()
    assert not done.stderr.strip()
    for rank, found in enumerate(read_profiles(tmp_path, RANKS)):
        assert (found.rank, found.ranks, found.complete) == (rank, RANKS, True)
        assert {"openmpi": "Open MPI", "mpich": "MPICH"}[built.mpi] in found.mpi
        assert outside(found) == EVERY_RANK | OWN[rank]
        assert level(found, 1).peers == tuple(
            PeerProfile(rank=peer, messages=messages, bytes=sent)
            for peer, (messages, sent) in PEERS[rank].items()
        )
        assert {n: (c.count, c.bytes) for n, c in level(found, 3).calls.items()} == {"MPI_Barrier": (2, 0)}
        assert {s.level for s in found.sections} == {1, 3}


def test_the_parts_are_the_life_of_the_process(built: Built, tmp_path: Path) -> None:
    done = built.run(tmp_path, built.program("traffic.c"))
    assert done.ok, done.failure()
    missing = []
    for rank, found in enumerate(read_profiles(tmp_path, RANKS)):
        whole = found.whole()
        wall = parse_report((tmp_path / f"rank.{rank}.json").read_text()).wall
        missing.append(wall - whole.seconds)
        assert min(whole.before, whole.init, whole.compute, whole.finalize) > 0
        inside = sum(c.seconds for c in whole.calls.values())
        assert whole.communication == pytest.approx(inside, rel=1e-6)
    # What is missing is the end of the process, behind its last call: libraries are unloaded. A busy machine
    # parts the two clocks further, but not those of all ranks alike.
    allowed = 0.02 * wall + 0.02
    assert min(map(abs, missing)) < allowed and max(map(abs, missing)) < allowed + 0.5
    assert [p.stat().st_mode & 0o777 for p in tmp_path.glob("profile.*")] == [0o600] * RANKS


def test_threads_lose_no_message(built: Built, tmp_path: Path) -> None:
    """Several threads call at once: all they send is counted, and only the first one's time is the run's."""
    done = built.run(tmp_path, built.program("threads.c"))
    assert done.ok, done.failure()
    for rank, found in enumerate(read_profiles(tmp_path, RANKS)):
        whole = found.whole()
        assert [(p.rank, p.messages, p.bytes) for p in whole.peers] == [(rank, 8000, 64000)]
        assert whole.calls["MPI_Sendrecv"].count == 8000
        assert whole.compute >= 0


@pytest.mark.parametrize("how", ["exit", "abort"])
def test_a_program_that_does_not_finalize_leaves_what_is_known(
    built: Built, how: str, tmp_path: Path
) -> None:
    """The launcher kills the others, so at least the rank that ended first has written."""
    done = built.run(tmp_path, built.program("traffic.c"), how)
    assert not done.ok
    left = [parse_profile(p.read_text(), p.name) for p in tmp_path.glob("profile.*.json")]
    assert left and not any(p.complete for p in left)
    assert all(outside(p) == EVERY_RANK | OWN[p.rank] for p in left)


def test_a_program_without_mpi_is_left_alone(built: Built, tmp_path: Path) -> None:
    done = built.run(tmp_path, "sh", "-c", "echo $((40 + 2))")
    assert done.ok and done.stdout.split() == ["42"] * RANKS
    assert not list(tmp_path.glob("profile.*"))


def test_a_profile_that_cannot_be_written_does_not_fail_the_program(built: Built, tmp_path: Path) -> None:
    gone = ["env", f"NEARMETAL_PROFILE={tmp_path}/gone"]
    done = built.run(tmp_path, *gone, built.program("traffic.c"))
    assert done.ok
    assert f"the profile of rank 0 cannot be written to {tmp_path}/gone: {os.strerror(2)}" in done.stderr
