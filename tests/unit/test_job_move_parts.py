"""What the ranks of a job see of a move, from the times of their steps; and what cannot be moved."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from nearmetal.environments import (
    Available,
    Criu,
    HoldsConnections,
    Instance,
    InstanceRequest,
    Migrates,
    Tools,
    Unavailable,
)
from nearmetal.environments.containers.lxc import Lxc
from nearmetal.environments.criu_connections import (
    connection_options,
    freezing_options,
    frozen_at,
    waiting_options,
    write_configuration,
)
from nearmetal.environments.moving import Dump
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.errors import TrialFailedError
from nearmetal.lifecycle import Method, RankSteps, longest_gap, read_steps, steps_within
from nearmetal.model.change import replace
from nearmetal.model.study import Attachment, Environment, MoveSubject
from nearmetal.model.workloads.moves import Extent, Load
from nearmetal.subjects.checkpoint import CHECKPOINT, CheckpointRestore
from nearmetal.subjects.events.mpi_jobs import share_of_rank
from nearmetal.subjects.events.rank_moves import refuses_to_move_rank, stopped_by_move
from nearmetal.subjects.events.tcp_job import view_of
from nearmetal.subjects.migrate import MIGRATE, Migrate
from nearmetal.testing.fake_host import FakeHost

TOOLS = Tools(directory=Path("/opt/nm"))
RANK = MoveSubject(name="w", facts=MIGRATE, of=Extent.RANK)
JOB = MoveSubject(name="w", facts=MIGRATE, of=Extent.JOB)


def steps(*ends: float) -> RankSteps:
    return RankSteps(passes=3, wrong=0, strange=0, ends=ends)


def requested(backend: str, scratch: Path) -> InstanceRequest:
    return InstanceRequest(
        label="nearmetal-x",
        hostname="h",
        environment=Environment(name="e", backend=backend, placements=()),
        cpus=(0,),
        seat=None,
        binds=(),
        scratch=scratch,
    )


def every(step: float, begin: float, end: float) -> list[float]:
    count = round((end - begin) / step)
    return [begin + step * i for i in range(count + 1)]


def test_the_steps_of_a_rank_are_read_with_their_times() -> None:
    text = '{"joined": 5}\n{"step": 2}\n'
    text += '{"steps": 4, "passes": 1, "wrong": 0, "strange": 0, "first": 2000000000}\n1000 2500\n500\n'
    found = read_steps(text, ahead=1.0)
    assert found.ends == pytest.approx((3.0, 3.001, 3.0035, 3.004)) and found.passes == 1
    none = read_steps('{"steps": 0, "passes": 0, "wrong": 0, "strange": 0, "first": 0}\n\n')
    assert none.ends == ()


@pytest.mark.parametrize(
    "text",
    ["", '{"joined": 5}\n', '{"steps": 4, "passes": 1, "wrong": 0, "strange": 0, "first": 2}\n1000 2500\n'],
)
def test_what_is_no_account_of_all_steps_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_steps(text)


def test_a_gap_counts_if_a_part_of_it_lies_in_the_window() -> None:
    ends = [0.0, 0.1, 0.9, 1.0, 1.1]
    assert longest_gap(ends, 0.95, 1.05) == pytest.approx(0.1)
    assert longest_gap(ends, 0.5, 0.6) == pytest.approx(0.8)
    assert steps_within(ends, 0.1, 1.0) == 2
    with pytest.raises(ValueError):
        longest_gap(ends, 2.0, 3.0)


def test_the_silence_is_the_longest_wait_of_any_rank_less_its_floor() -> None:
    before, move = (0.0, 1.0), (1.0, 3.0)
    calm = [*every(0.01, 0.0, 1.2), *every(0.01, 1.7, 3.1)]
    uneasy = [*every(0.01, 0.0, 0.5), *every(0.01, 0.8, 1.2), *every(0.01, 1.71, 3.1)]
    seen = view_of([steps(*calm), steps(*uneasy)], before, move)
    assert (seen.gap, seen.floor) == pytest.approx((0.5, 0.01)) and seen.silence == pytest.approx(0.49)
    assert seen.pauses == pytest.approx((0.5, 0.51)) and "pauses" not in seen.record()
    # 2 s for the work of 1.5 s: the standstill of half a second.
    assert seen.behind == pytest.approx(0.5, abs=0.02) and seen.steps == pytest.approx(150, abs=2)


def test_unnoticed_move_has_the_shortest_measurable_silence() -> None:
    calm = steps(*every(0.01, 0.0, 3.0))
    assert view_of([calm], (0.0, 1.0), (1.0, 2.0)).silence == pytest.approx(1e-3)


@pytest.mark.parametrize("name", backend_names())
def test_a_rank_is_moved_by_backends_that_take_its_address_along(name: str) -> None:
    backend = get_backend(name)
    why = Migrate.unable(RANK, backend)
    carries = isinstance(backend, HoldsConnections) and bool(backend.restored_at)
    assert (why is None) == (carries or isinstance(backend, Migrates))
    # Docker passes CRIU no options for connections.
    assert why is None or name == "docker" or not Migrate.methods(backend)
    assert name not in ("native", "lxc", "namespaces", "runc", "qemu") or why is None


def test_a_rank_whose_connections_would_break_is_refused_with_backends_that_keep_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backend of another package may restore instances, and have no connections in its checkpoints."""
    backend = get_backend("runc")
    monkeypatch.setattr(type(backend), "restored_at", frozenset())
    why = Migrate.unable(RANK, backend)
    assert why is not None and why.startswith("instances of runc take no address along")
    assert "native" in why and "lxc" in why and "qemu" in why and "docker" not in why


