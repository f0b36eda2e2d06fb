"""Checkpoints by the Docker daemon, which offers them as an experimental feature.

containerd runs CRIU for the daemon, as it finds it on its own PATH. It keeps neither CRIU's statistics nor,
if the checkpoint succeeds, its log. A container can be started only from a checkpoint in the directory that
the daemon has for this container. nearmetal therefore creates a new container at the destination, and puts
the files of the checkpoint there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError
from ...host import Host
from ...host.mounts import own_mounts
from ...host.namespaces import detach
from ...host.processes.labelled import ends, family, named, stat_fields
from ...lifecycle import Costs, Estimate
from ..contract import Unavailable
from ..criu_images import made
from .docker_daemon import COMMAND_TIMEOUT, fact, remove

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
"""Ends with the container. The daemon, not this script, is the parent of its first process."""


def checkpoints_unavailable(host: Host) -> Unavailable | None:
    """Return why the daemon makes no checkpoints; None if nothing is known against it.

    Raises UnavailableError if no daemon answers.
    """
    if fact(host, "version", "{{.Server.Experimental}}") != "true":
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
    """Return the variable PATH of a process; None if it has none, or has ended."""
    words = map(os.fsdecode, _words(pid, "environ"))
    return next((word.removeprefix("PATH=") for word in words if word.startswith("PATH=")), None)


def _words(pid: int, file: str) -> list[bytes]:
    """Return the words in a file of /proc/<pid>, such as environ or cmdline; empty if the process has
    ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []


def dump_words(name: str, images: Path) -> list[str]:
    """Return the command line that writes a running container to a directory, and ends the container."""
    return ["sh", "-c", _DUMP, "sh", str(images), name, NAME]


def watch_dump(pid: int) -> Callable[[int], str]:
    """See moving.Checkpoints. CRIU waits forever for a first process that was killed while CRIU traced it. It
    also ends this process itself, but ends soon then, while the daemon copies the files.

    pid: PID of the first process of the container.
    """
    identity = _identity(pid)
    return lambda _: (
        "the first process of the instance has ended" if ends(pid) and _runc("checkpoint", identity) else ""
    )


def _identity(pid: int) -> str:
    """Return the ID of the container of a process, which is in the path of its control groups; '' if the
    process has ended."""
    groups = b"".join(_words(pid, "cgroup")).decode(errors="replace")
    found = re.search(r"[0-9a-f]{64}", groups)
    return found[0] if found else ""


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
        return "CRIU has ended" if _stuck(self.identity) else ""


@contextmanager
def created(host: Host, name: str, words: Sequence[str]) -> Iterator[Created]:
    """Create a container without starting it, and remove it on exit.

    words: arguments of `docker create`.
    Raises RunError.
    """
    identity = ""
    try:
        done = host.run(["docker", "create", *words], timeout=COMMAND_TIMEOUT)
        identity = done.require(f"no container for {name} can be made").stdout.strip()
        of_daemon = Path(fact(host, "info", "{{.DockerRootDir}}"), "containers", identity, "checkpoints")
        yield Created(identity=identity, files=of_daemon / NAME)
    finally:
        if identity and (stuck := _stuck(identity)):
            _unmount(identity)
            for pid in stuck:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # the daemon removes no container that is being started
        remove(host, name)


def _stuck(identity: str) -> list[int]:
    """Return the PIDs of each runc that restores a container, and waits forever for a CRIU that was killed.
    It does not notice the end of CRIU, its child, as long as processes live that CRIU has created."""
    return [pid for pid in _runc("restore", identity) if any(map(_unreaped, family(pid)))]


def _runc(command: str, identity: str) -> list[int]:
    """Return the PIDs of each runc that runs a command for a container."""
    wanted = {command.encode(), identity.encode()}
    return [pid for pid in named("runc") if wanted <= set(_words(pid, "cmdline"))]


def _unmount(identity: str) -> None:
    """Unmount what a killed CRIU and its runc have mounted in their directories of a container: its root and
    all control groups. Otherwise containerd would remove, with the directory, all empty groups of the
    machine."""
    for mount in reversed(own_mounts()):
        if identity in mount.point and any(
            part.startswith((".criu.", "criu-")) for part in Path(mount.point).parts
        ):
            with contextlib.suppress(OSError):  # containerd may remove it meanwhile
                detach(Path(mount.point))


def _unreaped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return stat_fields(pid)[0] == "Z"
    return False


def hand_over(images: Path, files: Path) -> None:
    """Put the files of a checkpoint into the daemon's directory, as hard links where that is possible.

    Raises RunError.
    """
    try:
        files.parent.mkdir(mode=0o700, exist_ok=True)
        for file in sorted(images.iterdir()):
            if file.is_file():
                _link_or_copy(file, files if files.exists() else made(files))
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
