"""Launch tokens are pure: the same job gives the same tokens, and what matters stands in them."""

from dataclasses import replace

import pytest

from nearmetal.errors import UnavailableError, UsageError
from nearmetal.launchers import (
    HostSlots,
    InstalledMpi,
    MpiJob,
    PlacementDiffers,
    find_mpi,
    mpi_of_compiler,
    mpich,
    openmpi,
    programs_of,
    verify_places,
)
from nearmetal.model.record import RankPlace
from nearmetal.model.study import Mpi, Placement, SingleCopy, Transport
from nearmetal.testing.fake_host import FakeHost

OPENMPI = "mpirun (Open MPI) 4.1.4\n\nReport bugs"
MPICH = "HYDRA build details:\n    Version:                                 4.0.2\n    Release"
INSIDE = MpiJob(
    argv=("prog", "a b"),
    box="/t/nm-box",
    ranks=2,
    transport=Transport.SHM,
    interface="lo",
    scratch="/run/t",
)
ACROSS = MpiJob(
    argv=("prog",),
    box="/t/nm-box",
    ranks=2,
    transport=Transport.TCP,
    interface="eth0",
    scratch="/run/t",
    hosts=(HostSlots(host="a", slots=1), HostSlots(host="b", slots=1)),
    agent=("/t/agent", "/t/map"),
    hub_interface="br0",
    hub_address="10.99.0.1",
    forward=("OMP_NUM_THREADS",),
)


def pairs(argv: tuple[str, ...], option: str) -> dict[str, str]:
    """What stands behind each `option NAME VALUE`."""
    return {argv[i + 1]: argv[i + 2] for i, word in enumerate(argv) if word == option}


def test_versions_are_read_and_those_of_another_mpi_are_not() -> None:
    assert openmpi.version(OPENMPI) == (4, 1, 4)
    assert openmpi.version(MPICH) is None
    assert mpich.version(MPICH) == (4, 0, 2)
    assert mpich.version("HYDRA build details:\n    Version:   4.3\n") == (4, 3, 0)
    assert mpich.version(OPENMPI) is None


@pytest.mark.parametrize(
    ("major", "btl", "none", "cma"),
    [
        (4, "vader,self", ("btl_vader_single_copy_mechanism", "none"), "cma"),
        (5, "sm,self", ("smsc", "^cma,knem,xpmem"), "cma"),
    ],
)
def test_open_mpi_shared_memory_is_named_and_so_is_cma(
    major: int, btl: str, none: tuple[str, str], cma: str
) -> None:
    out = openmpi.launch(INSIDE, "/usr/bin/mpirun", (major, 1, 4))
    assert out.argv[-2:] == ("prog", "a b")
    given = pairs(out.argv, "--mca")
    assert given["btl"] == out.transport["btl"] == btl
    assert given[none[0]] == out.transport[none[0]] == none[1]
    with_cma = openmpi.launch(replace(INSIDE, single_copy=SingleCopy.CMA), "mpirun", (major, 1, 4))
    assert pairs(with_cma.argv, "--mca")[none[0]] == cma
    assert with_cma.transport["single_copy"] == "cma"


def test_ranks_that_share_a_cpu_yield_it_while_they_wait() -> None:
    out = openmpi.launch(replace(INSIDE, ranks=4, yields=True), "mpirun", (4, 1, 4))
    assert pairs(out.argv, "--mca")["mpi_yield_when_idle"] == "1"
    assert out.transport["mpi_yield_when_idle"] == "1"
    told = mpich.launch(replace(INSIDE, ranks=4, yields=True), "mpirun", (4, 0, 2))
    assert told.transport["yields"] == "as MPICH was built"


def test_open_mpi_across_instances_has_tcp_alone_and_the_agent() -> None:
    four = openmpi.launch(ACROSS, "mpirun", (4, 1, 4))
    assert four.env["OMPI_MCA_plm_rsh_agent"] == "/t/agent /t/map"
    assert "a:1,b:1" in four.argv
    assert pairs(four.argv, "--mca")["mpi_event_tick_rate"] == four.transport["mpi_event_tick_rate"] == "1"
    assert four.transport["btl"] == "tcp,self" and four.transport["btl_tcp_if_include"] == "eth0"
    assert [four.argv[i + 1] for i, w in enumerate(four.argv) if w == "-x"] == [
        "NEARMETAL_JOB",
        "OMP_NUM_THREADS",
    ]
    five = openmpi.launch(ACROSS, "mpirun", (5, 0, 7))
    assert pairs(five.argv, "--prtemca")["plm_ssh_agent"] == "/t/agent /t/map"
    assert not any(name.startswith("OMPI_MCA_plm_rsh_agent") for name in five.env)


