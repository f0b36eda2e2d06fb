"""Options of CRIU for the TCP connections of an instance (InstanceRequest.connections), for the freezer of a
container, and for a restore that waits. Some of them need a script or a file, which is written here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from .contract import InstanceRequest, Tools
from .program import write_script

UNLOCKED = ("--network-lock", "skip")
"""Option by which CRIU does not block the network of an instance during a checkpoint.

To block it, CRIU runs iptables several times, which lengthens the standstill. Blocking is not needed: an
instance without TCP connections loses none, an instance with connections on a network is disconnected from
the network while it is moved, and the connections of a job on the loopback interface have both ends in the
checkpoint."""
CONNECTIONS = (*UNLOCKED, "--tcp-established", "--ghost-limit", "256M")
"""Options for instances with TCP connections. The shared memory of MPI ranks is in deleted files, which CRIU
saves only up to a limit; the default limit of 1 MiB is too small for them."""

_FREEZE = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = pre-dump ] && cd {group} && date +%s.%N >{at} && echo {frozen} >{file} || exit 0
tries=0
until grep -qx {whole} {state}; do
    [ $((tries += 1)) -le 50 ] || {{ echo {thawed} >{file}; rm {at}; exit 0; }}
    sleep 0.001
done
"""

_FROZEN_AT = "frozen-at"

_WAIT = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" != {moment} ] || timeout {limit} sh -c 'read -r line <"$1"' sh {hold}
"""
_LONGEST_WAIT = 3600
"""Seconds after which the script gives up. It would wait for ever if nearmetal was killed before the script
has opened the FIFO."""


def connection_options(tools: Tools, request: InstanceRequest, directory: Path) -> tuple[str, ...]:
    """Return the options of CRIU for the TCP connections of an instance.

    directory: directory for a script, which is needed if the request has an arrival command: CRIU runs this
        command after it has restored the connections.
    """
    if not request.connections:
        return UNLOCKED
    if not request.arrival:
        return CONNECTIONS
    command = shlex.join(request.arrival)
    text = f'#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" != post-restore ] || exec {command}\n'
    return (*CONNECTIONS, *_action_script(tools, directory / "connect", text))


def freezing_options(tools: Tools, freezer: Path | None, directory: Path, images: Path) -> tuple[str, ...]:
    """Return the options of a dump that shorten the freezing of a container's control group.

    CRIU freezes the group and checks only after 100 ms whether the group is frozen. A script therefore
    freezes the group before CRIU does, which takes 1 to 3 ms: CRIU does not wait for a group that is frozen
    already. CRIU thaws the group once it controls all processes. If the dump fails, the group stays frozen
    until moving.Checkpoints.thaw() is called. The statistics of CRIU begin only after the script, which
    therefore writes the time to a file; see frozen_at().

    freezer: file from cgroups.freezer(); None if there is no freezer, which needs no option.
    directory: directory for the script.
    images: directory of the images, for the file.
    """
    if freezer is None:
        return ()
    words = {"frozen": "FROZEN", "thawed": "THAWED", "state": freezer.name, "whole": "FROZEN"}
    if freezer.name == "cgroup.freeze":
        words = {"frozen": "1", "thawed": "0", "state": "cgroup.events", "whole": "'frozen 1'"}
    group, at = shlex.quote(str(freezer.parent)), shlex.quote(str(images / _FROZEN_AT))
    text = _FREEZE.format(group=group, at=at, file=freezer.name, **words)
    return _action_script(tools, directory / "freeze", text)


def frozen_at(images: Path) -> float | None:
    """Return when the script of freezing_options() froze the instance, in seconds of CLOCK_REALTIME; None if
    there was no script."""
    try:
        return float((images / _FROZEN_AT).read_text())
    except (OSError, ValueError):
        return None


def waiting_options(
    tools: Tools, hold: Path, directory: Path, moment: str = "post-setup-namespaces"
) -> tuple[str, ...]:
    """Return the options of a restore that waits.

    hold: FIFO from which it reads a line before it goes on. If the FIFO is closed instead, the restore fails.
    directory: for a script.
    moment: of CRIU's scripts. By default it has made the namespaces of the instance and their mounts, but
        none of its processes: CRIU reads memory only then. A restore without namespaces has only pre-restore.
    """
    text = _WAIT.format(moment=moment, hold=shlex.quote(str(hold)), limit=_LONGEST_WAIT)
    return _action_script(tools, directory / "wait", text)


def _action_script(tools: Tools, file: Path, text: str) -> tuple[str, ...]:
    """Write an action script, and return the option that makes CRIU run it at each of its steps."""
    return ("--action-script", str(write_script(tools, file, text)))


def write_configuration(options: Sequence[str], file: Path) -> None:
    """Write options of CRIU to a configuration file of CRIU. Container programs cannot pass these options."""
    words = [word.removeprefix("--") if word.startswith("--") else f" {word}" for word in options]
    lines = "".join(word if word.startswith(" ") else f"\n{word}" for word in words)
    file.write_text(f"{lines.lstrip()}\n")
