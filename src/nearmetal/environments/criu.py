"""Runs CRIU: its command lines, files and processes. Shared by the backends that implement
moving.Checkpoints."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..errors import RunError
from ..host import Host, Process, cgroups
from ..host.processes import labelled as processes
from ..lifecycle import Costs, Estimate, Method
from ..model.capabilities import Capabilities
from ..model.study import Attachment, Environment
from .contract import Bind, Instance, InstanceRequest, Tools, Unavailable
from .criu_images import first_error, statistics_of
from .instance import source_of
from .moving import Criu, Dump
from .program import in_groups, log_failure, write_script

METHODS = (Method.CRIU, Method.CRIU_LAZY, Method.CRIU_PAGESERVER, Method.CRIU_PRECOPY)
"""The checkpoint methods of backends that support all options of CRIU in dump_command() and restoring()."""
SECONDS = 300.0
"""Time limit of a checkpoint or a restore, in seconds."""
NO_GROUPS = "--manage-cgroups=ignore"
"""Option by which CRIU neither saves nor creates control groups, which would take 15 ms of the standstill."""
WHOLE = ("--file-locks", "--link-remap", NO_GROUPS)
FRESH = frozenset({"/tmp", "/run", "/dev/shm"})
"""Directories where nm-box mounts a private tmpfs in an instance; the content is part of a checkpoint."""
DUMP_LOG, RESTORE_LOG, PID_FILE = "dump.log", "restore.log", "restored.pid"
"""Names of files that CRIU writes into the directory of the images."""
PAGE_SERVER_LOG, LAZY_LOG = "page-server.log", "lazy-pages.log"
MOST_ROUNDS = 5
"""Maximum number of pre-copy rounds."""
SMALL = 8 << 20
"""Pre-copy ends after a round that wrote at most this many bytes."""
_END_SECONDS = 10.0
CRIU_PID = "criu.pid"
"""Name of the file with the PID of the CRIU that restores, for container programs; see script()."""
PROCESS_COSTS = Costs(fixed=Estimate(0.08, 0.2, 0.9), setup=Estimate(0.0, 0.0, 0.05))
"""Costs of a process, apart from memory: the start of CRIU, the freeze, and the restore of a process without
memory."""
CONTAINER_COSTS = Costs(fixed=Estimate(0.1, 0.3, 1.5), setup=Estimate(0.0, 0.0, 0.1))
"""Costs of a container, which also has control groups, namespaces and mounts."""
LOOK_AT_CRIU = 0.5
"""Seconds between two checks whether CRIU can still succeed."""


def dump_argv(criu: Criu, pid: int, dump: Dump, more: Sequence[str]) -> list[str]:
    """Return the CRIU command line that writes the process tree of pid to files, with `more` options."""
    words = ["--tree", str(pid), "--images-dir", str(dump.images), "--log-file", DUMP_LOG, "-v2"]
    if dump.tracked:
        words.append("--track-mem")
    if dump.previous is not None:
        words += ["--prev-images-dir", os.path.relpath(dump.previous, dump.images)]
    if dump.ready is not None:
        words += ["--lazy-pages", "--status-fd", str(dump.ready)]
    command = "pre-dump" if dump.round else "dump"
    return [*criu.argv, command, *words, *server_options(dump), *WHOLE, *more]


def server_options(dump: Dump) -> list[str]:
    """Return the options by which CRIU uses the connection Dump.server. Container programs have none such."""
    if dump.server is None:
        return []
    return [*(["--page-server"] if dump.ready is None else []), "--ps-socket", str(dump.server)]


def runtime_options(dump: Dump) -> list[str]:
    """Return the options of `runc checkpoint` or `crun checkpoint` for a dump. CRIU itself also needs
    server_options()."""
    words = ["--pre-dump"] if dump.round else []
    if dump.previous is not None:
        words += ["--parent-path", os.path.relpath(dump.previous, dump.images)]
    if dump.ready is not None:
        words += ["--lazy-pages", "--status-fd", str(dump.ready)]
    return words


def restore_argv(criu: Criu, images: Path, more: Sequence[str]) -> list[str]:
    """Return the CRIU command line that restores a process tree, and runs as long as its first process."""
    words = ["--images-dir", str(images), "--log-file", RESTORE_LOG, "-v2"]
    words += ["--pidfile", str(images / PID_FILE)]
    return [*criu.argv, "restore", *words, *WHOLE, *more]


def script(
    tools: Tools | None,
    argv: Sequence[str],
    directory: Path,
    *,
    name: str = "criu",
    more: Sequence[str] = (),
    restores: Path | None = None,
    hold: Path | None = None,
) -> Path:
    """Write a shell script that runs CRIU, and return its path. Container programs accept only the path of
    CRIU, without options.

    tools: as in write_script().
    argv: command line of CRIU. For instances of a run it comes from bound_to_tool(), so that CRIU is killed
        with the container program. CRIU cannot be found by its label: its process title overwrites it.
    name: name of the script, which should not exist: replacing a file takes 20 to 30 ms while the file
        system writes memory images.
    more: options that are added after those of the container program.
    restores: directory to which the script writes the PID of a restoring CRIU, which is the last that it has
        run; None for a dump.
    hold: FIFO from which the script reads a line before CRIU restores; None for no wait. It recognizes a
        restore by the arguments: `restore`, or `swrk 3` from container programs written in Go, which ask CRIU
        for its version by another number.
    """
    early = f"echo $$ >{shlex.quote(str(restores / CRIU_PID))}\n" if restores is not None else ""
    if hold is not None:
        waits = f"read -r line <{shlex.quote(str(hold))} || exit 1"
        early += f"case $1-$2 in restore-*|swrk-3) {waits};; esac\n"
    words = " ".join((shlex.join(argv), '"$@"', *map(shlex.quote, more)))
    return write_script(tools, directory / name, f"#!/bin/sh\n{early}exec {words}\n")


def network_of_seat(request: InstanceRequest) -> tuple[str, ...]:
    """Return the command prefix that enters the network namespace of a request's seat; empty without one."""
    return () if request.seat is None else ("nsenter", f"--net={request.seat.netns}", "--")


