"""CRIU writes the processes of an instance to files and restores them from there. Common part of the backends
that implement contract.Checkpoints."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import RunError
from ..host import Host, Process
from ..host.processes import labelled as processes
from ..model.environments.image import HOST
from ..model.study import Environment
from .contract import Criu, InstanceRequest, Tools, Unavailable
from .program import log_failure, read_pid

SECONDS = 300.0
"""Seconds after which a checkpoint or a restore has failed."""
WHOLE = ("--file-locks", "--link-remap", "--manage-cgroups=ignore")
FRESH = frozenset({"/tmp", "/run", "/dev/shm"})
"""Where nm-box mounts a tmpfs of the instance's own; its content is part of the checkpoint."""
DUMP_LOG, RESTORE_LOG, PID_FILE = "dump.log", "restore.log", "restored.pid"
"""Names of files beside the images."""
_LOOK_AGAIN = 0.001


def dump_argv(criu: Criu, pid: int, images: Path, more: Sequence[str]) -> list[str]:
    """Return the command line that writes the tree of processes of pid into a directory."""
    where = ["--tree", str(pid), "--images-dir", str(images), "--log-file", DUMP_LOG, "-v2"]
    return [*criu.argv, "dump", *where, *WHOLE, *more]


def restore_argv(criu: Criu, images: Path, more: Sequence[str]) -> list[str]:
    """Return the command line that restores from a directory, and stays."""
    where = [
        "--images-dir",
        str(images),
        "--log-file",
        RESTORE_LOG,
        "-v2",
        "--pidfile",
        str(images / PID_FILE),
    ]
    return [*criu.argv, "restore", *where, *WHOLE, *more]


def script(criu: Criu, directory: Path) -> Path:
    """Write a program into a directory that runs CRIU, for programs that want a single path."""
    file = directory / "criu"
    file.write_text(f'#!/bin/sh\nexec {shlex.join(criu.argv)} "$@"\n')
    file.chmod(0o755)
    return file


def refuses(host: Host, environment: Environment) -> Unavailable | None:
    """Return why no instance of an environment can be checkpointed, whatever its backend."""
    if not host.is_root():
        return Unavailable(reason="a checkpoint needs root", remedy="run as root")
    if environment.attachment.seated:
        return Unavailable(
            reason=f"attachment {environment.attachment.value} is not restored",
            remedy="attachment: none, or host",
        )
    if environment.inside is not None:
        return Unavailable(
            reason="CRIU runs on the machine, not in a guest", remedy="take inside out of the environment"
        )
    if environment.share:
        return Unavailable(
            reason="namespaces shared with the machine are not the instance's to restore",
            remedy="take share out of the environment",
        )
    return None


def refuses_image(environment: Environment) -> Unavailable | None:
    """Return why an instance that has only its root for itself cannot be checkpointed in an image."""
    if environment.image == HOST:
        return None
    return Unavailable(reason="without a PID namespace only image host is restored", remedy=f"image: {HOST}")


