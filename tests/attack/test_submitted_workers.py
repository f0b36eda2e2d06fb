"""Directories and notes that name workers: nothing from a directory is executed, and no ID reaches a command
that could mean anything else than the worker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nearmetal.api.engines import LOGS, _make_log_directory, _said
from nearmetal.api.submitted import cancel_workers, elsewhere, remember, submitted, worker_states
from nearmetal.cli.measure.engines import cancel
from nearmetal.engines import Job, State, load_engine
from nearmetal.engines.htcondor import HTCondor
from nearmetal.engines.local import Local
from nearmetal.engines.ssh import Ssh
from nearmetal.engines.tables import table_engine
from nearmetal.errors import NearmetalError, RecordsError, RunError, UnavailableError, UsageError
from nearmetal.host import Completed
from nearmetal.host.processes.birth import birth
from nearmetal.records import ResultsDirectory
from nearmetal.records.own_runs import Workers, note_run, own_run
from nearmetal.testing.fake_host import FakeHost

pytestmark = pytest.mark.attack
PROGRAMS = ("ssh", "squeue", "scancel", "condor_q", "condor_rm", "qstat", "qdel", "bjobs", "bkill", "flux")


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that exists as soon as a program of an engine was started, or a signal was sent."""
    made, programs = tmp_path / "marker", tmp_path / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text(f'#!/bin/sh\necho "$0 $*" >> {made}\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for module, name in ((os, "kill"), (signal, "pidfd_send_signal")):
        monkeypatch.setattr(module, name, lambda to, number: made.write_text(f"kill {to} {number}"))
    return made


@pytest.fixture
def directory(tmp_path: Path) -> ResultsDirectory:
    return ResultsDirectory.create(tmp_path / "results", "s", study_yaml="name: s\n")


def test_a_process_that_gets_the_pid_of_an_ended_worker_is_spared(
    marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    born = birth(os.getpid())
    open_process, others = os.pidfd_open, list[int]()

    def open_later(pid: int) -> int:
        others.append(pid)
        return open_process(pid)

    monkeypatch.setattr(os, "pidfd_open", open_later)
    monkeypatch.setattr("nearmetal.engines.local.birth", lambda pid: 1 if pid in others else born)
    Local().cancel(FakeHost(), [f"{os.getpid()}:{born}"], {})
    assert not marker.exists() and others


def job_in(logs: Path) -> Job:
    return Job(name="s", argv=("true",), workers=1, directory=logs, logs=logs, cpus=1, seconds=None)


BAIT = [
    {"engine": "ssh", "ids": ["n1:42:7"], "options": {"hosts": "n1", "config": "/tmp/with-a-ProxyCommand"}},
    {"engine": "local", "ids": ["-1:None"], "options": {}},
    {"engine": "slurm", "ids": ["--user=root"], "options": {}},
    {"engine": "no such engine", "ids": 7},
]


@pytest.mark.parametrize("bait", BAIT, ids=lambda b: str(b["engine"]))
def test_nothing_in_a_directory_from_elsewhere_is_executed(
    bait: dict[str, Any], marker: Path, directory: ResultsDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unpacked, it belongs to this user."""
    (directory.path / "engine.json").write_text(json.dumps(bait))
    assert worker_states(directory) == {}
    assert cancel(directory.path, directory.path.parent, dry_run=True) == 0
    said = capsys.readouterr()
    assert said.out == "" and "were submitted by another user" in said.err
    with pytest.raises(UsageError, match="were submitted by another user"):
        cancel(directory.path, directory.path.parent, dry_run=False)
    with pytest.raises(UsageError, match="whose workers you have submitted"):
        cancel(None, directory.path.parent, dry_run=False)  # type: ignore[arg-type]  # as by typer
    assert not marker.exists()


def test_a_note_is_good_for_one_directory_of_one_owner_with_one_study(
    tmp_path: Path, directory: ResultsDirectory, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers(engine="slurm", ids=("17",), options={})
    remember(directory, workers)
    found = own_run(directory.path)
    assert found is not None and found.workers == workers and elsewhere(directory) == ""
    (note,) = (tmp_path / "state/nearmetal/runs").iterdir()
    assert note.stat().st_mode & 0o777 == 0o600 and note.parent.stat().st_mode & 0o777 == 0o700
    copied = tmp_path / "copied"
    shutil.copytree(directory.path, copied)
    assert own_run(copied) is None and elsewhere(ResultsDirectory.open(copied))
    if os.geteuid() == 0:
        os.chown(directory.path, 12345, -1)
        assert own_run(directory.path) is None
        os.chown(directory.path, 0, -1)
    (directory.path / "study.yaml").write_text("name: another\n")
    assert own_run(directory.path) is None
    (directory.path / "study.yaml").write_text("name: s\n")
    assert own_run(directory.path) is not None
    note.parent.chmod(0o777)
    assert own_run(directory.path) is None, "anybody may have written the note"
    assert not marker.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"path": 1}', "{" * 100_000])
def test_a_corrupt_note_is_an_error_with_its_place(
    text: str, tmp_path: Path, directory: ResultsDirectory, marker: Path
) -> None:
    remember(directory, Workers(engine="slurm", ids=("17",), options={}))
    (note,) = (tmp_path / "state/nearmetal/runs").iterdir()
    note.write_text(text)
    with pytest.raises(RecordsError) as caught:
        worker_states(directory)
    assert caught.value.where == str(note) and not marker.exists()
    note_run(directory.path)
    assert worker_states(directory) == {}, "the next run replaces it"


def test_notes_do_not_grow_without_end_and_those_of_workers_stay(
    tmp_path: Path, directory: ResultsDirectory, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearmetal.records.own_runs.KEPT", 3)
    remember(directory, Workers(engine="slurm", ids=("17",), options={}))
    for number in range(5):
        note_run(ResultsDirectory.create(tmp_path / "results", f"n{number}", study_yaml="").path)
    assert len(list((tmp_path / "state/nearmetal/runs").iterdir())) == 4
    assert own_run(directory.path) is not None
    remember(directory, None)
    assert submitted(directory) is None and cancel_workers(directory) == 0


WRONG = {
    "local": ["-1:None", "1:7", "0:7", "-1:7", "42:None", "42:", "42", "4 2:7", "42:7\n", "٤٢:7"],
    "ssh": ["n1:-1:7", "n1:1:7", "n1:42:None", "n1:42:", "-oProxyCommand=x:42:7", "n1 x:42:7", "n1:4;x:7"],
    "slurm": ["--user=root", "-1", "0", "17 18", "17\n", "", "all"],
    "htcondor": ["-all", "0", "5 || true", "root", "5.0", ""],
    "pbs": ["all", "-W", "0", "8.srv;x", "8.-x", "@server"],
    "lsf": ["0", "-u", "12[1]", "-1"],
    "oar": ["0", "--sql", "3 4"],
    "sge": ["*", "-u", "4,5", "0"],
    "flux": ["--user=all", "-1", "f1A x", "", "all"],
}


@pytest.mark.parametrize(("engine", "wrong"), [(e, w) for e, ids in WRONG.items() for w in ids])
def test_an_id_that_is_none_reaches_no_command(
    engine: str, wrong: str, marker: Path, directory: ResultsDirectory
) -> None:
    """Even if it comes from the note."""
    remember(directory, Workers(engine=engine, ids=(wrong,), options={"hosts": "n1"}))
    for use in (worker_states, cancel_workers):
        with pytest.raises(RunError, match="is no ID of a worker"):
            use(directory)
    assert not marker.exists()


RIGHT = {
    "local": ["42:7"],
    "ssh": ["n1:42:7", "ssh://bench@10.0.0.1:2222:42:7", "bench@node-7.cluster:42:7", "DOM\\u@n:42:7"],
    **{"slurm": ["17"], "htcondor": ["5"], "lsf": ["12"], "oar": ["3"], "sge": ["4"]},
    **{"pbs": ["8.srv", "8", "8[].srv-1.domain"], "flux": ["f1A", "ƒ2fPyzZGT"]},
}


@pytest.mark.parametrize(("engine", "right"), [(e, i) for e, ids in RIGHT.items() for i in ids])
def test_ids_of_workers_are_taken(engine: str, right: str, marker: Path, directory: ResultsDirectory) -> None:
    remember(directory, Workers(engine=engine, ids=(right,), options={"hosts": right.rsplit(":", 2)[0]}))
    worker_states(directory)


class Unborn(FakeHost):
    """A machine on which a process has ended before anybody looks."""

    def start(self, argv: Sequence[str], **settings: Any) -> Any:
        ended = subprocess.Popen(["true"])
        ended.wait()
        return ended


def test_a_worker_that_ended_at_once_is_an_error_and_no_process_is_signalled(
    tmp_path: Path, marker: Path
) -> None:
    with pytest.raises(RunError, match="worker 1 ended at once"):
        Local().submit(Unborn(), job_in(tmp_path), {})
    assert not marker.exists()


def test_a_machine_of_a_worker_is_no_option_of_ssh(tmp_path: Path) -> None:
    host = FakeHost()
    for name in ("-oProxyCommand=x", "n 1", "n;1", ""):
        with pytest.raises(UsageError):
            Ssh().submit(host, job_in(tmp_path), {"hosts": name})
    assert host.calls == []


class HereAsThere(FakeHost):
    """A machine reached by ssh that is this one. Its connections fail after `good` commands."""

    good = 100

    def run(self, argv: Sequence[str], **settings: Any) -> Completed:
        self.good -= 1
        if self.good < 0:
            return Completed(argv=tuple(argv), returncode=255, stdout="", stderr="no route", seconds=0.0)
        done = subprocess.run(["/bin/sh", "-c", argv[-1]], capture_output=True, text=True, check=False)
        return Completed(
            argv=tuple(argv),
            returncode=done.returncode,
            stdout=done.stdout,
            stderr=done.stderr,
            seconds=0.0,
        )


def test_a_remote_process_is_ended_only_if_it_is_the_worker(tmp_path: Path) -> None:
    """Its name tries to pass for the fields behind it. Another process may have the PID of a worker."""
    program = tmp_path / "a) Z 1 (b"
    shutil.copy("/bin/sleep", program)
    process = subprocess.Popen([program, "1000"])
    try:
        while b"Z 1" not in Path(f"/proc/{process.pid}/comm").read_bytes():
            time.sleep(0.001)
        born, host, ssh = birth(process.pid), HereAsThere(), Ssh()
        assert born is not None
        worker, other = f"n:{process.pid}:{born}", f"n:{process.pid}:{born + 1}"
        assert ssh.states(host, [worker, other], {}) == {worker: State.RUNNING, other: State.ENDED}
        ssh.cancel(host, [other], {})
        assert ssh.states(host, [worker], {}) == {worker: State.RUNNING}
        host.good = 0
        assert ssh.states(host, [worker], {}) == {worker: State.UNKNOWN}, "unreachable"
        host.good = 1
        ssh.cancel(host, [worker], {})
        assert process.wait() == -signal.SIGTERM
    finally:
        process.kill()
    assert ssh.states(HereAsThere(), [worker], {}) == {worker: State.ENDED}


class Scheduler(FakeHost):
    """A batch system that answers each command in one way."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        super().__init__(programs={name: name for name in ("qsub", "bsub", "flux")})
        self.answer_ = Completed(argv=(), returncode=code, stdout=stdout, stderr=stderr, seconds=0.0)

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Completed:
        return self.answer_


DOWN = [
    ("slurm", "17", 1, "", "slurm_load_jobs error: Unable to contact slurm controller"),
    ("slurm", "17", 0, "17_1 EXPEDITING\n", ""),
    ("htcondor", "5", 1, "", "Failed to fetch ads from schedd"),
    ("htcondor", "5", 0, "5.0 9\n", ""),
    ("htcondor", "5", 0, "-- warning: no answer yet\n", ""),
    ("pbs", "8.srv", 111, "", "Connection refused\nqstat: cannot connect to server srv"),
    ("pbs", "8.srv", 0, "Job Id: 8.srv\n    job_state = M\n", ""),
    ("lsf", "12", 255, "", "LSF is down. Please wait ..."),
    ("lsf", "12", 0, "-\n", ""),
    ("sge", "4", 1, "", "error: commlib error: got select error (Connection refused)"),
    ("sge", "4", 0, "  4 0.5 nearmetal u new 11/25/2026\n", ""),
    ("oar", "3", 255, "", "DBI connect failed: could not connect to server"),
    ("oar", "3", 0, "3: Strange\n", ""),
    ("flux", "f1A", 1, "", "flux-jobs: ERROR: Unable to connect to Flux: broker socket not found"),
    ("flux", "f1A", 0, "NEW\n", ""),
]


@pytest.mark.parametrize(("engine", "worker", "code", "out", "err"), DOWN)
def test_a_scheduler_that_is_down_has_ended_no_worker(
    engine: str,
    worker: str,
    code: int,
    out: str,
    err: str,
    directory: ResultsDirectory,
    monkeypatch: pytest.MonkeyPatch,
    marker: Path,
) -> None:
    host = Scheduler(code, out, err)
    assert set(load_engine(engine).states(host, [worker], {}).values()) == {State.UNKNOWN}
    monkeypatch.setattr("nearmetal.api.submitted.LocalHost", lambda: host)
    remember(directory, Workers(engine=engine, ids=(worker,), options={}))
    asked = len(host.calls)
    with pytest.raises(UnavailableError, match="does not know the states of 1 of 1 workers; all were told"):
        cancel_workers(directory)
    assert len(host.calls) == asked + 2 and host.calls[-1][-1] == worker


GONE = [
    ("slurm", "17", 1, "", "slurm_load_jobs error: Invalid job id specified"),
    ("slurm", "17", 0, "17_1 COMPLETED\n", ""),
    ("htcondor", "5", 0, "", ""),
    ("pbs", "8.srv", 153, "", "qstat: Unknown Job Id 8.srv"),
    ("pbs", "8.srv", 0, "Job Id: 8.srv\n    job_state = F\n", ""),
    ("lsf", "12", 255, "", "Job <12> is not found"),
    ("lsf", "12", 0, "DONE\n", ""),
    ("sge", "4", 0, "", ""),
    ("sge", "4", 0, "job-ID prior name user state\n----\n 44 0.5 nearmetal u r 11/25/2026\n", ""),
    ("oar", "3", 0, "3: Terminated\n", ""),
    ("oar", "3", 0, "", ""),
    ("flux", "f1A", 0, "INACTIVE\n", ""),
    ("flux", "f1A", 1, "", "flux-jobs: ERROR: JobID f1A unknown"),
]


@pytest.mark.parametrize(("engine", "worker", "code", "out", "err"), GONE)
def test_a_worker_that_has_left_its_queue_has_ended(
    engine: str, worker: str, code: int, out: str, err: str
) -> None:
    found = load_engine(engine).states(Scheduler(code, out, err), [worker], {})
    assert set(found.values()) == {State.ENDED}


@pytest.mark.parametrize(("name", "said"), [("flux", "--all\n"), ("pbs", "all\n"), ("lsf", "Job <0>\n")])
def test_what_a_submit_command_prints_is_no_id_because_it_prints_it(
    name: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(NearmetalError, match="printed no number of a job"):
        table_engine(name).submit(Scheduler(0, said, ""), job_in(tmp_path), {})


@pytest.mark.parametrize("dagman", ["no", "yes"])
def test_htcondor_publishes_no_secret_of_the_environment(
    dagman: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody who may read its queue sees what a job gets."""
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    monkeypatch.setenv("LC_ALL", "it's 1")
    monkeypatch.setenv("LANG", "$(secret)\nqueue")
    host = Submitting()
    HTCondor().submit(host, job_in(tmp_path), {"dagman": dagman})
    (argv,) = host.calls
    text = str(host.stdin) + "".join(file.read_text() for file in tmp_path.glob("*.sub"))
    assert "secret" not in text + str(argv) and "getenv" not in text and "'LC_ALL=it''s 1'" in text
    assert f"PATH={os.environ['PATH']}" in text and "HOME=" in text
    assert dagman == "no" or argv[:2] == ("env", "-i")


def test_files_for_htcondor_replace_planted_links(tmp_path: Path) -> None:
    logs, outside = tmp_path / "workers", tmp_path / "outside"
    logs.mkdir()
    outside.write_text("as it was")
    for name in ("worker.sub", "workers.dag"):
        (logs / name).symlink_to(outside)
    HTCondor().submit(Submitting(), job_in(logs), {"dagman": "yes"})
    assert outside.read_text() == "as it was"
    for file in logs.iterdir():
        assert file.lstat().st_mode == 0o100600


class Submitting(FakeHost):
    """A submit node of HTCondor."""

    def __init__(self) -> None:
        super().__init__(programs={"condor_submit": "/usr/bin/condor_submit"})
        self.stdin: str | None = None

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Completed:
        self.stdin = stdin
        said = "submitted to cluster 7.\n" if "env" in argv else "7.0 - 7.0\n"
        return Completed(argv=argv, returncode=0, stdout=said, stderr="", seconds=0.0)


def test_output_of_workers_is_written_to_no_other_place(tmp_path: Path, directory: ResultsDirectory) -> None:
    """Batch systems append to the file that a name leads to."""
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    logs = directory.path / LOGS
    logs.symlink_to(tmp_path)
    with pytest.raises(RecordsError, match="is not a directory"):
        _make_log_directory(directory.path)
    logs.unlink()
    assert _make_log_directory(directory.path) == logs
    plants = (logs.joinpath("1.out").symlink_to, logs.joinpath("2.out").hardlink_to)
    for name, plant in zip(("1.out", "2.out"), plants, strict=True):
        plant(outside)
        with pytest.raises(RecordsError, match="is not a file of its own"):
            _make_log_directory(directory.path)
        assert _said(directory) == ("" if name == "1.out" else "as it was")
        (logs / name).unlink()
    os.mkfifo(logs / "workers.dag.dagman.out")
    with pytest.raises(RecordsError, match="is not a file of its own"):
        _make_log_directory(directory.path)
    assert _said(directory) == ""
