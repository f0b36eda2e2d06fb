"""The software that an arm runs: the MPI and kernels of the machine, or of the arm's image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from ..environments import Instance, InstanceRequest, Tools
from ..environments.tree import in_tree
from ..errors import UnavailableError
from ..host import Completed, Host
from ..host.runtime import cache_directory
from ..host.untrusted import UntrustedDirectory
from ..images import Image, ImageConfig, in_use, require_image
from ..launchers import MPI_PACKAGES, InstalledMpi, mpi_of_compiler, programs_of
from ..model.environments.image import HOST
from ..model.record import JsonValue
from ..model.study import Environment, Mpi, Study
from ..workloads.build import BuiltTools, build_tools_in
from .machine import Machine, image_store
from .progress import Progress
from .survey.programs import find_on, require_programs, runs_mpi

_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
#: Fields of an image that are recorded. The other fields are paths on this machine.
RECORDED = ("name", "digest", "origin", "created", "config")


@dataclass(frozen=True, kw_only=True)
class Software:
    """The software of one image.

    image: None for the machine's own root.
    mpi: the installed MPI, with paths inside the image.
    """

    image: Image | None
    tools: Tools
    built: BuiltTools
    mpi: InstalledMpi

    @property
    def tree(self) -> Path:
        return Path("/") if self.image is None else self.image.tree

    @property
    def config(self) -> ImageConfig:
        """What the image states for its programs; empty for the machine's own root."""
        return ImageConfig() if self.image is None else self.image.config

    def record(self) -> dict[str, JsonValue]:
        """Return the provenance of the image. Must not be called for the machine's own root."""
        assert self.image is not None
        known = asdict(self.image)
        return {
            **{key: known[key] for key in RECORDED},
            "packages": list(self.image.packages),
            "tools": {**asdict(self.built), "directory": str(self.built.directory)},
        }


