"""Engines: the command lines that they run, what they make of the answers, and how options are refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from nearmetal.api.engines import Fleet, run_by_engine
from nearmetal.api.studies import study_from
from nearmetal.api.submitted import remember
from nearmetal.cli.measure.engines import fleet_of
from nearmetal.cli.options import Require, RunOptions
from nearmetal.cli.read.results import status
from nearmetal.engines import Job, State, parse_options
from nearmetal.engines.htcondor import HTCondor, description, quoted
from nearmetal.engines.local import Local
from nearmetal.engines.reach import ssh_words
from nearmetal.engines.slurm import Slurm
from nearmetal.engines.ssh import Ssh
from nearmetal.engines.tables import table_engine
from nearmetal.errors import RecordsError, RunError, UnavailableError, UsageError
from nearmetal.host import Completed
from nearmetal.host.processes.birth import birth
from nearmetal.model.change import replace
from nearmetal.model.study import RealNodes
from nearmetal.node.progress import NullProgress
from nearmetal.records import ResultsDirectory
from nearmetal.records.own_runs import Workers
from nearmetal.run.run import Order
from nearmetal.testing.fake_host import FakeHost

CONFIG = "Configuration data as of today\nMaxArraySize            = 1001\nMaxJobCount = 10000\n"
JOB = Job(
    name="nearmetal-s",
    argv=("python3", "-m", "nearmetal", "run-block", "/r/a b"),
    workers=2,
    directory=Path("/home/u"),
    logs=Path("/r/workers"),
    cpus=4,
    seconds=3601.0,
)


class Batch(FakeHost):
    """A machine whose batch system answers by a table of first words of a command."""

    def __init__(self, answers: Mapping[tuple[str, ...], str | int]) -> None:
        super().__init__(programs={argv[0]: f"/usr/bin/{argv[0]}" for argv in answers})
        self.answers, self.stdin, self.directories = answers, list[str | None](), list[Path | None]()

    def run(self, argv: Sequence[str], *, cwd: Path | None = None, **settings: Any) -> Completed:
        self.directories.append(cwd)
        return super().run(argv, cwd=cwd, **settings)

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Completed:
        self.stdin.append(stdin)
        words = max((w for w in self.answers if argv[: len(w)] == w), key=len)
        answer = self.answers[words]
        text, code = (answer, 0) if isinstance(answer, str) else ("", answer)
        stderr = "slurm_load_jobs error: Invalid job id specified" if code else ""
        return Completed(argv=argv, returncode=code, stdout=text, stderr=stderr, seconds=0.0)


def test_slurm_submits_an_array_whose_script_becomes_the_worker() -> None:
    host = Batch(
        {("sbatch",): "17;cluster\n", ("squeue",): "17_1 RUNNING\n17_2 PENDING\n", ("scontrol",): CONFIG}
    )
    assert Slurm().submit(host, JOB, {"extra": "-p 'my part'"}) == ("17",)
    (argv,) = host.calls
    assert {"--array=1-2", "--exclusive", "--requeue", "--nodes=1", "--cpus-per-task=4"} <= set(argv)
    assert {"--time=61", "--output=/r/workers/%a.out", "-p", "my part"} <= set(argv)
    assert host.stdin == ["#!/bin/sh\ncd /home/u || exit 1\nexec python3 -m nearmetal run-block '/r/a b'\n"]
    assert Slurm().states(host, ["17"], {}) == {"17_1": State.RUNNING, "17_2": State.WAITING}
    gone = Batch({("squeue",): 1})
    assert Slurm().states(gone, ["17"], {}) == {"17": State.ENDED}
    assert not any(w.startswith("--time") for w in _submitted(Slurm(), replace(JOB, seconds=None)))
    with pytest.raises(UnavailableError, match="no sbatch here"):
        Slurm().submit(FakeHost(missing=["sbatch"]), JOB, {})


def _submitted(engine: Slurm, job: Job) -> tuple[str, ...]:
    host = Batch({("sbatch",): "1\n", ("scontrol",): CONFIG})
    engine.submit(host, job, {})
    return host.calls[-1]


class Arrays(Batch):
    """A Slurm that numbers its jobs, and refuses arrays that are too large and the job with a number."""

    def __init__(self, config: str, refused: int = 0, most: int = 1000) -> None:
        super().__init__({("sbatch",): "", ("scontrol",): config, ("scancel",): ""})
        self.jobs, self.refused, self.most = 0, refused, most

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Completed:
        if argv[0] != "sbatch":
            return super().answer(argv, stdin)
        tasks = next(int(w.rpartition("-")[2]) for w in argv if w.startswith("--array="))
        if tasks > self.most:
            return Completed(argv=argv, returncode=1, stdout="", stderr="Invalid job array", seconds=0.0)
        self.jobs += 1
        code = int(self.jobs == self.refused)
        return Completed(argv=argv, returncode=code, stdout=f"{self.jobs}\n", stderr="no", seconds=0.0)


def test_more_workers_than_an_array_of_slurm_holds_are_several_arrays() -> None:
    host = Arrays(CONFIG.replace("1001", "4"), most=3)
    assert Slurm().submit(host, replace(JOB, workers=8), {}) == ("1", "2", "3")
    words = [[w for w in argv if w.startswith(("--array", "--output"))] for argv in host.calls[2:]]
    assert words == [
        ["--array=1-3", "--output=/r/workers/%a.out"],
        ["--array=1-3", "--output=/r/workers/2-%a.out"],
        ["--array=1-2", "--output=/r/workers/3-%a.out"],
    ]
    whole = Arrays(CONFIG)
    assert Slurm().submit(whole, replace(JOB, workers=1000), {}) == ("1",)
    assert len(whole.calls) == 1, "one command submits them, as a user would"
    refusing = Arrays(CONFIG.replace("1001", "4"), refused=2, most=3)
    with pytest.raises(RunError):
        Slurm().submit(refusing, replace(JOB, workers=8), {})
    assert refusing.calls[-1] == ("scancel", "--quiet", "1"), "what was submitted is taken back"
    with pytest.raises(RunError, match="allows no job arrays"):
        Slurm().submit(Arrays(CONFIG.replace("1001", "1"), most=0), JOB, {})
    with pytest.raises(RunError, match="names no MaxArraySize"):
        Slurm().submit(Arrays("ClusterName = c\n", most=0), JOB, {})
    with pytest.raises(RunError, match="sbatch ended with 1: no"):
        Slurm().submit(Arrays(CONFIG, refused=1), JOB, {})


class Gone(Batch):
    """A batch system whose controller does not answer."""

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Completed:
        return Completed(argv=argv, returncode=1, stdout="", stderr="Unable to contact", seconds=0.0)


@pytest.mark.parametrize("engine", [Slurm(), HTCondor()])
def test_workers_of_a_controller_that_does_not_answer_may_go_on(engine: Slurm | HTCondor) -> None:
    assert engine.states(Gone({}), ["17"], {}) == {"17": State.UNKNOWN}


def test_htcondor_describes_the_workers_in_its_own_quotes() -> None:
    host = Batch(
        {("condor_submit",): "5.0 - 5.1\n", ("condor_q",): "5.0 2\n5.1 1\n", ("condor_rm",): "removed\n"}
    )
    assert HTCondor().submit(host, JOB, {}) == ("5",)
    text = host.stdin[0]
    assert (
        text is not None and "'/r/workers/$(Process).out' python3 -m nearmetal run-block '/r/a b'\"" in text
    )
    assert "queue 2\n" in text and "request_cpus = 4" in text and "executable = /bin/sh\n" in text
    assert "\noutput" not in text, "it would be emptied when a worker is started again"
    assert HTCondor().states(host, ["5"], {}) == {"5.0": State.RUNNING, "5.1": State.WAITING}
    assert HTCondor().states(Batch({("condor_q",): ""}), ["5"], {}) == {"5": State.ENDED}
    assert (
        "condor_q",
        "-constraint",
        "ClusterId == 5 || DAGManJobId == 5",
        "-af:j",
        "JobStatus",
    ) in host.calls
    HTCondor().cancel(host, ["5"], {})
    assert quoted(["it's", '"so"', ""]) == "\"'it''s' '\"\"so\"\"' ''\""
    assert "allowed_job_duration" not in description(replace(JOB, seconds=None), "")


def test_dagman_submits_the_workers_on_request(tmp_path: Path) -> None:
    said = "Submitting job(s).\n1 job(s) submitted to cluster 7.\n------\n"
    host = Batch({("condor_submit",): "", ("env",): said})
    logs = tmp_path / "my results"
    logs.mkdir()
    job = replace(JOB, logs=logs)
    assert HTCondor().submit(host, job, {"dagman": "yes"}) == ("7",)
    (argv,) = host.calls
    assert argv[:2] == ("env", "-i") and f"PATH={os.environ['PATH']}" in argv
    assert argv[-5:] == ("condor_submit_dag", "-force", "-batch-name", "nearmetal-s", "workers.dag")
    assert host.directories == [logs], "where DAGMan runs, and finds the files"
    graph = (logs / "workers.dag").read_text().splitlines()
    one = logs / "worker.sub"
    assert graph[:2] == ["JOB w1 worker.sub", 'VARS w1 worker="1"'] and len(graph) == 4
    assert f"'{logs}/$(worker).out'" in one.read_text() and "queue 1\n" in one.read_text()
    with pytest.raises(UsageError, match="neither yes nor no"):
        HTCondor().submit(host, job, {"dagman": "1"})
    with pytest.raises(RunError, match="no number of a cluster"):
        HTCondor().submit(Batch({("condor_submit",): "", ("env",): "?"}), job, {"dagman": "yes"})


@pytest.mark.parametrize(
    ("lines", "states"),
    [
        ("7.0 1\n", {"7.0": State.WAITING}),
        ("7.0 2\n", {"7.0": State.WAITING}),
        ("7.0 2\n8.0 2\n9.0 1\n", {"8.0": State.RUNNING, "9.0": State.WAITING}),
        ("7.0 2\n8.0 5\n9.0 5\n", {"8.0": State.ENDED, "9.0": State.ENDED}),
        ("7.0 5\n", {"7.0": State.ENDED}),
        ("", {"7": State.ENDED}),
    ],
)
def test_dagman_itself_is_no_worker(lines: str, states: dict[str, State]) -> None:
    assert HTCondor().states(Batch({("condor_q",): lines}), ["7"], {"dagman": "yes"}) == states


@pytest.mark.parametrize(
    ("name", "answers", "submitted", "script", "ids", "state"),
    [
        (
            "flux",
            {("flux", "submit"): "f1A\n", ("flux", "jobs"): "RUN\n", ("flux", "cancel"): ""},
            ("--time-limit=61m", "--exclusive", "python3", "/r/a b"),
            False,
            ("f1A", "f1A"),
            State.RUNNING,
        ),
        (
            "pbs",
            {("qsub",): "8.srv\n", ("qstat",): "Job Id: 8.srv\n    job_state = Q\n", ("qdel",): ""},
            ("select=1:ncpus=4", "walltime=1:01:00", "place=excl"),
            True,
            ("8.srv", "8.srv"),
            State.WAITING,
        ),
        (
            "lsf",
            {
                ("bsub",): "Job <12> is submitted to default queue <normal>.\n",
                ("bjobs",): "DONE\n",
                ("bkill",): "",
            },
            ("-n", "4", "-x", "-W", "61"),
            True,
            ("12", "12"),
            State.ENDED,
        ),
        (
            "oar",
            {
                ("oarsub",): "[ADMISSION RULE] ...\nOAR_JOB_ID=3\n",
                ("oarstat",): "3: Running\n",
                ("oardel",): "",
            },
            ("/nodes=1,walltime=1:01:00", "idempotent", "python3 -m nearmetal run-block '/r/a b'"),
            False,
            ("3", "3"),
            State.RUNNING,
        ),
        (
            "sge",
            {
                ("qsub",): 'Your job 4 ("nearmetal-s") has been submitted\n',
                ("qstat",): "job-ID prior name user state\n----\n  4 0.5 nearmetal u qw 11/25/2026\n",
                ("qdel",): "",
            },
            ("exclusive=true", "h_rt=1:01:00", "/bin/sh"),
            True,
            ("4", "4"),
            State.WAITING,
        ),
    ],
)
def test_engines_of_the_table(
    name: str,
    answers: Mapping[tuple[str, ...], str],
    submitted: Sequence[str],
    script: bool,
    ids: tuple[str, ...],
    state: State,
) -> None:
    engine, host = table_engine(name), Batch(answers)
    assert engine.submit(host, JOB, {"extra": "-q 'a b'"}) == ids
    assert set(submitted) <= set(host.calls[0]) and {"-q", "a b"} <= set(host.calls[0])
    assert "/r/workers/2.out" in " ".join(host.calls[1]) and not any("{" in w for w in host.calls[0])
    assert host.stdin == [JOB.script() if script else None] * 2
    assert engine.states(host, ids[:1], {}) == {ids[0]: state}
    engine.cancel(host, ids[:1], {})
    assert host.calls[-1][-1] == ids[0]
    unlimited = Batch(answers)
    engine.submit(unlimited, replace(JOB, seconds=None), {})
    assert not any("1:01:00" in w or "61" in w for w in unlimited.calls[0])
    refused = Batch(dict.fromkeys(answers, 1))
    assert engine.states(refused, ids[:1], {}) == {ids[0]: State.UNKNOWN}


def test_a_table_engine_takes_back_what_it_submitted_before_a_refusal() -> None:
    host = Batch({("qsub",): "", ("qdel",): ""})
    with pytest.raises(RunError, match="printed no number of a job"):
        table_engine("pbs").submit(host, JOB, {})


def test_ssh_shares_connections_checks_keys_and_names_the_machine() -> None:
    host = Batch({("ssh",): "42:7000\n"})
    options = {"hosts": "n1,n2", "config": "/c"}
    ids = Ssh().submit(host, JOB, options)
    assert ids == ("n1:42:7000", "n2:42:7000")
    first = next(call for call in host.calls if call[-2] == "n1")
    assert first[:3] == ("ssh", "-F", "/c")
    assert {"StrictHostKeyChecking=yes", "ControlMaster=auto", "BatchMode=yes"} <= set(first)
    assert "setsid nohup python3 -m nearmetal run-block '/r/a b' --node n1 >>/r/workers/1.out" in first[-1]
    running = Batch({("ssh",): "Welcome to n1\nworker S 7000\n"})
    assert Ssh().states(running, ids[:1], options) == {ids[0]: State.RUNNING}
    for text in ("worker  \n", "worker S 7001\n", "worker Z 7000\n"):
        assert Ssh().states(Batch({("ssh",): text}), ids[:1], options) == {ids[0]: State.ENDED}
    with pytest.raises(RunError, match="its worker ended at once") as early:
        Ssh().submit(Batch({("ssh",): "Welcome to n1\n42:\n"}), JOB, options)
    assert early.value.remedy == "read /r/workers/1.out there", "it ended before its start time was read"
    unreachable = Batch({("ssh",): 255})
    assert Ssh().states(unreachable, ids[:1], options) == {ids[0]: State.UNKNOWN}
    with pytest.raises(RunError) as caught:
        Ssh().submit(unreachable, JOB, options)
    assert caught.value.where == "n1"
    with pytest.raises(UsageError, match="as many different machines"):
        Ssh().submit(host, JOB, {"hosts": "n1"})
    with pytest.raises(UsageError, match="n1 is named twice"):
        Ssh().submit(host, JOB, {"hosts": "n1,n1"})
    named = {"hosts": "a=ssh://bench@10.0.0.1:2222,b"}
    assert Ssh().nodes(named) == ("a", "b")
    assert Ssh().submit(host, JOB, named) == ("a:42:7000", "b:42:7000")
    (named_call,) = (call for call in host.calls if call[-2] == "ssh://bench@10.0.0.1:2222")
    assert named_call[-1].count("--node a ") == 1
    assert ssh_words("n1", {}, Path("/run/x"))[0] == "ssh"


class Slow(Batch):
    """A machine from which each of three others is reached once all three are being asked."""

    def __init__(self) -> None:
        super().__init__({("ssh",): "42:7000\n"})
        self.together = Barrier(3, timeout=60)

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Completed:
        self.together.wait()
        return super().answer(argv, stdin)


def test_machines_are_reached_by_ssh_at_the_same_time() -> None:
    """One that does not answer must not delay the others by its time limit."""
    host, options, job = Slow(), {"hosts": "n1,n2,n3"}, replace(JOB, workers=3)
    ids = Ssh().submit(host, job, options)
    assert ids == ("n1:42:7000", "n2:42:7000", "n3:42:7000")
    assert list(Ssh().states(host, ids, options)) == list(ids)


def test_workers_by_ssh_are_ended_if_one_machine_cannot_be_reached() -> None:
    host = Batch({("ssh",): "42:7000\n"})
    answer = host.answer

    def answered(argv: tuple[str, ...], stdin: str | None) -> Completed:
        if argv[-2] == "n2":
            return Completed(argv=argv, returncode=255, stdout="", stderr="no route", seconds=0.0)
        return answer(argv, stdin)

    host.answer = answered  # type: ignore[method-assign]  # one machine of three
    with pytest.raises(RunError) as caught:
        Ssh().submit(host, replace(JOB, workers=3), {"hosts": "n1,n2,n3"})
    assert caught.value.where == "n2"
    killed = {call[-2] for call in host.calls if "kill -TERM 42" in call[-1]}
    assert killed == {"n1", "n3"}


def test_local_workers_need_cpus_of_their_own() -> None:
    with pytest.raises(UsageError, match="do not fit") as caught:
        Local().submit(FakeHost(cpus=(0, 1, 2)), JOB, {})
    assert caught.value.remedy == "--workers 1"
    other = f"{os.getpid()}:1"
    assert Local().states(FakeHost(), [other], {}) == {other: State.ENDED}


def test_an_option_that_an_engine_lacks_is_refused_with_those_that_it_has() -> None:
    assert parse_options("ssh", Ssh(), ["hosts=a,b"]) == {"hosts": "a,b"}
    for words in (["host=a"], ["hosts"]):
        with pytest.raises(UsageError, match="has no such option") as caught:
            parse_options("ssh", Ssh(), words)
        assert "hosts=" in str(caught.value.remedy)


@pytest.mark.parametrize(("engine", "program"), [(Slurm(), "sbatch"), (table_engine("pbs"), "qsub")])
def test_quotes_of_extra_options_that_do_not_match_are_a_mistake(engine: Any, program: str) -> None:
    with pytest.raises(UsageError, match="--engine-option extra=-q 'short: No closing quotation"):
        engine.submit(Batch({(program,): "1\n"}), JOB, {"extra": "-q 'short"})


def test_an_inventory_gives_one_worker_for_each_node(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text("nodes: {n1: {}, n2: {address: 10.0.0.2}, n3: {}}\n")
    fleet = fleet_of(RunOptions(engine="ssh", nodes=str(file)))
    assert fleet is not None and fleet.workers == 3 and fleet.nodes == ("n1", "n2", "n3")
    assert fleet.options["hosts"] == "n1,n2=10.0.0.2,n3"
    fewer = fleet_of(RunOptions(engine="ssh", workers=2, nodes=str(file)))
    assert fewer is not None and fewer.nodes == ("n1", "n2")
    chosen = fleet_of(RunOptions(engine="slurm", workers=2))
    assert chosen is not None and chosen.nodes == ()
    with pytest.raises(UsageError, match="slurm chooses the nodes itself"):
        fleet_of(RunOptions(engine="slurm", nodes=str(file)))
    with pytest.raises(UsageError, match="both name the nodes"):
        fleet_of(RunOptions(engine="ssh", engine_option=["hosts=n1"], nodes=str(file)))
    with pytest.raises(UsageError, match="need an engine"):
        fleet_of(RunOptions(nodes=str(file)))
    with pytest.raises(UsageError, match="need an engine"):
        fleet_of(RunOptions(lease="2m"))
    with pytest.raises(UsageError, match="--require does not apply to the workers"):
        fleet_of(RunOptions(engine="ssh", require=Require.KVM, nodes=str(file)))
    assert fleet_of(RunOptions()) is None


def test_a_run_whose_workers_have_run_no_round_yet_has_a_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ResultsDirectory.create(tmp_path, "s", study_yaml="name: s\n")
    living = f"{os.getpid()}:{birth(os.getpid())}"
    remember(found, Workers(engine="local", ids=(living,), options={}))
    assert status(found.path, tmp_path, json=False) == 0
    assert capsys.readouterr().out == f"{found.path}: no round yet\nworker {living}: running\n"
    remember(found, Workers(engine="local", ids=(f"{os.getpid()}:1",), options={}))
    with pytest.raises(RecordsError, match="ended before its first round"):
        status(found.path, tmp_path, json=False)


def test_hosts_by_an_option_give_one_worker() -> None:
    fleet = fleet_of(RunOptions(engine="ssh", engine_option=["hosts=n1,n2"]))
    assert fleet is not None and fleet.workers == 1 and fleet.nodes == ("n1",)


@pytest.mark.parametrize("resumed", [False, True])
def test_no_engine_runs_workers_on_the_machines_of_a_placement(tmp_path: Path, resumed: bool) -> None:
    study = study_from("quick", 7)
    study = replace(study, design=replace(study.design, nodes=RealNodes(inventory="hosts.yaml")))
    fleet = Fleet(engine="nobody", workers=2, options={})
    order = Order(parent=tmp_path, text="", command="", started=0.0, force=False)
    with pytest.raises(UsageError, match="which one run uses at a time"):
        directory = ResultsDirectory.create(tmp_path, study.name, study_yaml="") if resumed else None
        run_by_engine(study, order, fleet, NullProgress(), directory=directory)
