"""Two jobs on one machine, of one user or of two: neither can end, block, deceive or read the other."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from nearmetal.host.processes.labelled import children

pytestmark = [
    pytest.mark.attack,
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and changes the user"),
]

FIRST, SECOND = 64001, 64002

PREPARE = """
import ctypes, json, os, pwd, subprocess, sys
from pathlib import Path
from nearmetal.errors import BusyError
from nearmetal.host import cgroups, leftovers
from nearmetal.host.lock import living_runs, machine_lock
from nearmetal.host.runtime import scratch_directory
os.environ.pop("XDG_RUNTIME_DIR", None)
label, user = sys.argv[1], int(sys.argv[2])
if user:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as after an exec
os.umask(0o022)
"""
"""Everything is imported before the user changes, who may not read the modules."""

RUN = (
    PREPARE
    + """
with machine_lock(label, command=f"nearmetal run {label}"), scratch_directory(label) as scratch:
    (scratch / "log").write_text("secret")
    env = {"NEARMETAL_RUN": f"{label}-0-1", "TOKEN": "secret"}
    with subprocess.Popen(["/bin/sleep", "1000"], env=env) as child:
        print(json.dumps({"scratch": str(scratch)}), flush=True)
        for _ in sys.stdin:
            print(json.dumps({"alive": child.poll() is None}), flush=True)
        child.kill()
"""
)
"""A run in all but its work: the lock, a scratch directory, and a labelled process."""

INTRUDE = (
    PREPARE
    + """
pid, scratch = int(sys.argv[3]), sys.argv[4]

def attempt(work):
    try:
        return work()
    except BusyError as error:
        return f"{error.what}; {error.remedy}"
    except OSError as error:
        return None

def lock():
    with machine_lock("nearmetal-ffffff", command="c"):
        return ""

found = leftovers.find(label)
for item in found:
    leftovers.remove(item)
print(json.dumps({
    "wanted": leftovers.wanted_names(label)(label),
    "found": [item.detail for item in found],
    "busy": attempt(lock),
    "named": [run.run for run in living_runs()],
    "log": attempt(lambda: Path(f"/proc/{pid}/root{scratch}/log").read_text()),
    "listed": attempt(lambda: os.listdir(scratch)),
    "environ": attempt(lambda: Path(f"/proc/{pid}/environ").read_text()),
}), flush=True)
"""
)

OWN_PLACES = "mount -t tmpfs tmpfs /tmp -o mode=1777 && mount -t tmpfs tmpfs /run && mkdir -m 1777 /run/lock"
OWN_PIDS = ("--pid", "--fork", "--mount-proc")
HIDDEN = "mount -t proc proc /proc -o hidepid=2"


@dataclass(frozen=True)
class Run:
    """label: of the run. pid: of its process, seen from outside. scratch: its directory."""

    process: subprocess.Popen[str]
    label: str
    pid: int
    scratch: str

    def child_lives(self) -> bool:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return bool(json.loads(self.process.stdout.readline())["alive"])


def python(program: str, *words: object) -> list[str]:
    return [sys.executable, "-c", program, *map(str, words)]


def within(prepare: str, options: Sequence[str], argv: Sequence[str]) -> list[str]:
    """A command in a mount namespace of its own, after a shell has prepared it."""
    return ["unshare", "--mount", *options, "sh", "-c", f'{prepare} && exec "$@"', "sh", *argv]


@contextmanager
def running(user: int, prepare: str, *options: str) -> Iterator[Run]:
    label = f"nearmetal-z{secrets.token_hex(3)[1:]}"  # of no run that might be cleaned up meanwhile
    argv = within(prepare, options, python(RUN, label, user))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        begun = json.loads(process.stdout.readline())
        pid = children(process.pid)[0] if options else process.pid
        yield Run(process, label, pid, begun["scratch"])
        process.stdin.close()
        assert process.wait(60) == 0


def intrude(run: Run, user: int, prepare: str | None, *options: str) -> dict[str, Any]:
    """What a second job does and sees. prepare: None if it shares the directories of the run."""
    argv = python(INTRUDE, run.label, user, run.pid, run.scratch)
    inside = ["nsenter", f"--mount=/proc/{run.pid}/ns/mnt", "--", *argv]
    done = subprocess.run(
        inside if prepare is None else within(prepare, options, argv),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("jobs", "first", "second"),
    [
        ("one /tmp", 0, 0),
        ("one /tmp", FIRST, FIRST),
        ("one /tmp", FIRST, SECOND),
        ("one /tmp", 0, SECOND),
        ("one /tmp", FIRST, 0),
        ("own /tmp", 0, 0),
        ("own /tmp", FIRST, FIRST),
        ("own /tmp", FIRST, 0),
        ("own /tmp and /proc", 0, 0),
        ("own /tmp and /proc", FIRST, 0),
        ("own PIDs, seen from outside", 0, 0),
        ("hidden processes", FIRST, FIRST),
        ("hidden processes", FIRST, SECOND),
    ],
)
def test_a_second_job_leaves_the_run_of_the_first(jobs: str, first: int, second: int) -> None:
    options = OWN_PIDS if jobs in ("own /tmp and /proc", "own PIDs, seen from outside") else ()
    prepare = OWN_PLACES if jobs != "hidden processes" else f"{OWN_PLACES} && {HIDDEN}"
    with running(first, prepare, *options) as run:
        shared = jobs in ("one /tmp", "hidden processes")
        outside = () if "outside" in jobs else options
        seen = intrude(run, second, None if shared else prepare, *outside)
        assert seen["found"] == [] and not seen["wanted"], seen
        assert run.child_lives()
        if shared:
            assert seen["named"] == [run.label] and run.label in seen["busy"]
            hidden = jobs == "hidden processes" and second not in (0, first)
            stop = f"kill -INT {run.pid}" if first == second else "wait for it, or" if hidden else "ask "
            assert stop in seen["busy"], seen
        if second not in (0, first):
            assert seen["log"] is None and seen["listed"] is None and seen["environ"] is None