@pytest.mark.parametrize("name", backend_names())
def test_a_whole_job_is_held_by_checkpoints_with_connections(name: str) -> None:
    backend = get_backend(name)
    for subject in (Migrate, CheckpointRestore):
        why = subject.unable(JOB, backend)
        over_guests = subject is Migrate and isinstance(backend, Migrates)
        assert (why is None) == (isinstance(backend, HoldsConnections) or over_guests)
    assert name not in ("native", "lxc", "namespaces", "runc") or why is None


@pytest.mark.parametrize("name", backend_names())
def test_dmtcp_writes_whole_jobs_and_nothing_else(name: str) -> None:
    backend, by_dmtcp = get_backend(name), replace(JOB, method=Method.DMTCP)
    for subject in (Migrate, CheckpointRestore):
        assert (subject.unable(by_dmtcp, backend) is None) == isinstance(backend, HoldsConnections)
        alone = subject.unable(replace(by_dmtcp, of=None), backend)
        assert alone is not None and (not subject.methods(backend) or " has only the method" in alone)
    assert replace(by_dmtcp, of=None).misfit == ("method", "dmtcp writes whole MPI jobs only; of: job")
    assert by_dmtcp.misfit is None


def test_the_guests_of_a_job_are_stopped_together() -> None:
    qemu, moved = get_backend("qemu"), replace(JOB, method=Method.OFFLINE)
    assert Migrate.unable(JOB, qemu) is None and Migrate.unable(moved, qemu) is None
    for method in (Method.PRECOPY, Method.POSTCOPY, Method.AUTO):
        said = Migrate.unable(replace(JOB, method=method), qemu)
        assert said is not None and said.endswith("use offline")
    written = CheckpointRestore.unable(replace(JOB, facts=CHECKPOINT), qemu)
    assert written is not None and "subject: migrate" in written


def test_the_terminal_of_mpirun_is_not_in_two_places() -> None:
    lazy = replace(JOB, method=Method.CRIU_LAZY)
    said = Migrate.unable(lazy, get_backend("runc"))
    assert said is not None and "criu-pageserver" in said
    assert Migrate.unable(replace(lazy, of=Extent.RANK), get_backend("runc")) is None


def test_a_rank_belongs_to_migrate_and_auto_does_not_choose_for_it() -> None:
    said = CheckpointRestore.unable(replace(RANK, facts=CHECKPOINT), get_backend("namespaces"))
    assert said is not None and "migrate" in said
    auto = Migrate.unable(replace(RANK, method=Method.AUTO), get_backend("qemu"))
    assert auto is not None and "name a method" in auto
    job = Migrate.unable(replace(JOB, method=Method.AUTO), get_backend("runc"))
    assert job is not None and job.endswith("use criu or criu-pageserver")


@pytest.mark.parametrize(
    ("name", "attachment", "remedy"),
    [
        ("namespaces", Attachment.NONE, "veth-bridge"),
        ("qemu", Attachment.MACVLAN, "veth-bridge"),
        ("native", Attachment.LOOPBACK, "host"),
    ],
)
def test_other_attachments_do_not_carry_the_address_of_a_rank(
    name: str, attachment: Attachment, remedy: str
) -> None:
    e = Environment(name="e", backend=name, attachment=attachment, placements=())
    found = refuses_to_move_rank(RANK, e, get_backend(name), FakeHost(root=True), Method.CRIU)
    assert isinstance(found, Unavailable) and found.remedy == f"attachment: {remedy}"


def test_an_idle_job_hardly_writes_and_every_rank_has_a_page() -> None:
    """0 bytes per second would mean as fast as it can."""
    size, rate = share_of_rank(replace(JOB, load=Load.IDLE).dirtied, JOB.job_ranks)
    assert size == 8 << 20 and 0 < rate < 100
    assert share_of_rank((64 << 10, 0), 64) == (4096, 0), "as fast as it can, on purpose"


