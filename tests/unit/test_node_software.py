"""What an arm runs with in an image: programs found in its tree, and the way back from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nearmetal.environments import Tools
from nearmetal.images import Image
from nearmetal.launchers import InstalledMpi
from nearmetal.model.study import Mpi
from nearmetal.node.software import Software, find_program, from_tree
from nearmetal.node.survey.programs import find_on
from nearmetal.testing.fake_host import FakeHost
from nearmetal.workloads.build import BuiltTools


def software(directory: Path, *, imaged: bool = True) -> Software:
    image = Image(
        name="own",
        key="k",
        directory=directory,
        digest="d",
        origin="trixie",
        created="2026-01-01",
        size=1,
        packages=("a 1", "b 2"),
    )
    built = BuiltTools(directory=directory / "b in", digest="x", compiler="gcc", flags="-O3", mpi="Open MPI")
    tools = Tools(directory=directory / "b in")
    return Software(
        image=image if imaged else None,
        tools=tools,
        built=built,
        mpi=InstalledMpi(kind=Mpi.OPENMPI, version=(5, 0, 7), mpirun="/usr/bin/mpirun", mpicc="mpicc"),
    )


def test_a_program_is_found_where_only_the_image_can_follow_it(tmp_path: Path) -> None:
    own = software(tmp_path)
    assert own.image is not None
    assert find_program(own.image, "mpirun") is None
    (tmp_path / "tree" / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "tree" / "usr" / "bin" / "mpirun").symlink_to("/etc/alternatives/mpirun")
    assert find_program(own.image, "mpirun") == "/usr/bin/mpirun"
    assert find_program(own.image, "/usr/bin/mpirun") == "/usr/bin/mpirun"
    assert find_program(own.image, "/opt/mpirun") is None


def test_path_of_a_library_is_found_on_the_machine() -> None:
    host = FakeHost(
        files={"/lib/libblas.so.3": b"ELF"},
        absent=("/lib/*", "/opt/*"),
        programs={"hpcc": "/usr/bin/hpcc", "/opt/xhpl": "/opt/xhpl"},
        missing=("/lib/libblas.so.3", "/lib/libother.so", "xhpl"),
    )
    find = find_on(host)
    assert find("hpcc") == "/usr/bin/hpcc" and find("/opt/xhpl") == "/opt/xhpl" and find("xhpl") is None
    assert find("/lib/libblas.so.3") == "/lib/libblas.so.3" and find("/lib/libother.so") is None


@pytest.mark.parametrize("line", ["nm0 42 - 0,1 nearmetal-x-0 /g/x", "nm0 0 - - nearmetal-x-0"])
def test_an_instance_of_ours_is_entered_from_the_tree_itself(tmp_path: Path, line: str) -> None:
    assert from_tree(software(tmp_path), line) == line


def test_a_container_program_is_one_of_the_machine(tmp_path: Path) -> None:
    line = "nm0 = /usr/bin/lxc-attach -n a%20b -- /t/nm-box enter"
    box = f"{tmp_path}/b%20in/nm-box"
    there = f"nm0 = {box} enter --pid {os.getpid()} -- /usr/bin/lxc-attach -n a%20b -- /t/nm-box enter"
    assert from_tree(software(tmp_path), line) == there
    assert from_tree(software(tmp_path, imaged=False), line) == line


def test_the_record_names_digest_packages_and_tools(tmp_path: Path) -> None:
    said = software(tmp_path).record()
    assert (said["name"], said["digest"], said["packages"]) == ("own", "d", ["a 1", "b 2"])
    assert isinstance(said["tools"], dict) and said["tools"]["directory"] == f"{tmp_path}/b in"