def mounts_of(pid: int) -> str:
    """Return the content of /proc/<pid>/mountinfo.

    pid: PID of the first process of an instance that is to be dumped.
    Raises RunError if the instance has ended.
    """
    try:
        return Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError as e:
        raise RunError(f"no checkpoint: the first process of the instance has ended: {e.strerror}") from e


def external_mounts(mountinfo: str, *, own_network: bool) -> tuple[str, ...]:
    """Return the mount points at which an instance sees file systems of the machine.

    mountinfo: content of /proc/<pid>/mountinfo of a process in the instance.
    own_network: whether the instance has its own network namespace, and therefore its own /sys.
    """
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point, kind = before.split()[4], after.split()[0]
        own = point == "/" or kind == "proc" or (kind == "tmpfs" and point in FRESH)
        if not own and not (own_network and kind == "sysfs"):
            found.append(point)
    return tuple(dict.fromkeys(found))


def external_options(points: Sequence[str], binds: Sequence[Bind] = ()) -> tuple[str, ...]:
    """Return the CRIU options by which external_mounts() are not saved, but mounted again from the same
    paths.

    binds: for a restore, the binds of the instance, some of which come from other paths.
    """
    sources = (source_of(binds, Path(point)) for point in points)
    where = zip(points, sources, strict=True)
    return tuple(word for point, path in where for word in ("--external", f"mnt[{point}]:{path}"))