@dataclass(frozen=True, kw_only=True)
class ImageBuilder:
    """An instance in the tree of an image that compiles programs. It implements workloads.build.Builder."""

    host: Host
    image: Image
    instance: Instance

    def run(self, argv: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> Completed:
        own = {**self.image.config.env, "PATH": ":".join(search_path(self.image)), **(env or {})}
        return self.host.run(self.instance.command(argv), timeout=timeout, env=own, cwd=Path("/"))

    def which(self, program: str) -> str | None:
        return find_program(self.image, program)

    def cpus(self) -> tuple[int, ...]:
        return self.host.cpus()


def search_path(image: Image) -> tuple[str, ...]:
    """Return the directories in which programs of an image are looked for."""
    stated = image.config.env.get("PATH")
    return _PATH if stated is None else tuple(filter(None, stated.split(":")))


def find_program(image: Image, program: str) -> str | None:
    """Return the path of a program inside an image; None if it is missing.

    program: a name, or an absolute path inside the image.

    A symbolic link counts as found without following it, since its target can be resolved only inside.
    """
    places = [program] if program.startswith("/") else [f"{d}/{program}" for d in search_path(image)]
    root = UntrustedDirectory(image.tree, as_root=True)
    return next((place for place in places if root.has_name(place)), None)


def _request(
    image: Image, scratch: Path, part: str, binds: Sequence[Path], user_namespace: str | None
) -> InstanceRequest:
    """Return the request for an instance that nearmetal itself uses, in the tree of an image.

    scratch: scratch directory of the run.
    part: purpose of the instance, as part of its label.
    """
    place = scratch / f"{part}-{image.digest[:12]}"
    place.mkdir(exist_ok=True)
    return InstanceRequest(
        label=f"{scratch.name}-{part}-{image.name}",
        hostname=os.uname().nodename,
        environment=Environment(name=image.name, backend="native", image=image.name, placements=()),
        binds=tuple(binds),
        scratch=place,
        tree=image.tree,
        user_namespace=user_namespace,
    )


def all_software(
    machine: Machine,
    study: Study,
    stack: ExitStack,
    scratch: Path,
    user_namespace: str | None,
    progress: Progress,
) -> dict[str, Software]:
    """Return the software of each image of the study.

    scratch: scratch directory of the run; its name is the label of the run.
    stack: keeps the images from being removed until it is closed.
    Raises UnavailableError if an image does not exist, or lacks what a workload of its arms needs.
    """
    own = {i.name: i for i in study.images}
    require_programs(study, HOST, find_on(machine.host), machine.host)
    found = {HOST: Software(image=None, tools=machine.tools, built=machine.built, mpi=machine.mpi)}
    for name in sorted({e.image for e in study.environments} - {HOST}):
        image = require_image(machine.host, image_store(), name, own)
        stack.enter_context(in_use(image))
        require_programs(study, name, partial(find_program, image))
        if _needs_mpi(study, name):
            found[name] = compiled_software(
                machine, image, study.design.mpi, scratch, user_namespace, progress
            )
        else:  # nearmetal's own programs need nothing from an image
            found[name] = replace(found[HOST], image=image)
    return found


def _needs_mpi(study: Study, image: str) -> bool:
    """Return whether an arm in this image runs a built-in kernel or an MPI program."""
    return any(
        e.takes(w.name)
        for e in study.environments
        if e.image == image
        for w in study.workloads
        if runs_mpi(w, study)
    )


def compiled_software(
    machine: Machine,
    image: Image,
    wanted: Mpi | None,
    scratch: Path,
    user_namespace: str | None,
    progress: Progress,
) -> Software:
    """Compile the kernels for an image with its own compiler and for its own MPI. A cached result is reused.

    wanted: the MPI to use; None for the one that mpirun belongs to.

    Raises UnavailableError if the image has no compiler or no such MPI.
    """
    mpirun, mpicc = programs_of(lambda name: find_program(image, name), wanted)

    @contextmanager
    def inside(binds: Sequence[Path]) -> Iterator[ImageBuilder]:
        request = _request(image, scratch, "build", binds, user_namespace)
        with in_tree(machine.host, machine.tools, request, {}) as instance:
            yield ImageBuilder(host=machine.host, image=image, instance=instance)

    def phase(text: str) -> None:
        progress.phase(f"image {image.name}: {text}")

    try:
        built = build_tools_in(
            machine.host,
            cache_directory(),
            image.digest,
            inside,
            progress=phase,
            mpicc=mpicc,
            flags=machine.built.flags,
        )
    except UnavailableError as e:
        raise _lacking(image, e.what) from e
    found = mpi_of_compiler(built.mpi)
    if mpirun is None or found is None:
        raise _lacking(image, "no MPI: mpirun is missing, or neither Open MPI's nor MPICH's")
    kind, version = found
    if wanted is not None and kind is not wanted:
        raise _lacking(image, f"no mpirun of {wanted} here", wanted)
    mpi = InstalledMpi(kind=kind, version=version, mpirun=mpirun, mpicc=mpicc)
    return Software(image=image, tools=Tools(directory=built.directory), built=built, mpi=mpi)


def launcher(
    machine: Machine, software: Software, scratch: Path, netns: str, user_namespace: str | None
) -> AbstractContextManager[Instance]:
    """Start the instance in which the mpirun of an image runs, to start ranks in several instances.

    scratch: a directory that it sees, whose name is the beginning of its label.

    It runs in the tree of the image and in the network namespace of the hub. It shares the process IDs of the
    machine, since it enters the instances by process ID.
    """
    assert software.image is not None
    binds = (scratch, software.tools.directory)
    request = _request(software.image, scratch, "launcher", binds, user_namespace)
    return in_tree(machine.host, software.tools, request, {}, netns=netns)


def from_tree(software: Software, agent_line: str) -> str:
    """Return the line of an instance in the map file of 'nm-box agent' for an agent that runs in the tree of
    the arm's image.

    The words after '=' are a command of a container runtime, a program of the machine. They are preceded by a
    command that returns to the machine's root.

    agent_line: the line for an agent that runs in the machine's root (Instance.agent_line).
    """
    name, divider, words = agent_line.partition(" = ")
    if software.image is None or not divider:
        return agent_line
    box = (software.tools / "nm-box").replace("%", "%25").replace(" ", "%20")
    return f"{name} = {box} enter --pid {os.getpid()} -- {words}"


def _lacking(image: Image, what: str, wanted: Mpi | None = None) -> UnavailableError:
    packages = MPI_PACKAGES[wanted or Mpi.OPENMPI].removeprefix("apt-get install ")
    remedy = f"build it again with gcc libc6-dev make cmake {packages} among its packages"
    return UnavailableError(f"image {image.name}: {what}", remedy=remedy)