def test_ranks_belong_to_a_job() -> None:
    assert replace(RANK, of=None, ranks=4).misfit == ("ranks", "belongs to of: rank, or of: job")
    assert (RANK.job_ranks, JOB.job_ranks, replace(RANK, ranks=5).job_ranks) == (3, 2, 5)
    assert JOB.mpi and not RANK.mpi


def test_the_connections_of_an_instance_are_held_and_its_seat_is_opened_in_time(tmp_path: Path) -> None:
    request = requested("namespaces", tmp_path)
    assert connection_options(TOOLS, request, tmp_path) == ("--network-lock", "skip")
    moved = replace(request, connections=True, arrival=("nm-box", "seat", "up", "/run/netns/a b", "port3"))
    options = connection_options(TOOLS, moved, tmp_path)
    assert "--tcp-established" in options and options[-2:] == (
        "--action-script",
        str(tmp_path / "connect"),
    )
    assert "post-restore" in (text := (tmp_path / "connect").read_text()) and "'/run/netns/a b' port3" in text
    write_configuration(("--tcp-established", "--ghost-limit", "256M"), tmp_path / "c")
    assert (tmp_path / "c").read_text() == "tcp-established\nghost-limit 256M\n"


@pytest.mark.parametrize(
    ("control", "before", "events", "action", "after"),
    [
        ("freezer.state", "THAWED", "", "pre-dump", "FROZEN"),
        ("freezer.state", "THAWED", "", "post-dump", "THAWED"),
        ("cgroup.freeze", "0", "populated 1\nfrozen 1\n", "pre-dump", "1"),
        ("cgroup.freeze", "0", "populated 1\nfrozen 0\n", "pre-dump", "0"),
    ],
)
def test_a_group_is_frozen_before_criu_looks_or_left_to_it(
    tmp_path: Path, control: str, before: str, events: str, action: str, after: str
) -> None:
    (group := tmp_path / "a b").mkdir()
    (group / control).write_text(before)
    (group / "cgroup.events").write_text(events)
    option, script = freezing_options(TOOLS, group / control, tmp_path, tmp_path)
    assert option == "--action-script"
    subprocess.run([script], env={**os.environ, "CRTOOLS_SCRIPT_ACTION": action}, check=True)
    assert (group / control).read_text().strip() == after
    froze = frozen_at(tmp_path)
    if action == "pre-dump" and after == "FROZEN":
        assert froze is not None and abs(time.time() - froze) < 600


@pytest.mark.parametrize(("line", "goes_on"), [("\n", True), ("", False)])
def test_a_restore_waits_once_for_a_line_and_fails_without(tmp_path: Path, line: str, goes_on: bool) -> None:
    os.mkfifo(hold := tmp_path / "a b")
    option, script = waiting_options(TOOLS, hold, tmp_path)
    assert option == "--action-script"
    for action in ("pre-restore", "post-restore"):
        subprocess.run([script], env={**os.environ, "CRTOOLS_SCRIPT_ACTION": action}, check=True)
    waiting = subprocess.Popen([script], env={**os.environ, "CRTOOLS_SCRIPT_ACTION": "post-setup-namespaces"})
    assert waiting.poll() is None
    hold.write_text(line)  # opens the FIFO only when the script reads it
    assert (waiting.wait() == 0) is goes_on


def test_a_group_without_a_freezer_is_left_to_criu(tmp_path: Path) -> None:
    assert freezing_options(TOOLS, None, tmp_path, tmp_path) == () and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "known", "remedy"),
    [
        (Method.PRECOPY, "it forgets writes", "method offline or postcopy: it forgets writes"),
        (Method.PRECOPY, "", ""),
        (Method.OFFLINE, "it forgets writes", ""),
    ],
)
def test_a_job_that_a_move_stopped_names_the_known_cause(method: Method, known: str, remedy: str) -> None:
    answer = Available(version="QEMU 7.2", of_moves=("another note", known), loses_writes=known)
    methods = (Method.OFFLINE, Method.PRECOPY, Method.POSTCOPY, Method.MULTIFD)
    found = stopped_by_move(TrialFailedError("the job ended"), method, methods, answer)
    assert found.what == f"the job ended, after a move of its last rank by {method}"
    assert found.remedy == remedy


@pytest.mark.parametrize("connections", [False, True])
def test_lxc_writes_connections_only_of_a_rank_or_a_job(tmp_path: Path, connections: bool) -> None:
    request = replace(requested("lxc", tmp_path), connections=connections)
    tools, criu = TOOLS, Criu(argv=("/usr/sbin/criu",), version="4.2")
    instance = cast(Instance, SimpleNamespace(pid=1, cgroups={}))
    argv = Lxc().dump_command(tools, criu, request, instance, Dump(images=tmp_path))
    assert "lxc-checkpoint" in argv and argv[argv.index("--checkpoint-dir") + 1] == str(tmp_path)
    script = (tmp_path / "criu").read_text()
    assert "--network-lock skip" in script and ("--tcp-established" in script) == connections
