"""Builds the C programs for this machine and its MPI, or for an image and the image's MPI. Each build is
cached under a digest of all its inputs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from ..errors import NearmetalError, RunError, UnavailableError
from ..host import Completed, Host, MissingValue
from ..host.durable import write_file
from ..host.untrusted import UntrustedDirectory
from ..model.record import JsonValue


def compiler_flags(march: str) -> str:
    """Return the C compiler flags of a build for one processor architecture, a value of GCC's -march.

    Flags that a single source file needs are in the CMakeLists.txt of its folder below kernels/.
    """
    return f"-O3 -march={march}"


FLAGS = compiler_flags("native")
REMEDY = "apt-get install cmake gcc libc6-dev make libopenmpi-dev openmpi-bin"
PROGRAMS = ("nm-micro", "nm-rank", "libnm-profile.so")  # a build without these is incomplete
BUILD_SECONDS = 1800.0
VERSION_SECONDS = 60.0
RECORD = "build.json"
VERSIONS = "toolchain.json"
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class BuiltTools:
    """The programs that were built for a machine or an image.

    directory: directory with the programs.
    digest: SHA-256 of sources, compiler, MPI, flags and CPU, in hex.
    compiler, mpi: versions as these programs print them.
    cpu: SHA-256 of the description of the CPU, in hex; empty in builds of older versions.
    """

    directory: Path
    digest: str
    compiler: str
    flags: str
    mpi: str
    cpu: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredTools:
    """A build that store_tools() has put into a results directory.

    place: directory of all builds.
    described: description of the build in the provenance of the run, with the digest of its contents.
    """

    place: Path
    described: Mapping[str, JsonValue]


class Builder(Protocol):
    """A place where compilers run: a Host, or an instance in the tree of an image. The methods are those of
    Host."""

    def run(
        self, argv: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None
    ) -> Completed: ...

    def which(self, program: str) -> str | None: ...

    def cpus(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, kw_only=True)
class _Toolchain:
    """Paths and versions of the build tools."""

    cmake: str
    gcc: str
    mpicc: str
    compiler: str
    mpi: str


def source_directory() -> Path:
    """Return the directory of the C sources, in the installed package or else in the checkout (kernels/).

    Raises NearmetalError if there is none.
    """
    here = Path(__file__).resolve()
    for candidate in (here.parents[1] / "kernels", here.parents[3] / "kernels"):
        if (candidate / "CMakeLists.txt").is_file():
            return candidate
    raise NearmetalError(
        "the sources of the kernels are not there",
        where=str(here.parents[1]),
        remedy="install nearmetal again: its wheel contains them",
    )


def build_tools(
    host: Host,
    cache: Path,
    *,
    progress: Callable[[str], None] | None,
    mpicc: str = "mpicc",
    flags: str = FLAGS,
) -> BuiltTools:
    """Return the programs for this machine. The first call builds them; later calls find them by digest
    within milliseconds.

    cache: directory for builds, created if it does not exist. Several processes may build at once; the first
        finished build is kept.
    progress: called with one line before a long step.
    mpicc: compiler wrapper of the MPI that the programs use.
    Raises UnavailableError if a build tool is missing.
    Raises RunError if the build fails.
    """
    cache.mkdir(parents=True, exist_ok=True)
    source = source_directory()
    tools = _toolchain(host, lambda gcc, mpicc: _versions(host, cache, gcc, mpicc), mpicc)
    parts = (tools.gcc, tools.compiler, tools.mpicc, tools.mpi)
    digest = _digest(source, parts, _cpu(host), flags)
    if _recorded(cache / digest) is None:
        _build(host, cache, source, tools, digest, progress, flags, cpu_digest(host))
    return replace(_whole(cache / digest), cpu=cpu_digest(host))  # builds of older versions do not name it


def build_tools_in(
    host: Host,
    cache: Path,
    image: str,
    inside: Callable[[Sequence[Path]], AbstractContextManager[Builder]],
    *,
    progress: Callable[[str], None] | None,
    mpicc: str = "mpicc",
    flags: str = FLAGS,
) -> BuiltTools:
    """Return the programs for an image, built with its own compiler for its own MPI.

    image: digest of its tree, which also identifies the compiler and the MPI.
    inside: starts an instance in the tree that sees the given directories at the same paths.
    The other arguments and the errors are those of build_tools.
    """
    cache.mkdir(parents=True, exist_ok=True)
    source = source_directory()
    digest = _digest(source, ("image", image, mpicc), _cpu(host), flags)
    if _recorded(cache / digest) is None:
        with inside((source, cache)) as builder:
            tools = _toolchain(builder, lambda gcc, mpicc: _ask_versions(builder, gcc, mpicc), mpicc)
            _build(builder, cache, source, tools, digest, progress, flags, cpu_digest(host))
    return _whole(cache / digest)


def store_tools(built: BuiltTools, place: Path) -> None:
    """Copy a build to `place`/<digest>, so that machines without a compiler can run its programs."""
    target = place / built.digest
    if _recorded(target) is None:
        with _aside(place) as aside:
            made = Path(aside) / "made"
            shutil.copytree(built.directory.parent, made)
            _write_record(built, made)
            for path in (made, *made.rglob("*")):
                path.chmod(path.stat().st_mode & ~0o022)
            _move_in(made, target)


def stored_tools(host: Host, cache: Path, stored: StoredTools) -> BuiltTools | None:
    """Copy a build of store_tools() to this machine's cache, and return it. Return None if it does not exist,
    was built for another CPU, or is not what the run has described.

    It is copied first and checked then, because others may be able to change it. Its name in the cache has
    the digest of its contents, so that it never passes for a build of this machine.
    """
    described = stored.described
    digest, contents = str(described.get("digest")), str(described.get("contents"))
    if described.get("cpu") != cpu_digest(host) or not all(map(_SHA256.fullmatch, (digest, contents))):
        return None
    if (own := _recorded(cache / digest)) is not None and own.cpu == described["cpu"]:
        return own
    target = cache / f"{digest}-{contents}"
    if _recorded(target) is None:
        with _aside(cache) as aside:
            made = Path(aside) / "made"
            try:
                _copy_programs(stored.place, f"{digest}/bin", made / "bin")
            except OSError:
                return None
            if contents_digest(made / "bin") != contents:
                return None
            known = {name: str(described.get(name)) for name in ("digest", "compiler", "flags", "mpi", "cpu")}
            _write_record(BuiltTools(directory=made / "bin", **known), made)
            _move_in(made, target)
    return _recorded(target)


def contents_digest(programs: Path) -> str:
    """Return the SHA-256 of the names and contents of the programs of a build, in hex."""
    sha = hashlib.sha256()
    for file in sorted(programs.iterdir()):
        content = file.read_bytes()
        sha.update(f"{file.name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return sha.hexdigest()


def _copy_programs(place: Path, name: str, target: Path) -> None:
    source, programs = UntrustedDirectory(place.parent), f"{place.name}/{name}"
    target.mkdir(parents=True)
    for program in source.names(programs):
        file = target / program
        file.write_bytes(source.read_bytes(f"{programs}/{program}"))
        file.chmod(0o755)


def cpu_digest(host: Host) -> str:
    """Return the SHA-256, in hex, of the CPU's model and flags, on which -march=native depends."""
    return hashlib.sha256(_cpu(host).encode()).hexdigest()


