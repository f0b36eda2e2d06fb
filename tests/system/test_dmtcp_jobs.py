"""A job that is written and restarted by programs that stand in for DMTCP's, with a fault in the middle.
test_job_moves.py has DMTCP itself, where it is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from tests.patience import until
from tests.system.checkpoint_case import HOST

from nearmetal.environments import Backend, InstanceRequest, Tools
from nearmetal.environments.dmtcp import Dmtcp
from nearmetal.environments.native import Native
from nearmetal.errors import TrialFailedError
from nearmetal.host.leftovers import find
from nearmetal.host.processes import labelled as processes
from nearmetal.host.runtime import cache_directory
from nearmetal.lifecycle import Phase
from nearmetal.model.study import Attachment, Environment, Mpi
from nearmetal.subjects.events.dmtcp_jobs import RestartEvent
from nearmetal.subjects.events.verified import Restored, VerifiedProgram
from nearmetal.workloads.build import build_tools

pytestmark = [
    pytest.mark.more,
    pytest.mark.beside,
    pytest.mark.no_run,
    pytest.mark.skipif(os.geteuid() != 0, reason="an instance with a first process of its own needs root"),
]
_numbers = count()
JOB = """\
import os, signal, struct, sys, time
record, state = sys.argv[1:3]
steps = int(open(state).read()) if os.path.exists(state) else 0

def write(*_):
    with open(state + ".new", "w") as file:
        file.write(str(steps))
    os.replace(state + ".new", state)  # others read the file as soon as it is there
    os._exit(0)

signal.signal(signal.SIGTERM, write)
out = os.open(record, os.O_RDWR | os.O_CREAT)
while True:
    steps += 1
    passes = max(0, steps - 900) // 100  # the first is long: until it ends, the usual pace is measured
    os.pwrite(out, struct.pack("=5Q", steps, passes, {wrong}, 5_000_000, 0), 0)
    time.sleep(0.001)
"""
PROGRAMS = {
    "coordinator": """\
import socket, sys, time
server = socket.create_server(("", 0))  # at all addresses, as DMTCP's does
open(sys.argv[sys.argv.index("--port-file") + 1], "w").write(f"{server.getsockname()[1]}\\n")
time.sleep(1000)
""",
    "launch": """\
import os, sys
at = sys.argv.index("--tmpdir")
open("{place}/launched", "w").write(sys.argv[sys.argv.index("--ckptdir") + 1] + "\\n" + str(os.getpid()))
os.execvp(sys.argv[at + 2], sys.argv[at + 2:])
""",
    "command": """\
import os, signal, sys, time
if sys.argv[-1] == "--status":
    sys.exit(print("  NUM_PEERS=0"))
images, pid = open("{place}/launched").read().split()
if "{fault}" == "refused":
    sys.exit("dmtcp_command: the coordinator refuses")
os.kill(int(pid), signal.SIGTERM)
while not os.path.exists("{place}/state"):
    time.sleep(0.01)
for name in ("mpirun", "rank"):
    if "{fault}" != "lost" or name == "rank":
        open(images + "/ckpt_" + name + ".dmtcp", "w").write(open("{place}/state").read())
os.remove("{place}/state")
""",
    "restart": """\
import os, sys
if "{fault}" == "wrong":
    open("{place}/record.wrong", "w").close()
if "{fault}" == "torn":
    print("ASSERT at dmtcprestart.cpp:903: false: bad image", flush=True)
    sys.exit(99)