@pytest.mark.parametrize("major", [4, 5])
def test_ranks_that_enter_reach_the_daemon_of_open_mpi_by_the_hub(major: int) -> None:
    job = replace(INSIDE, entering=True, hub_interface="br0", shared_memory="/dev/shm/nearmetal-x")
    out = openmpi.launch(job, "mpirun", (major, 0, 7))
    assert out.env["PMIX_MCA_ptl_base_if_include"] == "br0"
    # Open MPI 5.0.7 dies of the older name.
    assert ("PMIX_MCA_ptl_tcp_if_include" in out.env) == (major == 4)
    directory = f"btl_{'vader' if major < 5 else 'sm'}_backing_directory"
    assert pairs(out.argv, "--mca")[directory] == "/dev/shm/nearmetal-x"
    assert directory not in out.transport  # another one in every trial


def test_mpich_inside_takes_shared_memory_alone() -> None:
    out = mpich.launch(INSIDE, "mpiexec.hydra", (4, 0, 2))
    assert out.argv[:3] == ("/t/nm-box", "silent", "--")
    assert out.argv[3:] == ("mpiexec.hydra", "-launcher", "fork", "-n", "2", "prog", "a b")
    assert out.env["UCX_TLS"] == out.transport["UCX_TLS"] == "posix,self"
    assert out.env["MPIR_CVAR_CH4_CMA_ENABLE"] == "0"
    with_cma = mpich.launch(replace(INSIDE, single_copy=SingleCopy.CMA), "mpirun", (4, 0, 2))
    assert with_cma.env["UCX_TLS"] == "posix,cma,self" and with_cma.transport["single_copy"] == "cma"


def test_mpich_across_instances_has_tcp_alone_and_the_agent() -> None:
    out = mpich.launch(ACROSS, "mpiexec.hydra", (4, 0, 2))
    given = dict(zip(out.argv, out.argv[1:], strict=False))
    assert given["-hosts"] == "a:1,b:1"
    assert given["-launcher-exec"] == "/t/agent" and out.env["HYDRA_LAUNCHER_EXTRA_ARGS"] == "/t/map"
    assert given["-localhost"] == "10.99.0.1"
    assert (out.env["UCX_TLS"], out.env["UCX_NET_DEVICES"]) == ("tcp,self", "eth0")
    assert (out.env["FI_PROVIDER"], out.env["FI_TCP_IFACE"]) == ("tcp", "eth0")
    assert out.env["MPIR_CVAR_NOLOCAL"] == "1"
    by_ssh = mpich.launch(replace(ACROSS, agent=("/usr/bin/ssh", "-F", "/run/t/c")), "mpirun", (4, 0, 2))
    assert by_ssh.env["HYDRA_LAUNCHER_EXTRA_ARGS"] == "-F /run/t/c"


@pytest.mark.parametrize("launch", [openmpi.launch, mpich.launch])
def test_ranks_that_do_not_fit_their_hosts_are_refused(launch: object) -> None:
    assert callable(launch)
    with pytest.raises(UsageError, match="3 ranks do not fit"):
        launch(replace(ACROSS, ranks=3), "mpirun", (4, 1, 4))


def machine(said: dict[str, str]) -> FakeHost:
    names = ("mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")
    return FakeHost(
        programs={name: f"/usr/bin/{name}" for name in said},
        commands={(f"/usr/bin/{name}", "--version"): text for name, text in said.items()},
        missing=[name for name in names if name not in said],
    )