def _whole(directory: Path) -> BuiltTools:
    built = _recorded(directory)
    if built is None:
        raise RunError(
            "a build directory disappeared during use", where=str(directory), remedy="remove it and try again"
        )
    return built


def _toolchain(host: Builder, versions: Callable[[str, str], Mapping[str, str]], mpicc: str) -> _Toolchain:
    found = {name: host.which(name) for name in ("cmake", "gcc", "make", mpicc)}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        only = ": without MPI only the launcher could be built, no kernel" if mpicc in missing else ""
        raise UnavailableError(
            f"cannot build the kernels: {', '.join(missing)} not found{only}", remedy=REMEDY
        )
    paths = {name: path for name, path in found.items() if path is not None}
    found_versions = versions(paths["gcc"], paths[mpicc])
    return _Toolchain(cmake=paths["cmake"], gcc=paths["gcc"], mpicc=paths[mpicc], **found_versions)


def _versions(host: Host, cache: Path, gcc: str, mpicc: str) -> dict[str, str]:
    """Return the versions of gcc and of the MPI.

    They are cached as long as the path, size and modification time of both programs stay the same, because
    running the programs takes longer than all other steps together.
    """
    key = json.dumps([_stamp(gcc), _stamp(mpicc)])
    file = cache / VERSIONS
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        kept = json.loads(file.read_text())
        if kept["key"] == key:
            return {"compiler": str(kept["compiler"]), "mpi": str(kept["mpi"])}
    versions = _ask_versions(host, gcc, mpicc)
    write_file(file, json.dumps({"key": key, **versions}).encode())
    return versions


def _ask_versions(host: Builder, gcc: str, mpicc: str) -> dict[str, str]:
    return {"compiler": _first_line(host, gcc, "--version"), "mpi": _mpi_version(host, mpicc)}


def _stamp(path: str) -> list[str | int]:
    real = Path(path).resolve()
    status = real.stat()
    return [path, str(real), status.st_size, status.st_mtime_ns]


def _first_line(host: Builder, *argv: str) -> str:
    done = host.run(argv, timeout=VERSION_SECONDS, env={"LC_ALL": "C"})
    lines = (done.stdout or done.stderr).splitlines()
    if not done.ok or not lines:
        raise UnavailableError(f"{' '.join(argv)}: {done.failure()}", remedy=REMEDY)
    return lines[0].strip()