open("{place}/state", "w").write(open(sys.argv[-1]).read())
os.execv(sys.executable, [sys.executable, "{place}/job.py", "{place}/record", "{place}/state"])
""",
}


@dataclass(frozen=True)
class Case:
    """An event with these programs.

    label: of its instances.
    """

    event: RestartEvent
    label: str

    def fate(self) -> str:
        with pytest.raises(TrialFailedError) as failed:
            self.event.run()
        return failed.value.what


def made(
    place: Path,
    fault: str,
    notify: Callable[[Phase], None] = lambda _: None,
    backend: Backend | None = None,
    dmtcp: Dmtcp | None = None,
) -> Case:
    """An event by DMTCP; None for the programs that stand in for it."""
    tools = Tools(directory=build_tools(HOST, cache_directory(), progress=None).directory)
    programs = place / "bin"
    for directory in (programs, place / "images", place / "scratch", place / "layers"):
        directory.mkdir()
    for name, text in PROGRAMS.items():
        file = programs / f"dmtcp_{name}"
        text = text.replace("{place}", str(place)).replace("{fault}", fault)
        file.write_text(f"#!{sys.executable}\n{text}")
        file.chmod(0o755)
    later = "int(os.path.exists(sys.argv[1] + '.wrong'))"
    (place / "job.py").write_text(JOB.replace("{wrong}", later))
    label = f"nearmetal-test{os.getpid()}-d{next(_numbers)}"
    used = backend or Native()

    def request(name: str) -> InstanceRequest:
        for directory in (place / name, place / "layers" / name):
            directory.mkdir()
        return InstanceRequest(
            label=f"{label}-{name}",
            hostname="nmd",
            environment=Environment(name="tested", backend=used.name, attachment=Attachment.HOST),
            cpus=HOST.cpus()[-1:],
            seat=None,
            binds=(place, tools.directory),
            scratch=place / name,
            layer=place / "layers" / name,
            calls=place / f"{name}-calls",
        )

    job = (sys.executable, *(str(place / name) for name in ("job.py", "record", "state")))
    if dmtcp is not None:
        job = ("sh", "-c", '"$@"; exit 1', "sh", *job)  # two processes, as mpirun and a rank
    event = RestartEvent(
        host=HOST,
        tools=tools,
        dmtcp=dmtcp or Dmtcp(directory=programs, version="5.0"),
        mpi=Mpi.OPENMPI,
        backend=used,
        here=request("here"),
        there=request("there"),
        images=place / "images",
        program=VerifiedProgram(argv=job, records=(place / "record",)),
        scratch=place / "scratch",
        log=place / "log",
        notify=notify,
    )
    return Case(event, label)


def nothing_is_left(case: Case) -> None:
    """Also no coordinator."""
    until(lambda: not processes.labelled(lambda own: own.startswith(case.label)), "the end of all processes")
    assert find(case.label) == ()


def test_it_goes_on_in_another_instance_from_copies(tmp_path: Path) -> None:
    seen: list[Phase] = []
    case = made(tmp_path, "", seen.append)
    done: Restored = case.event.run()
    assert seen == [Phase.CONNECT, Phase.DUMP, Phase.REMOVAL, Phase.COPY, Phase.RESTORE]
    assert set(done.phases.seconds) == set(seen) and done.passes >= 2
    assert 0 < done.stopped <= done.phases.total and done.size == done.sent > 0
    assert done.behind is not None and done.behind > 0
    nothing_is_left(case)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            "refused",
            "no checkpoint: dmtcp_command ended with 1: the coordinator refuses; the job goes on",
        ),
        ("lost", "no checkpoint: DMTCP has not written all processes; the job runs nowhere"),
        ("torn", "the job does not continue: false: bad image; the job runs nowhere"),
        ("wrong", "after the restore 1 pages of the program's memory are wrong"),
    ],
)
def test_a_fault_is_said_with_where_the_job_runs(tmp_path: Path, fault: str, said: str) -> None:
    case = made(tmp_path, fault)
    assert case.fate().startswith(said)
    nothing_is_left(case)


def test_a_copy_that_fails_is_said(tmp_path: Path) -> None:
    case = made(tmp_path, "")
    (tmp_path / "images" / "copies").write_text("")
    said = case.fate()
    assert said.startswith("the checkpoint is not copied: ") and said.endswith("; the job runs nowhere")
    nothing_is_left(case)