def alone(enter: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Return the command line that starts argv inside without a caller.

    enter: words in front of a command, among them those of nm-box.
    """
    words = list(enter)
    words.insert(words.index("--by-init") + 1, "--detached")
    return [*words, *argv]


def external_mounts(mountinfo: str, *, own_network: bool) -> tuple[str, ...]:
    """Return the mount points of an instance that are the machine's, from /proc/<pid>/mountinfo.

    own_network: whether it has a network namespace of its own, and so a /sys of its own.
    """
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point, kind = before.split()[4], after.split()[0]
        own = point == "/" or kind == "proc" or (kind == "tmpfs" and point in FRESH)
        if not own and not (own_network and kind == "sysfs"):
            found.append(point)
    return tuple(dict.fromkeys(found))


def external_options(points: Sequence[str]) -> tuple[str, ...]:
    """Return the options for mounts of the machine that the instance sees at the same path."""
    return tuple(word for point in points for word in ("--external", f"mnt[{point}]:{point}"))


def _varints(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message in the format of protocol buffers: numbers, and nested messages."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        value = number()
        if tag & 7 == 0:
            yield tag >> 3, value
        else:  # a message of that length; CRIU's statistics contain nothing else
            yield tag >> 3, message[at : at + value]
            at += value


def freezing_seconds(stats: bytes) -> float:
    """Return the seconds until all processes stood still, from the content of a file stats-dump.

    Raises RunError if it is not one.
    """
    try:
        (size,) = struct.unpack_from("<I", stats, 8)
        dump = dict(_varints(stats[12 : 12 + size]))[1]
        microseconds = dict(_varints(dump))[1] if isinstance(dump, bytes) else None
    except (struct.error, IndexError, KeyError) as e:
        raise RunError(f"cannot read CRIU's stats-dump: {e!r}") from e
    if not isinstance(microseconds, int):
        raise RunError("cannot read CRIU's stats-dump: no time of the freeze")
    return microseconds / 1e6


def dumped(host: Host, argv: Sequence[str], pid: int, images: Path, log: Path) -> Mapping[str, float]:
    """Run the program that writes a checkpoint, and wait until its first process is gone.

    pid: the first process.
    images: directory with the result.
    log: of CRIU; its first error explains a failure.
    Returns the seconds of 'freeze' and 'dump'.
    Raises RunError, also if the instance still runs afterwards: a second one must not be made of it.
    """
    begin = time.monotonic()
    done = host.run(argv, timeout=SECONDS, cwd=Path("/"))
    if not done.ok:
        raise RunError(f"no checkpoint: {first_error(log) or done.failure()}", where=str(log))
    end = time.monotonic() + SECONDS
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > end:
            raise RunError(f"process {pid} still runs after its checkpoint", remedy="nearmetal clean")
        time.sleep(_LOOK_AGAIN)
    seconds = time.monotonic() - begin
    freeze = freezing_seconds((images / "stats-dump").read_bytes())
    return {"freeze": freeze, "dump": seconds - freeze}


def first_error(log: Path) -> str:
    """Return the first error in a log of CRIU that explains a failure; empty if there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    errors = [line.partition("Error ")[2] for line in text.splitlines() if ") Error (" in line]
    # Without CAP_SYS_RESOURCE CRIU says so and goes on.
    return next((e.partition("): ")[2] for e in errors if "RLIMIT_NOFILE for self" not in e), "")


def restorer(tools: Tools, request: InstanceRequest, groups: Sequence[Path]) -> list[str]:
    """Return the words in front of a program that restores.

    Its processes die with nearmetal, and are in these control groups and on the CPUs of the request. Dead
    ones are reaped at once, whatever process 1 does.
    """
    words = [tools / "nm-box", "enter", "--pid", "0", "--die-with-parent", "--label", request.label]
    if request.cpus:
        words += ["--cpus", ",".join(map(str, request.cpus))]
    for group in groups:
        words += ["--cgroup", str(group)]
    return [*words, "--", tools / "nm-box", "reap", "--"]


@contextmanager
def restoring(host: Host, request: InstanceRequest, argv: Sequence[str], images: Path) -> Iterator[int]:
    """Run a program that restores an instance and stays, as the parent of its first process, until exit.

    images: directory with its log and the file with the PID of the first process.
    Yields this PID. Raises RunError.
    """
    log, pid_file, output = images / RESTORE_LOG, images / PID_FILE, images / "restore.err"
    process: Process = host.start(
        argv,
        stdout=output,
        stderr=output,
        env={processes.LABEL_VARIABLE: request.label},
        cwd=Path("/"),
    )
    pid: int | None = None
    try:
        end = time.monotonic() + SECONDS
        while (pid := read_pid(pid_file)) is None:
            if process.poll() is not None or time.monotonic() > end:
                why = first_error(log) or log_failure(Path(argv[0]).name, process.poll(), output)
                raise RunError(f"not restored: {why}", where=str(log))
            time.sleep(_LOOK_AGAIN)
        yield pid
    finally:
        if pid is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                process.wait(10.0)
        process.kill()
