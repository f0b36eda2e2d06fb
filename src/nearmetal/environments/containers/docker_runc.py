"""The runc processes that containerd has started for containers of Docker. Nobody tells nearmetal that one of
them waits forever, so it looks for them in /proc."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

from ...host.mounts import own_mounts
from ...host.namespaces import detach
from ...host.processes.birth import stat_fields
from ...host.processes.labelled import children, ends, named

_IDENTITY = re.compile(r"[0-9a-f]{64}")


def words_of(pid: int, file: str) -> list[str]:
    """Return the words in a file of /proc/<pid>, such as environ or cmdline; empty if the process has
    ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="surrogateescape").split("\0")
    except OSError:
        return []


def identity_of(pid: int) -> str:
    """Return the ID of the container of a process, which is in the path of its control groups; '' if the
    process has ended."""
    found = _IDENTITY.search("".join(words_of(pid, "cgroup")))
    return found[0] if found else ""


def dump_is_stuck(pid: int, identity: str) -> bool:
    """Return whether the dump of a container waits forever. CRIU does so for a first process that was killed
    while CRIU traced it. CRIU also ends this process itself, but then ends soon as well.

    pid: PID of the first process.
    """
    return ends(pid) and any(
        not _unreaped(child)
        for runc in _runc("checkpoint")
        if runc[1] == identity
        for child in children(runc[0])
    )


def stuck_restores() -> dict[str, int]:
    """Return the PID of each runc that restores a container, and waits forever for a CRIU that was killed, by
    the ID of the container. runc does not notice the end of CRIU, its child, as long as processes live that
    CRIU has created."""
    return {identity: pid for pid, identity in _runc("restore") if any(map(_unreaped, children(pid)))}


def end_stuck(identity: str, pid: int) -> None:
    """End a runc of stuck_restores(). The daemon removes no container that is being started.

    What CRIU and runc have mounted in their directories is unmounted before: the root of the container and
    all control groups. Otherwise containerd would remove, with the directory, all empty groups of the
    machine.
    """
    for mount in reversed(own_mounts()):
        parts = Path(mount.point).parts
        if identity in mount.point and any(part.startswith((".criu.", "criu-")) for part in parts):
            with contextlib.suppress(OSError):  # containerd may remove it meanwhile
                detach(Path(mount.point))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _runc(command: str) -> list[tuple[int, str]]:
    """Return the PID and the ID of the container of each runc that runs a command."""
    found = ((pid, words_of(pid, "cmdline")) for pid in named("runc"))
    return [
        (pid, word) for pid, words in found if command in words for word in words if _IDENTITY.fullmatch(word)
    ]


def _unreaped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return stat_fields(pid)[0] == "Z"
    return False