@pytest.mark.parametrize(
    ("said", "wanted", "kind", "mpirun", "mpicc"),
    [
        ({"mpirun": OPENMPI}, None, Mpi.OPENMPI, "mpirun", "mpicc"),
        ({"mpirun": MPICH}, None, Mpi.MPICH, "mpirun", "mpicc"),
        ({"mpirun": MPICH}, Mpi.MPICH, Mpi.MPICH, "mpirun", "mpicc"),
        ({"mpirun": OPENMPI, "mpirun.mpich": MPICH}, Mpi.MPICH, Mpi.MPICH, "mpirun.mpich", "mpicc.mpich"),
        (
            {"mpirun": MPICH, "mpirun.openmpi": OPENMPI},
            Mpi.OPENMPI,
            Mpi.OPENMPI,
            "mpirun.openmpi",
            "mpicc.openmpi",
        ),
        ({"mpirun": OPENMPI, "mpiexec.hydra": MPICH}, Mpi.MPICH, Mpi.MPICH, "mpiexec.hydra", "mpicc"),
    ],
)
def test_the_mpi_is_found_by_what_it_says(
    said: dict[str, str], wanted: Mpi | None, kind: Mpi, mpirun: str, mpicc: str
) -> None:
    found = find_mpi(machine(said), wanted)
    assert (found.kind, found.mpirun, found.mpicc) == (kind, f"/usr/bin/{mpirun}", mpicc)
    assert found.compiled_by("mpicc for MPICH version 4.0.2") == (kind is Mpi.MPICH)
    assert found.compiled_by("Open MPI 4.1.4 (Language: C)") == (kind is Mpi.OPENMPI)


@pytest.mark.parametrize("wanted", [None, Mpi.OPENMPI, Mpi.MPICH])
def test_an_mpi_that_is_not_there_is_named_with_what_to_install(wanted: Mpi | None) -> None:
    with pytest.raises(UnavailableError) as caught:
        find_mpi(machine({"mpirun": "Intel(R) MPI Library for Linux* OS"}), wanted)
    assert ("libmpich-dev" in caught.value.remedy) == (wanted is Mpi.MPICH)


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


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (("mpirun", "mpicc"), None, ("/b/mpirun", "mpicc")),
        (("mpirun", "mpicc", "mpirun.mpich", "mpicc.mpich"), Mpi.MPICH, ("/b/mpirun.mpich", "mpicc.mpich")),
        (("mpirun", "mpicc"), Mpi.MPICH, ("/b/mpirun", "mpicc")),
        (("mpicc",), Mpi.OPENMPI, (None, "mpicc")),
    ],
)
def test_in_an_image_the_mpi_is_found_by_name(
    names: tuple[str, ...], wanted: Mpi | None, found: tuple[str | None, str]
) -> None:
    assert programs_of(lambda name: f"/b/{name}" if name in names else None, wanted) == found


def test_mpi_is_recognised_from_the_compiler_wrapper() -> None:
    assert mpi_of_compiler("Open MPI 5.0.7 (Language: C)") == (Mpi.OPENMPI, (5, 0, 7))
    assert mpi_of_compiler("mpicc for MPICH version 4.3") == (Mpi.MPICH, (4, 3, 0))
    assert mpi_of_compiler("icx 2024.1") is None


def test_compiler_of_the_requested_mpi_is_used_if_both_are_installed() -> None:
    names = ("mpirun", "mpicc", "mpiexec.hydra", "mpirun.mpich", "mpicc.mpich", "mpirun.openmpi")
    there = {name: f"/usr/bin/{name}" for name in (*names, "mpicc.openmpi")}
    assert programs_of(there.get, Mpi.OPENMPI) == ("/usr/bin/mpirun.openmpi", "mpicc.openmpi")
    assert programs_of(there.get, Mpi.MPICH) == ("/usr/bin/mpirun.mpich", "mpicc.mpich")


@pytest.mark.parametrize("kind", list(Mpi))
def test_an_mpi_launch_withholds_what_would_choose_its_transport_or_nodes(
    kind: Mpi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMPI_MCA_btl", "UCX_TLS", "SLURM_JOB_ID", "PMI_RANK", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    found = InstalledMpi(kind=kind, version=(4, 1, 4), mpirun="mpirun", mpicc="mpicc").launch(INSIDE).env
    assert all(found[name] is None for name in ("OMPI_MCA_btl", "SLURM_JOB_ID", "PMI_RANK"))
    assert found["UCX_TLS"] != "1" and "OMP_NUM_THREADS" not in found
