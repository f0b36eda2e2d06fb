"""Which DMTCP is used, and how its programs are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.environments import Unavailable
from nearmetal.environments.dmtcp import Dmtcp, failure_in, find_dmtcp, processes_in, refuses_dmtcp
from nearmetal.model.study import Environment, Mpi
from nearmetal.testing.fake_host import FakeHost

BOX = Environment(name="e", backend="namespaces")
SAID = """\
WARNING at plugin/socket/socketconnection.cpp:248: false: Datagram sockets not supported: type=2
ASSERT at plugin/file/fileconnlist.cpp:771: false: Unimplemented file type: path=vda
ASSERT at later.cpp:1: false: something that follows
"""


def machine(version: str) -> FakeHost:
    said = f"dmtcp_launch (DMTCP) {version}\nLicense LGPLv3+\n" if version else "dmtcp_launch: not found\n"
    return FakeHost(
        programs={"dmtcp_launch": "/opt/dmtcp/bin/dmtcp_launch"},
        commands={("/opt/dmtcp/bin/dmtcp_launch", "--version"): said},
    )


def test_the_one_on_the_path_is_taken() -> None:
    found = find_dmtcp(machine("5.0"))
    assert isinstance(found, Dmtcp) and (found.version, found.directory) == ("5.0", Path("/opt/dmtcp/bin"))
    assert found.binds == (), "an instance with the machine's root sees /opt"
    assert Dmtcp(directory=Path("/tmp/d/bin"), version="5.0").binds == (Path("/tmp/d"),)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (FakeHost(missing=["dmtcp_launch"]), "dmtcp_launch is not on PATH"),
        (machine("3.1.2"), "/opt/dmtcp/bin/dmtcp_launch is of version 3.1.2, older than 4"),
        (machine(""), "/opt/dmtcp/bin/dmtcp_launch is of version unknown, older than 4"),
    ],
)
def test_without_one_that_works_the_remedy_is_to_build_it(host: FakeHost, why: str) -> None:
    found = find_dmtcp(host)
    assert isinstance(found, Unavailable) and found.reason == why
    assert "build https://github.com/dmtcp/dmtcp" in found.remedy
    assert refuses_dmtcp(host, BOX) == found


def test_it_fits_the_root_of_the_machine_only() -> None:
    host = machine("5.0")
    assert refuses_dmtcp(host, BOX) is None
    for other in (
        Environment(name="e", backend="runc", image="own"),
        Environment(name="e", backend="runc", inside="guest"),
    ):
        why = refuses_dmtcp(host, other)
        assert why is not None and why.reason and why.remedy


def test_the_programs_meet_at_one_port_and_one_directory(tmp_path: Path) -> None:
    dmtcp, images = Dmtcp(directory=Path("/d/bin"), version="5.0"), tmp_path / "files"
    images.mkdir()
    for name in ("ckpt_b.dmtcp", "ckpt_a.dmtcp", "dmtcp_restart_script.sh"):
        (images / name).touch()
    start = dmtcp.coordinator(tmp_path / "port", images)
    launch, restart = dmtcp.launch(7, images, tmp_path, Mpi.OPENMPI), dmtcp.restart(7, images, tmp_path)
    write = dmtcp.checkpoint(7)
    assert start[:2] == ["env", f"DMTCP_TMPDIR={tmp_path}"], "others can take its name in /tmp"
    programs = [argv[0].removeprefix("/d/bin/dmtcp_") for argv in (start[2:], launch, write, restart)]
    assert programs == ["coordinator", "launch", "command", "restart"]
    for argv in (launch, write, restart):
        at = argv.index("--coord-port")
        assert argv[at - 2 : at + 2] == ["--coord-host", "127.0.0.1", "--coord-port", "7"]
    for argv in (start, launch, restart):
        assert argv[argv.index("--ckptdir") + 1] == str(images)
    assert restart[-2:] == [f"{images}/ckpt_a.dmtcp", f"{images}/ckpt_b.dmtcp"]
    assert write[-1] == "--kcheckpoint", "no second copy runs on"
    mpich = dmtcp.launch(7, images, tmp_path, Mpi.MPICH)
    assert set(mpich) - set(launch) == {"--disable-svipc-plugin"}


def test_the_coordinator_says_how_many_processes_are_left() -> None:
    assert processes_in("Status...\n  NUM_PEERS=4\n  RUNNING=yes\n") == 4
    assert processes_in("Coordinator not found. Please check port and host.\n") is None


def test_the_first_error_explains_a_failure() -> None:
    assert failure_in(SAID) == "false: Unimplemented file type: path=vda"
    assert failure_in(SAID.splitlines()[0]) == ""
