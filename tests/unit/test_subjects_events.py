"""Which events a study asks for, and how often."""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Timer
from types import SimpleNamespace

import pytest

from nearmetal.environments import Tools
from nearmetal.environments.native import Native
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.environments.registry import get_backend
from nearmetal.errors import TrialFailedError
from nearmetal.host import LocalHost
from nearmetal.host.counters.procfiles import proportional_set
from nearmetal.lifecycle import Method
from nearmetal.model.study import Design, EventSubject, Mode, MoveSubject, SubjectFacts
from nearmetal.node.arms.instances import Instances
from nearmetal.subjects.density import DENSITY
from nearmetal.subjects.events import guest_jobs, tcp_job
from nearmetal.subjects.events.guest_jobs import GuestJob
from nearmetal.subjects.events.progress import ProgramProgress
from nearmetal.subjects.events.rows import reported
from nearmetal.subjects.events.tcp_job import AttachedRank, TcpJob
from nearmetal.subjects.events.verified import VerifiedProgram
from nearmetal.subjects.exec import EXEC
from nearmetal.subjects.migrate import MIGRATE, Migrate
from nearmetal.subjects.start_stop import START, STOP
from nearmetal.testing.fake_host import FakeProcess

DESIGN = Design(baselines=("n",), margin=0.03, confidence=0.95, seed=1, slices=8, runs=3)
PLAIN = Design(baselines=("n",), margin=0.03, confidence=0.95, seed=1, slices=8, runs=3, mode=Mode.PLAIN)


@pytest.mark.parametrize("facts", [START, STOP, EXEC])
def test_events_are_counted_like_slices_or_program_runs(facts: SubjectFacts) -> None:
    assert EventSubject(name="w", facts=facts).count_in(DESIGN) == 8
    assert EventSubject(name="w", facts=facts).count_in(PLAIN) == 3
    assert EventSubject(name="w", facts=facts, count=20).count_in(DESIGN) == 20


def test_a_density_is_of_so_many_instances() -> None:
    assert EventSubject(name="w", facts=DENSITY).count_in(DESIGN) == DENSITY.usual == 10
    assert EventSubject(name="w", facts=DENSITY, count=100).count_in(PLAIN) == 100


def test_who_cannot_move_an_instance_says_so() -> None:
    moved = MoveSubject(name="m", facts=MIGRATE, method=Method.POSTCOPY)
    assert moved.count_in(DESIGN) == moved.count_in(PLAIN) == MIGRATE.usual == 2
    assert Migrate.unable(moved, Qemu()) is None
    assert (Migrate.unable(moved, Native()) or "").startswith("native has only the methods criu")
    nspawn = Migrate.unable(moved, get_backend("nspawn")) or ""
    assert nspawn.startswith("its instances (nspawn) cannot be moved while they run: systemd-nspawn has ")
    assert nspawn.endswith("; use backend runc, lxc or namespaces")
    other = Migrate.unable(replace(moved, method=Method.CRIU), Qemu())
    assert other == "qemu has only the methods precopy, offline, postcopy, multifd"


def test_the_proportional_set_of_a_process() -> None:
    rollup = b"00400000-7fff [rollup]\nRss:            1820 kB\nPss:              98 kB\nPss_Dirty: 60 kB\n"
    assert proportional_set(rollup) == 98 * 1024
    assert proportional_set(b"") is None


def test_a_downtime_of_less_than_a_millisecond_is_not_left_out() -> None:
    """QEMU reports whole milliseconds; without its zeros the others would be too long."""
    assert reported([0.0, 0.003, None]) == [0.0005, 0.003]
    assert reported([0.0, None]) == reported([None]) == []


def test_a_program_whose_connections_were_cut_gets_as_much_time_again(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_bytes(struct.pack("=5Q", 7, 0, 0, 0, 0))
    program = VerifiedProgram(argv=(), records=(record,))
    begin = time.monotonic()
    step = Timer(2.5, record.write_bytes, [struct.pack("=5Q", 8, 0, 0, 0, 0)])
    step.start()
    assert program.goes_on(away=600.0) and time.monotonic() - begin < 600
    step.join()


def test_slow_job_is_not_ended_while_it_takes_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on emulated nodes: each step comes within the limit, and all of them together take longer."""
    output, now = tmp_path / "rank0.txt", [0.0]
    output.write_text('{"step": 0}\n')

    def passes(_: float) -> None:
        now[0] += 0.9 * tcp_job.LIMIT
        if now[0] < 5 * tcp_job.LIMIT:
            with output.open("a") as file:
                file.write(f'{{"step": {round(now[0])}}}\n')

    monkeypatch.setattr(tcp_job, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=passes))
    job = TcpJob(
        host=LocalHost(),
        tools=Tools(directory=Path("/tools")),
        instances=Instances(),
        addresses=(),
        memory=0,
        rate=0,
        directory=tmp_path,
        stack=ExitStack(),
    )
    own = AttachedRank(instances=job.instances, label="l", process=FakeProcess(()), output=output)
    job.attached.append(own)
    job.go_on(round(3 * tcp_job.LIMIT))
    with pytest.raises(TrialFailedError, match="the job does not continue: no step in 120 s"):
        job.go_on(round(30 * tcp_job.LIMIT))


def test_a_job_over_slow_guests_is_given_as_long_as_they_may_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, steps = [0.0], [0]

    def passes(_: float) -> None:
        now[0] += 0.9 * limit
        steps[0] += now[0] < 5 * limit

    def progress(job: GuestJob) -> ProgramProgress:
        return ProgramProgress(steps=steps[0], passes=steps[0] // 4)

    limit = 3 * guest_jobs.LIMIT
    monkeypatch.setattr(guest_jobs, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=passes))
    monkeypatch.setattr(GuestJob, "progress", progress)
    program = VerifiedProgram(argv=(), records=())
    job = GuestJob(guests=tuple, program=program, process=FakeProcess(()), output=tmp_path, limit=limit)
    assert job.until(lambda p: p.passes >= 1, "does not start its work").passes == 1
    with pytest.raises(
        TrialFailedError, match=f"the job does not continue after the move: no step in {limit:g} s"
    ):
        job.go_on(30)
