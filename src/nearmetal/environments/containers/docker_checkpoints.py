"""Checkpoints by the Docker daemon, which offers them as an experimental feature.

containerd runs CRIU for the daemon, as it finds it on its own PATH. It keeps neither CRIU's statistics nor,
if the checkpoint succeeds, its log. A container can be started only from a checkpoint in the directory that
the daemon has for this container. nearmetal therefore creates a new container at the destination, and puts
the files of the checkpoint there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError
from ...host import Host
from ...host.processes.labelled import named
from ...lifecycle import Costs, Estimate
from ..contract import Unavailable
from .docker_daemon import COMMAND_TIMEOUT, fact, remove
from .docker_runc import dump_is_stuck, identity_of, stuck_restores, words_of

COSTS = Costs(fixed=Estimate(0.3, 0.9, 4.5), setup=Estimate(0.0, 0.1, 0.5))
"""Costs of a container of Docker, apart from memory."""
PASSES = 7.0
"""How often the memory is copied: CRIU writes files, which go to containerd's store and from there to the
images, then to the destination, to the store again and from there to CRIU, which reads them."""
NAME = "nearmetal"
"""Name of every checkpoint. A container has one at most."""
_DUMP = 'docker checkpoint create --checkpoint-dir "$1" "$2" "$3" && mv "$1/$3"/* "$1" && rmdir "$1/$3"'
_RESTORE = (
    'docker start --checkpoint "$1" "$2" && docker inspect --format "{{.State.Pid}}" "$2" >"$3.new"'
    ' && mv "$3.new" "$3" && exec docker wait "$2"'
)
"""Ends with the container. The daemon, not this script, is the parent of its first process. Docker says 0 for
the PID if the container has ended already."""


def checkpoints_unavailable(host: Host) -> Unavailable | None:
    """Return why the daemon makes no checkpoints; None if nothing is known against it."""
    experimental = ["docker", "version", "--format", "{{.Server.Experimental}}"]
    answer = host.run(experimental, timeout=COMMAND_TIMEOUT)
    if not answer.ok:
        return Unavailable(
            reason=f"no Docker daemon answers: {answer.failure()}", remedy="systemctl start docker"
        )
    if answer.stdout.strip() != "true":
        return Unavailable(
            reason="Docker makes checkpoints only if its daemon is experimental",
            remedy='{"experimental": true} in /etc/docker/daemon.json and a restart of the daemon, or backend'
            " runc, which Docker runs",
        )
    paths = {path for pid in named("containerd") if (path := _search_path(pid)) is not None}
    if paths and not any(shutil.which("criu", path=path) for path in paths):
        return Unavailable(
            reason=f"Docker runs CRIU by the name criu, which is not on the PATH of containerd: {min(paths)}",
            remedy="install CRIU 4.2 or later there, or take backend runc, which Docker runs",
        )
    return None


def _search_path(pid: int) -> str | None:
    """Return the PATH with which a process was started; None if that is not known any more."""
    words = words_of(pid, "environ")
    return next((word.removeprefix("PATH=") for word in words if word.startswith("PATH=")), None)


def dump_words(name: str, images: Path) -> list[str]:
    """Return the command line that writes a running container to a directory, and ends the container."""
    return ["sh", "-c", _DUMP, "sh", str(images), name, NAME]


def watch_dump(pid: int) -> Callable[[int], str]:
    """See moving.Checkpoints.

    pid: PID of the first process of the container.
    """
    identity = identity_of(pid)
    return lambda _: "the first process of the instance has ended" if dump_is_stuck(pid, identity) else ""


@dataclass(frozen=True, kw_only=True)
class Created:
    """A container that was created and not started.

    identity: its ID.
    files: the daemon's directory for the files of its checkpoint, which does not exist yet.
    """

    identity: str
    files: Path

    def why_stuck(self, pid: int) -> str:
        """Return why the start of the container from its checkpoint will hang forever; '' if no reason is
        found.

        pid: as in restoring_from(); not used, since the daemon is the one that starts it.
        """
        return "CRIU has ended" if self.identity in stuck_restores() else ""


@contextmanager
def created(host: Host, name: str, words: Sequence[str]) -> Iterator[Created]:
    """Create a container without starting it, and remove it on exit.

    words: arguments of `docker create`.
    Raises RunError.
    """
    try:
        done = host.run(["docker", "create", *words], timeout=COMMAND_TIMEOUT)
        identity = done.require(f"no container for {name} can be made").stdout.strip()
        of_daemon = Path(fact(host, "info", "{{.DockerRootDir}}"), "containers", identity, "checkpoints")
        yield Created(identity=identity, files=of_daemon / NAME)
    finally:
        remove(host, name)


def hand_over(images: Path, files: Path) -> None:
    """Put the files of a checkpoint into the daemon's directory, as hard links where that is possible.

    Raises RunError.
    """
    try:
        files.parent.mkdir(mode=0o700, exist_ok=True)
        files.mkdir()
        for file in images.iterdir():
            if file.is_file():
                _link_or_copy(file, files)
    except OSError as e:
        raise RunError(f"not restored: {e.strerror}", where=str(e.filename or files)) from e


def _link_or_copy(file: Path, directory: Path) -> None:
    target = directory / file.name
    try:
        target.hardlink_to(file)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, target)


def restore_words(name: str, pid_file: Path) -> list[str]:
    """Return the command line that starts a container from its checkpoint, and ends with the container.

    pid_file: file for the PID of its first process, written when all processes are restored.
    """
    return ["sh", "-c", _RESTORE, "sh", NAME, name, str(pid_file)]
