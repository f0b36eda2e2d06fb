"""Ping-pong by Open MPI and MPICH, by agent and by ssh, in shared memory and by TCP, inside one instance and
between two: what was asked for is what the kernel shows, and what is not is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

import pytest
from tests.blocks import run_one

from nearmetal.errors import UnavailableError
from nearmetal.host import LocalHost
from nearmetal.host.leftovers import find
from nearmetal.host.lock import machine_lock
from nearmetal.launchers import InstalledMpi
from nearmetal.launchers.transport import SEEN
from nearmetal.model.change import replace
from nearmetal.model.record import TrialRecord
from nearmetal.model.scope import RANKS
from nearmetal.model.study import (
    Attachment,
    CommandWorkload,
    Design,
    Environment,
    KernelWorkload,
    Mode,
    Mpi,
    Placement,
    Reach,
    Shared,
    SingleCopy,
    Study,
    Transport,
    TransportWish,
)
from nearmetal.node import ssh
from nearmetal.node.arms import starting
from nearmetal.node.arms.running_arm import RunningArm
from nearmetal.node.machine import new_label, prepare_machine
from nearmetal.node.node import Node, open_node
from nearmetal.node.progress import NullProgress
from nearmetal.node.survey.available import usable_arms
from nearmetal.run.audit import ALLOWED, CMA, audit_arms
from nearmetal.workloads.kernels.registry import argument

pytestmark = pytest.mark.more

HOST = LocalHost()
PINGPONG = KernelWorkload(name="pp", kernel="pingpong", params={"bytes": 65536, "trips": 20})
ENVIRONMENTS = (
    Environment(name="native", backend="native", placements=("1x2",)),
    Environment(name="native-tcp", backend="native", attachment=Attachment.LOOPBACK, placements=("1x2",)),
    Environment(name="one", backend="namespaces", attachment=Attachment.NONE, placements=("1x2",)),
    Environment(
        name="one-tcp",
        backend="namespaces",
        attachment=Attachment.NONE,
        transport=TransportWish.TCP,
        placements=("1x2",),
    ),
    Environment(name="two", backend="namespaces", attachment=Attachment.VETH_BRIDGE, placements=("2x1",)),
    Environment(
        name="two-shm",
        backend="namespaces",
        attachment=Attachment.VETH_BRIDGE,
        transport=TransportWish.SHM,
        share=(Shared.IPC, Shared.PID),
        placements=("2x1",),
    ),
)
WANTED = {
    "native/1x2": Transport.SHM,
    "native-tcp/1x2": Transport.TCP,
    "one/1x2": Transport.SHM,
    "one-tcp/1x2": Transport.TCP,
    "two/2x1": Transport.TCP,
    "two-shm/2x1": Transport.SHM,
}


def study(*names: str, mpi: Mpi | None = None, **design: Any) -> Study:
    kept = tuple(e for e in ENVIRONMENTS if e.name in names or not names)
    return Study(
        name="mpi",
        question="",
        environments=kept,
        placements=(
            Placement(name="1x2", instances=1, tasks=2),
            Placement(name="2x1", instances=2, tasks=1),
        ),
        workloads=(PINGPONG,),
        design=Design(
            baselines=(kept[0].name,),
            margin=0.03,
            confidence=0.95,
            seed=1,
            slices=2,
            warm_up=0,
            mpi=mpi,
            **design,
        ),
    )


@contextmanager
def session_of(asked: Study) -> Iterator[Node]:
    """Where MPI, root or a backend is missing, the test is skipped by name; in CI it fails."""
    lacking = pytest.fail if os.environ.get("CI") else pytest.skip
    if not HOST.is_root():
        lacking("needs root: namespaces of the machine are shared, and an sshd is started")
    try:
        machine = prepare_machine(HOST, NullProgress(), asked.design.mpi)
    except UnavailableError as e:
        lacking(f"{e.what}; {e.remedy}")
    _, backends, absent = usable_arms(machine, asked, NullProgress())
    if absent:
        lacking(f"cannot run here: {absent}")
    label = new_label()
    with machine_lock(label, command="pytest", force=True):
        with open_node(machine, asked, backends, label, NullProgress()) as session:
            yield session
        assert find(label) == (), "something is left behind"


def run(asked: Study) -> dict[str, TrialRecord]:
    with session_of(asked) as session:
        return {r.arm: r for r in run_one(session)}


@pytest.mark.parametrize("reach", list(Reach))
@pytest.mark.parametrize("mpi", list(Mpi))
def test_every_arm_talks_by_what_it_was_asked_to(mpi: Mpi, reach: Reach) -> None:
    names = () if reach is Reach.AGENT else ("native", "two")
    records = run(study(*names, mpi=mpi, reach=reach))
    assert {r.arm: r.reason for r in records.values() if r.reason} == {}
    for arm, record in records.items():
        assert record.transport["seen"] == SEEN[WANTED[arm]], arm
        carried = record.network.get(RANKS, {}).get("tcp_bytes")
        if WANTED[arm] is Transport.TCP:
            assert carried is not None and carried > 2 * 20 * 65536, arm
        else:
            assert carried is None, arm
        assert str(record.transport["mpi"]).startswith("Open MPI" if mpi is Mpi.OPENMPI else "MPICH")
        assert len({(p.host, p.cpus) for p in record.places}) == 2
        assert len({p.host for p in record.places}) == (2 if arm.startswith("two") else 1), arm


def test_mpich_between_containers_that_a_program_enters() -> None:
    """Its agent goes by podman exec."""
    asked = study("native", "two", mpi=Mpi.MPICH)
    podman = replace(ENVIRONMENTS[4], name="two", backend="podman")
    records = run(replace(asked, environments=(ENVIRONMENTS[0], podman)))
    assert {r.arm: r.reason for r in records.values() if r.reason} == {}
    assert {p.host for p in records["two/2x1"].places} == {"nm1-0", "nm1-1"}
    assert records["two/2x1"].transport["seen"] == SEEN[Transport.TCP]


def launched_otherwise(monkeypatch: pytest.MonkeyPatch, **change: Any) -> None:
    """The launcher is told something else than the arm, as a library would that does not listen."""
    launch = InstalledMpi.launch
    monkeypatch.setattr(
        InstalledMpi,
        "launch",
        lambda mpi, job: launch(mpi, replace(job, **change)),
    )


@pytest.mark.parametrize("mpi", list(Mpi))
@pytest.mark.parametrize(
    ("arm", "other", "words"),
    [
        ("one", Transport.TCP, "that were to share memory hold a TCP connection"),
        ("one-tcp", Transport.SHM, "has no TCP connection to another"),
    ],
)
def test_a_transport_that_was_not_asked_for_fails_the_trial(
    mpi: Mpi, arm: str, other: Transport, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched_otherwise(monkeypatch, transport=other, interface="lo")
    record = run(study(arm, mpi=mpi))[f"{arm}/1x2"]
    assert words in record.reason
    assert record.rows == ()


@pytest.mark.parametrize("mpi", list(Mpi))
def test_a_program_of_ones_own_is_looked_at_while_it_runs(mpi: Mpi) -> None:
    asked = study("native", "two", mpi=mpi, mode=Mode.PLAIN, runs=1)
    with session_of(asked) as session:
        work = KernelWorkload(name="ep", kernel="ep", params={"class": "A"})
        llc = session.machine.llc
        alone = argument(work, ranks=1, llc_bytes=llc, extra=0.0)
        begin = time.monotonic()
        HOST.run([session.machine.tools / "nm-micro", "--once", alone], timeout=60).require("ep")
        one = 0.5 * (time.monotonic() - begin)  # of two ranks, or less, since that includes the start
        specs = [
            argument(w, ranks=2, llc_bytes=llc, extra=0.0) for w in (PINGPONG, *[work] * ceil(5.0 / one))
        ]
        program = (session.machine.tools / "nm-micro", "--once", *specs)
        own = CommandWorkload(name="own", argv=program, mpi=True, env={"OWN": "1"})
        asked = replace(asked, workloads=(own,))
        with_own = replace(session, study=asked)
        records = run_one(with_own)
    assert [r.reason for r in records] == [""] * len(records)
    for r in records:
        assert r.transport["seen"] == SEEN[WANTED[r.arm]], r.phases


@pytest.mark.parametrize("mpi", list(Mpi))
def test_a_rank_that_dies_before_mpi_init_ends_its_trial_at_once(mpi: Mpi) -> None:
    """Not at its time limit: the other rank stands in MPI_Init and would wait for ever. Its input is at its
    end, so that nobody waits there either."""
    asked = study("native", "two", "two-shm", mpi=mpi, mode=Mode.PLAIN, runs=1)
    LIMIT = 1200.0
    dies = 'cat; case "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" in 1) echo sorry >&2; exit 3;; esac; exec "$@"'
    with session_of(asked) as session:
        spec = argument(PINGPONG, ranks=2, llc_bytes=session.machine.llc, extra=0.0)
        program = (session.machine.tools / "nm-micro", "--once", spec)
        own = CommandWorkload(name="own", argv=("sh", "-c", dies, "sh", *program), mpi=True, time_limit=LIMIT)
        asked = replace(asked, workloads=(own,))
        records = run_one(replace(session, study=asked))
    assert {r.arm for r in records} == {"native/1x2", "two/2x1", "two-shm/2x1"}
    for r in records:
        assert "own: rank 1 ended with 3: sorry" in r.reason, r
        assert r.end - r.begin < LIMIT, r


def test_an_sshd_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "server_config", lambda *_: "NoSuchKey yes\n")
    record = run(study("native", "two", reach=Reach.SSH))["two/2x1"]
    assert "no sshd in nm1-0" in record.reason and "NoSuchKey" in record.reason


def test_the_keys_of_ssh_are_the_runs_alone_and_go_with_it() -> None:
    with session_of(study("native", "two", reach=Reach.SSH)) as session:
        assert session.ssh is not None
        directory = session.ssh.directory
        assert directory.stat().st_mode & 0o777 == 0o700
        for name in ("client", "server"):
            assert (directory / name).stat().st_mode & 0o777 == 0o600
    assert not directory.exists()


def test_cma_is_asked_about_in_every_arm_and_refused_where_one_forbids_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts: dict[str, dict[str, str]] = {}

    def look(session: Node, attempt: int) -> None:
        def audit(arms: Sequence[RunningArm]) -> None:
            facts.update(audit_arms(session, arms))

        run_one(session, attempt=attempt, audit=audit)

    with session_of(study("native", "one", single_copy=SingleCopy.CMA)) as session:
        look(session, 1)
        assert {arm: found[CMA] for arm, found in facts.items()} == {
            "native/1x2": ALLOWED,
            "one/1x2": ALLOWED,
        }
        monkeypatch.setattr("nearmetal.run.audit._cma", lambda *_: "refused: Operation not permitted")
        with pytest.raises(UnavailableError, match="refused: Operation not permitted"):
            look(session, 2)


def test_a_backend_that_keeps_a_namespace_to_itself_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "same_namespace", lambda *_: False)
    record = run(study("native", "two-shm"))["two-shm/2x1"]
    assert "a namespace of its own (ipc)" in record.reason


@pytest.mark.parametrize("mpi", list(Mpi))
@pytest.mark.parametrize("single_copy", list(SingleCopy))
def test_both_modes_of_single_copy_work(mpi: Mpi, single_copy: SingleCopy) -> None:
    records = run(study("native", "two-shm", mpi=mpi, single_copy=single_copy))
    assert {r.arm: r.reason for r in records.values() if r.reason} == {}
    assert {r.transport["single_copy"] for r in records.values()} == {single_copy.value}
    assert {r.transport["seen"] for r in records.values()} == {SEEN[Transport.SHM]}


def test_a_missing_sshd_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalHost, "which", lambda _, program: None if "sshd" in program else program)
    with pytest.raises(UnavailableError, match="no sshd here"):
        ssh.make_keys(HOST, None)  # type: ignore[arg-type]