def _mpi_version(host: Builder, mpicc: str) -> str:
    """Return the version of the MPI behind a compiler wrapper. Open MPI's wrapper prints it for
    --showme:version, those of MPICH and its derivatives for -v."""
    done = host.run([mpicc, "--showme:version"], timeout=VERSION_SECONDS, env={"LC_ALL": "C"})
    if not done.ok or not done.stdout:
        return _first_line(host, mpicc, "-v")
    return done.stdout.splitlines()[0].removeprefix(f"{mpicc}:").strip()


def _cpu(host: Host) -> str:
    """Return the inputs of -march=native: the lines of /proc/cpuinfo with the model and flags of the first
    CPU. Their names depend on the architecture."""
    text = host.read("/proc/cpuinfo")
    if isinstance(text, MissingValue):
        raise UnavailableError(f"the CPU is not known: {text.reason}", remedy="mount /proc")
    first = text.split(b"\n\n", 1)[0].decode(errors="replace")
    names = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU ", "Features", "isa", "cpu\t")
    return "\n".join(line for line in first.splitlines() if line.startswith(names))


def _sources(source: Path) -> Iterator[Path]:
    for directory, folders, names in os.walk(source):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build")))
        for name in sorted(names):
            if name == "CMakeLists.txt" or name.endswith((".c", ".h", ".def", ".cmake")):
                yield Path(directory) / name


def _digest(source: Path, toolchain: Sequence[str], cpu: str, flags: str) -> str:
    """Return the digest of a build.

    toolchain: texts that identify the compiler and the MPI.
    """
    sha = hashlib.sha256()
    for part in (flags, *toolchain, cpu):
        sha.update(part.encode() + b"\0")
    for file in _sources(source):
        content = file.read_bytes()
        sha.update(f"{file.relative_to(source)}\0{len(content)}\0".encode())
        sha.update(content)
    return sha.hexdigest()


def _recorded(directory: Path) -> BuiltTools | None:
    """Return the build in a directory of the cache; None if it does not exist or is incomplete."""
    try:
        record = json.loads(UntrustedDirectory(directory).read_bytes(RECORD))
        built = BuiltTools(directory=directory / "bin", **record)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return built if all((built.directory / p).is_file() for p in PROGRAMS) else None


def _build(
    host: Builder,
    cache: Path,
    source: Path,
    tools: _Toolchain,
    digest: str,
    progress: Callable[[str], None] | None,
    flags: str,
    cpu: str,
) -> None:
    """Build in a temporary directory and rename it, so that the cache never contains an incomplete build."""
    with _aside(cache) as aside:
        work, made = Path(aside) / "work", Path(aside) / "made"
        configure = [
            *(tools.cmake, "-S", str(source), "-B", str(work), "-G", "Unix Makefiles"),
            *(f"-DCMAKE_C_COMPILER={tools.gcc}", f"-DMPI_C_COMPILER={tools.mpicc}"),
            *(f"-DNEARMETAL_FLAGS={flags}", "-DNEARMETAL_WERROR=OFF", "-DBUILD_TESTING=OFF"),
        ]
        if progress is not None:
            progress(f"compiling the kernels for {tools.mpi} (once)")
        _step(host, configure)
        _step(host, [tools.cmake, "--build", str(work), "--parallel", str(len(host.cpus()))])
        made.mkdir()
        (work / "bin").rename(made / "bin")
        built = BuiltTools(
            directory=made / "bin",
            digest=digest,
            compiler=tools.compiler,
            flags=flags,
            mpi=tools.mpi,
            cpu=cpu,
        )
        _write_record(built, made)
        _move_in(made, cache / digest)


def _write_record(built: BuiltTools, directory: Path) -> None:
    record = {key: value for key, value in asdict(built).items() if key != "directory"}
    write_file(directory / RECORD, json.dumps(record).encode())


def _step(host: Builder, argv: list[str]) -> None:
    # Variables that the caller has set for other builds would change this build but not its digest.
    clean = {"CFLAGS": "", "CPPFLAGS": "", "LDFLAGS": "", "MAKEFLAGS": "", "DESTDIR": ""}
    done = host.run(argv, timeout=BUILD_SECONDS, env=clean)
    if not done.ok:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RunError(
            f"the kernels do not build ({argv[0]}: exit status {done.returncode})\n{output}", remedy=REMEDY
        )


def _aside(place: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a temporary directory from which a finished build can be moved into the same file system."""
    place.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=".build-", dir=place, ignore_cleanup_errors=True)


def _move_in(made: Path, target: Path) -> None:
    """Move a build into the cache. A complete build that another process has put there first is kept; an
    incomplete one is replaced."""
    try:
        made.rename(target)
    except OSError:
        if _recorded(target) is None:
            shutil.rmtree(target)
            made.rename(target)