def bound_to_tool(tools: Tools, label: str, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs a program with a label. It is killed when its parent dies."""
    return in_groups(tools, {}, label, argv)


class ConfirmedFinding:
    """Checks every LOOK_AT_CRIU seconds whether CRIU can still succeed.

    A reason counts only if two checks in a row have found it, because CRIU may be about to notice it itself.

    found: what the last check found; '' for nothing.
    """

    def __init__(self, find: Callable[[], str]) -> None:
        self._find, self._next, self.found = find, time.monotonic() + LOOK_AT_CRIU, ""

    def look(self) -> str:
        """Check again if it is time. Return the reason if it is confirmed, and '' otherwise."""
        if time.monotonic() < self._next:
            return ""
        self._next, before, self.found = time.monotonic() + LOOK_AT_CRIU, self.found, self._find()
        return self.found if before else ""


def has_content(log: Path) -> bool:
    """Return whether CRIU has written to a log. Podman makes the log before it starts CRIU."""
    return log.exists() and log.stat().st_size > 0


def why_dump_is_stuck(pid: int, images: Path, program: int) -> str:
    """Return why the dump of an instance will hang forever; '' if no reason is found.

    CRIU waits forever for a first process that was killed while CRIU traced it: the process first waits for
    the end of the other processes of its PID namespace, and CRIU, as their tracer, does not let them end. A
    container program waits forever for a CRIU that was killed, while a child of CRIU holds their socket.
    pid: PID of the first process. CRIU itself kills it after it has written the last file, the inventory.
    program: PID of the program that dumps: CRIU, or a container program.
    """
    if (images / "inventory.img").exists():
        return ""
    if processes.ends(pid):
        return "the first process of the instance has ended"
    log = images / DUMP_LOG
    writes = not has_content(log) or any(processes.opened(p, str(log)) for p in processes.tree(program))
    return "" if writes else "CRIU has ended"


class RunningDump:
    """A running dump: a CRIU process, or a container program that runs CRIU, writes an instance to files.

    images: directory of these files.
    """

    def __init__(self, process: Process, images: Path, output: Path, why_stuck: Callable[[int], str]) -> None:
        """output: file with the output of the process.
        why_stuck: as in start_dump().
        """
        self.process, self.images, self._output = process, images, output
        self._stuck = ConfirmedFinding(partial(why_stuck, process.pid))

    def runs(self) -> bool:
        """Return whether the process runs. It is killed if the dump would hang forever."""
        if self.process.poll() is None and self._stuck.look():
            self.process.kill()
        return self.process.poll() is None

    def finish(self, most: float = SECONDS) -> None:
        """Wait for the end of the dump, for up to `most` seconds. Raises RunError, with the reason or the
        first error in CRIU's log, if it fails or is late; the process is then killed."""
        end = time.monotonic() + most
        while self.runs() and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                self.process.wait(min(left, LOOK_AT_CRIU))
        status, log = self.process.poll(), self.images / DUMP_LOG
        if status != 0:
            self.process.kill()
            why = self._stuck.found or first_error(log) or log_failure("the dump", status, self._output)
            raise RunError(f"no checkpoint: {why}", where=str(log))


def start_dump(
    host: Host,
    tools: Tools,
    instance: Instance,
    argv: Sequence[str],
    images: Path,
    output: Path,
    why_stuck: Callable[[int], str],
    server: int | None = None,
) -> RunningDump:
    """Start a dump of an instance, and return at once. The caller must end its process.

    argv: command line from Checkpoints.dump_command(), which writes to the directory `images`.
    output: file for the output of the process.
    why_stuck: from Checkpoints.watch_dump().
    server: Dump.server.
    """
    process = host.start(
        bound_to_tool(tools, instance.label, argv),
        stdout=output,
        stderr=output,
        env={processes.LABEL_VARIABLE: instance.label},
        cwd=Path("/"),
        pass_fds=() if server is None else (server,),
    )
    return RunningDump(process, images, output, why_stuck)


def write_rounds(directory: Callable[[int], Path], write: Callable[[Dump], None]) -> tuple[Path, list[int]]:
    """Write the memory of a running instance in rounds of pre-copy, until a round writes at most SMALL bytes
    or more than 90 % of the one before, and at most MOST_ROUNDS times.

    directory: creates the directory of a round, given the round's number from 0.
    write: runs the dump of one round.
    Returns the directory of the last round, and the bytes that each round wrote. Raises RunError.
    """
    previous: Path | None = None
    sizes: list[int] = []
    for number in range(MOST_ROUNDS):
        dump = Dump(images=directory(number), previous=previous, round=True, tracked=True)
        write(dump)
        sizes.append(statistics_of(dump.images).written)
        previous = dump.images
        if sizes[-1] <= SMALL or (len(sizes) > 1 and sizes[-1] > 0.9 * sizes[-2]):
            break
    assert previous is not None
    return previous, sizes


class RestoresByCriu:
    """Methods shared by the backends that implement moving.Checkpoints."""

    capabilities: Capabilities
    checkpoints_by: tuple[Method, ...] = METHODS
    restores_beside = True
    writes_after_end = False
    has_statistics = True
    costs: Costs = CONTAINER_COSTS
    passes = 2.0
    restored_at: frozenset[Attachment] = frozenset()

    def command_alone(self, instance: Instance, argv: Sequence[str]) -> list[str]:
        """See moving.Checkpoints."""
        words = instance.command(argv)
        words.insert(words.index("--by-init") + 2, "--detached")
        return words

    def watch_dump(self, instance: Instance, images: Path) -> Callable[[int], str]:
        """See moving.Checkpoints."""
        return partial(why_dump_is_stuck, instance.pid, images)

    def thaw(self, host: Host, tools: Tools, request: InstanceRequest, instance: Instance) -> None:
        """See moving.Checkpoints. CRIU resumes the processes by itself after a failed dump. If a container
        program made it freeze their control group, the group stays frozen; this method thaws it."""
        cgroups.thaw(instance.pid, request.place)

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        """See moving.Checkpoints. These reasons hold for all backends."""
        if not host.is_root():
            return Unavailable(reason="a checkpoint needs root", remedy="run as root")
        if environment.attachment.seated and environment.attachment not in self.restored_at:
            restored = {*self.restored_at, Attachment.HOST, Attachment.NONE}
            fitting = sorted(restored & self.capabilities.attachments)
            return Unavailable(
                reason=f"attachment {environment.attachment.value} is not restored",
                remedy=f"attachment: {' or '.join(fitting)}",
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


class RestoresConnections(RestoresByCriu):
    """Methods shared by the backends that implement moving.HoldsConnections."""

    restored_at = frozenset({Attachment.VETH_BRIDGE})

    def network_of_dump(self, request: InstanceRequest) -> tuple[str, ...]:
        """See moving.HoldsConnections."""
        return ()
