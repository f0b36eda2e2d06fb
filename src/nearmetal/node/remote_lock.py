"""The entry of a run in the lock file of a machine that is reached by ssh. Runs and `nearmetal clean` on that
machine then know the run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..host import Host
from ..host.lock import (
    LIMIT,
    SHARED,
    RunInfo,
    busy,
    clean_command,
    living_runs,
    lock_in,
    parse_runs,
)
from ..host.processes.birth import birth_in, fields_in
from ..host.run_mark import process_name

SECONDS = 60.0
"""Time limit of one command."""


@contextmanager
def entered(there: Host, name: str, agent: Path, stat: str, label: str, *, force: bool) -> Iterator[None]:
    """Name a run in the lock file of a machine until exit. The entry counts as long as the run's agent lives.

    name: name of the machine in messages.
    agent: nm-guest on that machine, which changes the file.
    stat: text of /proc/PID/stat of the process that serves the run there.
    force: enter even if another run measures there.

    Raises BusyError that names the other run, and RunError if the lock file cannot be used.
    """
    own = RunInfo(
        pid=int(stat.partition(" ")[0]),
        born=birth_in(fields_in(stat)) or 0,
        run=label,
        since=time.time(),
        command=_command(label),
    )
    path = str(lock_in(everyone=_everyone(there)))
    done = there.run([str(agent), "add-line", path, own.line], timeout=SECONDS).require(
        f"the lock {path} cannot be used"
    )
    try:
        if not force:
            for other in parse_runs(done.stdout):
                if other.run != label and _lives(there, other, marked=True):
                    raise busy(other, name, None)
        yield
    finally:
        there.run([str(agent), "drop-line", path, own.line], timeout=SECONDS)


def living_there(there: Host) -> frozenset[str]:
    """Return the labels of the runs that the lock file of a machine names and that may be alive."""
    path = lock_in(everyone=_everyone(there))
    # Any user may have put anything in its place.
    argv = ["dd", f"if={path}", "iflag=nonblock,nofollow", f"bs={LIMIT}", "count=1", "status=none"]
    done = there.run(argv, timeout=SECONDS)
    return frozenset(run.run for run in parse_runs(done.stdout) if _lives(there, run))


def _everyone(there: Host) -> bool:
    """Return whether all users of the machine may write to SHARED."""
    argv = ["find", "-L", str(SHARED), "-prune", "-type", "d", "-perm", "-0002"]
    return bool(there.run(argv, timeout=SECONDS).stdout.strip())


def _lives(there: Host, run: RunInfo, *, marked: bool = False) -> bool:
    """Return whether the process of a run lives on a machine.

    marked: whether it must also bear the run's mark, without which any user may have named it.
    """
    stat = there.run(["cat", f"/proc/{run.pid}/stat"], timeout=SECONDS)
    name = f" ({process_name(run.run)}) "
    return stat.ok and birth_in(fields_in(stat.stdout)) == run.born and (not marked or name in stat.stdout)


def _command(label: str) -> str:
    """Return the command line of a run on this machine, and the name of this machine."""
    command = next((run.command for run in living_runs() if run.run == label), label)
    return clean_command(f"on {os.uname().nodename}: {command}")
