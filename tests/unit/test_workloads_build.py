"""Where the C sources are, and what is said when they cannot be built."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import Completed
from nearmetal.testing.fake_host import FakeHost
from nearmetal.workloads.build import (
    PROGRAMS,
    StoredTools,
    build_tools,
    contents_digest,
    source_directory,
    store_tools,
    stored_tools,
)

TOOLS = ("cmake", "gcc", "make", "mpicc")
CPUINFO = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2\n\nprocessor\t: 1\n"


class Machine(FakeHost):
    """A machine whose compilers are files of tmp_path and whose cmake makes empty programs."""

    def __init__(self, place: Path) -> None:
        self.tools = place / "compilers"
        self.tools.mkdir()
        for name in TOOLS:
            (self.tools / name).write_text(name)
        super().__init__(
            files={"/proc/cpuinfo": CPUINFO}, programs={name: str(self.tools / name) for name in TOOLS}
        )
        self.gcc_version = "gcc 12.2.0"
        self.fails = False

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Completed:
        out, code = "", 0
        if argv[1] == "--version":
            out = self.gcc_version + "\nmore\n"
        elif argv[1] == "--showme:version":
            out = f"{argv[0]}: Open MPI 4.1.4 (Language: C)\n"
        elif argv[1] == "--build":
            code, out = (2, "fatal error: mpi.h\n") if self.fails else (0, "")
            programs = Path(argv[2]) / "bin"
            programs.mkdir(parents=True)
            for name in PROGRAMS:
                (programs / name).write_text("")
        else:
            assert argv[1] == "-S", argv
        return Completed(argv=argv, returncode=code, stdout=out, stderr="", seconds=0.0)

    @property
    def builds(self) -> int:
        return sum(argv[1] == "--build" for argv in self.calls)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_sources_are_those_of_the_checkout_or_the_package() -> None:
    assert (source_directory() / "micro" / "nm_micro.c").is_file()


@pytest.mark.parametrize("lacking", ["cmake", "gcc", "mpicc"])
def test_a_missing_tool_is_named_with_the_line_that_mends_it(tmp_path: Path, lacking: str) -> None:
    programs = {name: f"/usr/bin/{name}" for name in TOOLS if name != lacking}
    host = FakeHost(programs=programs, missing=[lacking])
    with pytest.raises(UnavailableError, match=lacking) as caught:
        build_tools(host, tmp_path, progress=None)
    assert "apt-get install" in caught.value.remedy and "libopenmpi-dev" in caught.value.remedy
    assert ("no kernel" in caught.value.what) == (lacking == "mpicc")


def test_built_once_then_found(machine: Machine, tmp_path: Path) -> None:
    said: list[str] = []
    first = build_tools(machine, tmp_path / "cache", progress=said.append)
    assert first.directory == tmp_path / "cache" / first.digest / "bin"
    assert (first.compiler, first.mpi) == ("gcc 12.2.0", "Open MPI 4.1.4 (Language: C)")
    assert len(said) == 1 and machine.builds == 1
    machine.calls.clear()
    assert build_tools(machine, tmp_path / "cache", progress=said.append) == first
    assert machine.calls == [] and len(said) == 1


def test_nothing_is_left_beside_the_build(machine: Machine, tmp_path: Path) -> None:
    built = build_tools(machine, tmp_path / "cache", progress=None)
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == sorted([built.digest, "toolchain.json"])


def test_another_compiler_or_cpu_is_another_build(machine: Machine, tmp_path: Path) -> None:
    first = build_tools(machine, tmp_path / "cache", progress=None)
    machine.gcc_version = "gcc 14.1.0"
    (machine.tools / "gcc").write_text("a newer compiler")
    second = build_tools(machine, tmp_path / "cache", progress=None)
    machine.files["/proc/cpuinfo"] = CPUINFO.replace("avx2", "avx2 avx512f")
    third = build_tools(machine, tmp_path / "cache", progress=None)
    assert len({first.digest, second.digest, third.digest}) == 3 and machine.builds == 3


def test_a_broken_build_is_made_again(machine: Machine, tmp_path: Path) -> None:
    built = build_tools(machine, tmp_path / "cache", progress=None)
    (built.directory / "nm-micro").unlink()
    assert build_tools(machine, tmp_path / "cache", progress=None) == built
    assert (built.directory / "nm-micro").is_file() and machine.builds == 2


def test_a_spoiled_version_file_is_written_again(machine: Machine, tmp_path: Path) -> None:
    built = build_tools(machine, tmp_path / "cache", progress=None)
    (tmp_path / "cache" / "toolchain.json").write_text("{")
    assert build_tools(machine, tmp_path / "cache", progress=None) == built


def test_a_failed_build_shows_what_the_compiler_said(machine: Machine, tmp_path: Path) -> None:
    machine.fails = True
    with pytest.raises(RunError, match=r"fatal error: mpi\.h"):
        build_tools(machine, tmp_path / "cache", progress=None)
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["toolchain.json"]


def test_a_machine_without_a_compiler_runs_the_programs_of_the_run(machine: Machine, tmp_path: Path) -> None:
    built = build_tools(machine, tmp_path / "cache", progress=None)
    store_tools(built, tmp_path / "run" / "tools")
    store_tools(built, tmp_path / "run" / "tools")
    contents = contents_digest(built.directory)
    described = {**asdict(built), "directory": str(built.directory), "contents": contents}
    stored = StoredTools(place=tmp_path / "run" / "tools", described=described)
    bare = FakeHost(files={"/proc/cpuinfo": CPUINFO}, missing=TOOLS)
    for _ in range(2):
        found = stored_tools(bare, tmp_path / "own cache", stored)
        assert found is not None and (found.digest, found.mpi) == (built.digest, built.mpi)
        assert found.directory == tmp_path / "own cache" / f"{built.digest}-{contents}" / "bin"
        assert all((found.directory / name).is_file() for name in PROGRAMS)
    other = FakeHost(files={"/proc/cpuinfo": CPUINFO.replace("avx2", "avx512f")})
    assert stored_tools(other, tmp_path / "own cache", stored) is None, "built for another CPU"
    assert stored_tools(bare, tmp_path / "own cache", replace(stored, place=tmp_path)) is not None
    assert stored_tools(bare, tmp_path / "new cache", replace(stored, place=tmp_path)) is None
    assert stored_tools(bare, tmp_path / "cache", stored) == built, "its own build"
