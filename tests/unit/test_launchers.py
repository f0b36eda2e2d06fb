"""Launch tokens are pure: the same job gives the same tokens, and what matters stands in them."""

import pytest

from nearmetal.errors import UsageError
from nearmetal.launchers import (
    HostSlots,
    MpiJob,
    PlacementDiffers,
    openmpi_launch,
    openmpi_version,
    verify_places,
)
from nearmetal.model.record import RankPlace
from nearmetal.model.study import Placement, Transport


def test_version_is_read_and_another_mpi_is_not() -> None:
    assert openmpi_version("mpirun (Open MPI) 4.1.4\n\nReport bugs") == (4, 1, 4)
    assert openmpi_version("HYDRA build details:\n Version: 4.0.2") is None


@pytest.mark.parametrize(("major", "btl"), [(4, "vader,self"), (5, "sm,self")])
def test_shared_memory_is_named_and_cma_is_off(major: int, btl: str) -> None:
    job = MpiJob(argv=("prog", "a b"), ranks=2, transport=Transport.SHM, interface="lo", scratch="/run/t")
    out = openmpi_launch(job, "/usr/bin/mpirun", (major, 1, 4))
    assert out.argv[-2:] == ("prog", "a b")
    assert out.transport["btl"] == btl
    assert "none" in {v for k, v in out.transport.items() if k.endswith("single_copy_mechanism")}


def test_ranks_that_share_a_cpu_yield_it_while_they_wait() -> None:
    job = MpiJob(argv=("p",), ranks=4, transport=Transport.SHM, interface="lo", scratch="/run/t", yields=True)
    out = openmpi_launch(job, "mpirun", (4, 1, 4))
    at = out.argv.index("mpi_yield_when_idle")
    assert out.argv[at - 1 : at + 2] == ("--mca", "mpi_yield_when_idle", "1")
    assert out.transport["mpi_yield_when_idle"] == "1"


def test_across_instances_only_tcp_and_the_agent() -> None:
    hosts = (HostSlots(host="a", slots=1), HostSlots(host="b", slots=1))
    job = MpiJob(
        argv=("prog",),
        ranks=2,
        transport=Transport.TCP,
        interface="eth0",
        scratch="/run/t",
        hosts=hosts,
        agent=("/t/nm-box", "agent", "/t/map"),
        hub_interface="br0",
    )
    four = openmpi_launch(job, "mpirun", (4, 1, 4))
    assert four.env["OMPI_MCA_plm_rsh_agent"] == "/t/nm-box agent /t/map"
    assert "a:1,b:1" in four.argv
    assert four.transport["btl_tcp_if_include"] == "eth0"
    five = openmpi_launch(job, "mpirun", (5, 0, 7))
    assert "plm_ssh_agent" in five.argv
    with pytest.raises(UsageError):
        openmpi_launch(MpiJob(**{**job.__dict__, "ranks": 3}), "mpirun", (4, 1, 4))


def place(rank: int, host: str, *cpus: int) -> RankPlace:
    return RankPlace(rank=rank, host=host, cpus=cpus, namespaces={})


def test_places_are_verified_by_rank() -> None:
    two = Placement(name="2x1", instances=2, tasks=1)
    verify_places([place(1, "b", 1), place(0, "a", 0)], two, ((0,), (1,)), ("a", "b"))
    for wrong in (
        [place(0, "a", 0)],
        [place(0, "a", 0), place(1, "a", 1)],
        [place(0, "a", 0), place(1, "b", 0, 1)],
        [place(0, "a", 0), place(0, "a", 0)],
    ):
        with pytest.raises(PlacementDiffers):
            verify_places(wrong, two, ((0,), (1,)), ("a", "b"))
