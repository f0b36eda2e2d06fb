"""Nodes of a run: who is there is read from the results directory, each node gets the same number of rounds,
and those of a node that is lost go to the others."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nearmetal.api import engines
from nearmetal.api.catalog import catalog
from nearmetal.api.studies import study_from
from nearmetal.engines import State
from nearmetal.errors import RecordsError, RunError, UnavailableError, UsageError
from nearmetal.model.plan import NextBlock
from nearmetal.model.roof import MeasuredRoof, RoofRequest, roof_record
from nearmetal.model.study import Better
from nearmetal.node.progress import NullProgress
from nearmetal.plan import make_block
from nearmetal.records import (
    CLAIMS,
    COORDINATOR,
    LEFT_OUT,
    PRESENT,
    Claims,
    Orders,
    ResultsDirectory,
    node_states,
)
from nearmetal.run import reopening
from nearmetal.run.present import Present, await_nodes
from nearmetal.run.workers.serving import Terms, await_plan, next_order, taking_part
from nearmetal.run.workers.shared import SharedWorkers
from nearmetal.study_file import dump_study
from nearmetal.testing.fake_host import FakeHost

STUDY = study_from("quick", 7)
NODES = ("n1", "n2", "n3")
LEASE = 60.0


def parity(digest: str) -> dict[str, Any]:
    return {"facts": {STUDY.arms()[0].name: {"binary nm-micro": digest, "kernel": "6.1"}}, "differences": []}


def description(kernel: str = "6.1", digest: str = "abc") -> dict[str, Any]:
    return {"kernel": {"release": kernel}, "parity": parity(digest)}


class Notes(NullProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Node:
    """A worker of which only its files are played."""

    def __init__(self, directory: ResultsDirectory, name: str) -> None:
        self.directory, self.name, self.run = directory, name, f"nearmetal-{name}"
        self.present = Claims(directory.path / PRESENT, self.run, LEASE, name)
        self.claim = self.present.join()

    def describe(self, **given: Any) -> None:
        self.directory.node_files.write(self.run, given or description(), node=self.name)

    def fall_silent(self) -> None:
        file = self.directory.path / PRESENT / f"0.{self.claim.attempt}.json"
        before = time.time() - 2 * LEASE
        os.utime(file, (before, before))


@pytest.fixture
def directory(tmp_path: Path) -> ResultsDirectory:
    found = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    found.freeze(seed=7, arms=[arm.name for arm in STUDY.arms()], provenance={})
    return found


@pytest.fixture
def claims(directory: ResultsDirectory) -> Iterator[Claims]:
    found = Claims(directory.path / CLAIMS, "nearmetal-coordinator")
    yield found
    found.close()


def order(number: int, attempt: int = 1) -> NextBlock:
    return NextBlock(block=make_block(STUDY, number), attempt=attempt, slices={}, work={}, verified={})


def given(directory: ResultsDirectory) -> dict[int, str]:
    return {o.block.number: o.node for o in Orders(directory.path).read()}


@pytest.mark.parametrize(("boot", "name"), [("a", "n1"), ("b", "")])
def test_a_machine_that_began_a_run_and_is_a_worker_later_is_one_node(
    tmp_path: Path, boot: str, name: str
) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    kernel = {"kernel": {"release": "6.1"}}
    directory.freeze(seed=7, arms=[STUDY.arms()[0].name], provenance={"boot": "a", **kernel})
    assert node_states(directory) == {}, "a run without workers has one node"
    directory.node_files.write("nearmetal-w", {"boot": boot, **kernel}, node="n1")
    own = node_states(directory)[""]
    assert (own.name, own.kernel) == (name, "6.1")


def test_blocks_are_given_to_nodes_equally_and_those_of_a_lost_node_to_the_others(
    directory: ResultsDirectory, claims: Claims
) -> None:
    present = Present(directory, claims)
    nodes = {name: Node(directory, name) for name in NODES}
    for node in nodes.values():
        node.describe()
    workers = SharedWorkers(directory, claims, 3, lambda: None, nodes=NODES, seed=7, usable=present.usable)
    assert workers.capacity == 6
    for number in range(1, 7):
        workers.give(order(number))
    before = given(directory)
    assert Counter(before.values()) == dict.fromkeys(NODES, 2)
    claimed = next(n for n, name in before.items() if name == "n2")
    Claims(directory.path / CLAIMS, nodes["n2"].run, LEASE).take(claimed, 1)
    nodes["n2"].fall_silent()
    assert workers.lost(dict.fromkeys(before, 1)) == {}, "its claim has not run out yet"
    after = given(directory)
    other = next(n for n, name in before.items() if name == "n2" and n != claimed)
    assert after[other] in ("n1", "n3") and after[claimed] == "n2"
    assert {n: name for n, name in after.items() if n != other} == {
        n: x for n, x in before.items() if n != other
    }
    workers.give(order(7))
    assert given(directory)[7] != "n2"


def test_a_worker_takes_orders_for_its_node_and_for_any(directory: ResultsDirectory, claims: Claims) -> None:
    orders = Orders(directory.path)
    for number, node in ((1, "n2"), (2, "n1"), (3, "")):
        orders.give(NextBlock(**{**vars(order(number)), "node": node}))
    taken = []
    while (found := next_order(directory, claims, lambda: False, "n1")) is not None:
        taken.append(found[0].block.number)
    assert taken == [2, 3]


def test_differences_are_shown_and_nodes_that_are_left_out_are_named(
    directory: ResultsDirectory, claims: Claims
) -> None:
    earlier = Node(directory, "n9")
    earlier.describe()
    present, notes = Present(directory, claims), Notes()
    one, two, three = (Node(directory, name) for name in NODES)
    one.describe()
    calls: list[None] = []

    def watch() -> None:
        calls.append(None)
        if len(calls) == 2:
            two.describe(**description("6.18", "other"))
        if len(calls) == 3:
            three.describe(**{LEFT_OUT: "no MPI here"})

    await_nodes(present, NODES, watch, notes, until=time.monotonic() + 60)
    assert len(calls) == 3, "every worker that has begun is waited for"
    assert notes.notes[0] == "node n3 does not take part: no MPI here"
    assert notes.notes[1] == "differences between the nodes"
    assert notes.notes[2].split() == ["kernel", "6.1", "n[1,9]"]
    assert notes.notes[3].split() == ["6.18", "n2"]
    assert any(line.startswith(f" files of {STUDY.arms()[0].name} ") for line in notes.notes)
    assert present.usable() == {"n1", "n2"}
    assert "n9" not in present.usable(), "a worker of an earlier coordinator gets no rounds"


def test_a_node_that_never_begins_is_waited_for_no_longer_than_a_lease(
    directory: ResultsDirectory, claims: Claims
) -> None:
    present, notes = Present(directory, claims), Notes()
    Node(directory, "n1").describe()
    await_nodes(present, ("n1", "n2"), lambda: None, notes, until=time.monotonic() + 0.5)
    assert notes.notes == ["node n2 has not begun; see the output of its worker in workers/"]


def test_a_node_without_a_compiler_waits_for_the_programs_of_the_node_that_rehearses(tmp_path: Path) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    seat = Claims(directory.path / COORDINATOR, "nearmetal-0", LEASE)
    first = Claims(directory.path / CLAIMS, "nearmetal-1", LEASE)
    assert seat.take_over(0) is not None
    assert not await_plan(directory, "nearmetal-2", 0.5), "nobody rehearses"
    claim = first.take_over(0)
    assert claim is not None
    waiting = ThreadPoolExecutor(1).submit(await_plan, directory, "nearmetal-2", 0.5)
    time.sleep(1.2)
    assert not waiting.done(), "a rehearsal may take longer than a lease"
    directory.freeze(seed=7, arms=[arm.name for arm in STUDY.arms()], provenance={})
    assert waiting.result(timeout=60)
    Orders(directory.path).stop()
    assert await_plan(directory, "nearmetal-2", 0.5)


TERMS = Terms(until=None, inside=False, command="c", started=0.0, lease=LEASE, node="n1")


def test_a_node_without_mpi_or_image_says_why_it_is_left_out(
    directory: ResultsDirectory, claims: Claims
) -> None:
    present = Present(directory, claims)
    with pytest.raises(UnavailableError), taking_part(directory, TERMS) as label:
        assert [(w.run, w.held, w.left_out) for w in present.workers()] == [(label, True, "")]
        raise UnavailableError("image hpc is not here", remedy="nearmetal image build hpc")
    (seen,) = present.workers()
    assert (seen.node, seen.left_out, seen.held) == ("n1", "image hpc is not here", False)
    assert not present.usable()


def test_a_worker_that_fails_once_its_node_is_described_is_not_left_out(
    directory: ResultsDirectory, claims: Claims
) -> None:
    present = Present(directory, claims)
    with pytest.raises(RunError), taking_part(directory, TERMS) as label:
        directory.node_files.write(label, description(), node="n1")
        raise RunError("the disk is full")
    (seen,) = present.workers()
    assert seen.rehearsed and seen.left_out == "" and not seen.held


def test_another_nearmetal_on_a_node_is_among_the_differences(
    directory: ResultsDirectory, claims: Claims
) -> None:
    present = Present(directory, claims)
    for name, version in (("n1", "0.1.0"), ("n2", "0.2.0")):
        Node(directory, name).describe(**description(), versions={"nearmetal": version})
    (found,) = present.differences()
    assert (found.what, dict(found.values)) == ("nearmetal", {"0.1.0": ("n1",), "0.2.0": ("n2",)})


BOOTED = {"kernel": {"release": "6.1", "version": "#1"}, "cpu": {"model": "M", "microcode": "0x1"}}


@pytest.mark.parametrize(
    ("now", "node", "changed"),
    [
        (BOOTED, "n1", ""),
        ({**BOOTED, "kernel": {"release": "6.2", "version": "#1"}}, "n1", "kernel"),
        ({**BOOTED, "cpu": {"model": "M", "microcode": "0x2"}}, "n1", "microcode"),
        ({**BOOTED, "settings": {"governor": "powersave", "hugepages": "1"}}, "n1", "governor"),
        ({**BOOTED, "settings": {"hugepages": "1"}}, "n1", ""),
        # It is compared with its own description, not with that of the node that began the run.
        ({**BOOTED, "kernel": {"release": "6.9", "version": "#1"}}, "n2", ""),
        (BOOTED, "n2", "kernel"),
        # A node that is new in the run is a stratum of its own.
        ({**BOOTED, "kernel": {"release": "6.3", "version": "#1"}}, "n3", ""),
        # Without a name it is the machine of a run on one node.
        (BOOTED, "", ""),
        ({**BOOTED, "mitigations": {"mds": "off"}}, "", "mitigations"),
    ],
)
def test_a_reopened_node_compares_its_boot_state_with_its_own_first_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: dict[str, Any], node: str, changed: str
) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(STUDY, catalog()))
    directory.freeze(seed=7, arms=[STUDY.arms()[0].name], provenance=BOOTED)
    if node:
        directory.node_files.write("nearmetal-1", BOOTED, node="n1")
        other = {**BOOTED, "kernel": {"release": "6.9", "version": "#1"}}
        directory.node_files.write("nearmetal-2", other, node="n2")
    monkeypatch.setattr(reopening, "provenance", lambda host: now)
    compare = partial(reopening.require_boot_state, FakeHost(), directory, node)
    if not changed:
        compare()
        return
    with pytest.raises(UsageError, match=rf": {changed} changed") as caught:
        compare()
    assert "nearmetal compare --before" in str(caught.value.remedy)


def test_waiting_ends_with_the_last_worker(directory: ResultsDirectory, claims: Claims) -> None:
    present = Present(directory, claims)
    Node(directory, "n1").describe(**{LEFT_OUT: "no image"})

    def watch() -> None:
        raise RunError("all workers have ended")

    with pytest.raises(RunError, match="all workers have ended"):
        await_nodes(present, ("n1",), watch, NullProgress(), until=time.monotonic() + 60)


@pytest.mark.parametrize(
    ("state", "there", "message"),
    [
        (State.ENDED, "held", ""),  # the batch system was restarted, and has forgotten its jobs
        (State.ENDED, "silent", "all workers have ended"),
        (State.ENDED, "not begun", "all workers have ended"),
        (State.RUNNING, "silent", "all workers are silent"),  # their machine was switched off
        (State.RUNNING, "not begun", ""),
        (State.UNKNOWN, "silent", "all workers are silent"),
        (State.UNKNOWN, "not begun", ""),
        (State.WAITING, "silent", ""),
    ],
)
def test_a_run_ends_if_no_worker_gives_a_sign_of_life(
    directory: ResultsDirectory,
    claims: Claims,
    monkeypatch: pytest.MonkeyPatch,
    state: State,
    there: str,
    message: str,
) -> None:
    monkeypatch.setattr(engines, "STATES_EVERY", 0.001)
    present = Present(directory, claims)
    if there != "not begun":
        node = Node(directory, "n1")
        if there == "silent":
            node.fall_silent()
    watch = engines._watch(lambda: {"1": state}, directory, 0.01, present)

    def for_a_while() -> None:
        for _ in range(100):
            watch()
            time.sleep(0.001)

    if message:
        with pytest.raises(RunError, match=message):
            for_a_while()
    else:
        for_a_while()


def test_a_round_that_was_taken_back_is_not_begun_by_a_worker_that_has_read_its_order(
    directory: ResultsDirectory, claims: Claims
) -> None:
    workers = SharedWorkers(directory, claims, 2, lambda: None)
    worker = Claims(directory.path / CLAIMS, "nearmetal-w", LEASE)
    for number in (1, 2):
        workers.give(order(number))
    assert worker.take(1, 1) is not None
    (_, read) = Orders(directory.path).read()
    assert list(workers.drain()) == [2]
    assert worker.take(2, read.attempt) is None
    assert workers.losses() == {1: 0, 2: 0}


def test_upper_bounds_are_those_of_the_best_node(directory: ResultsDirectory) -> None:
    wanted = (RoofRequest(name="triad", ranks=2, transport=""),)
    assert directory.wanted_roofs() == ()
    directory.want_roofs(wanted)
    assert directory.wanted_roofs() == wanted
    for name, value in (("n1", 1e10), ("n2", 2e10)):
        roof = MeasuredRoof(
            name="triad",
            ranks=2,
            transport="",
            value=value,
            unit="B/s",
            better=Better.HIGHER,
            measured=1.0,
            how="stream",
        )
        Node(directory, name).describe(**description(), roofs=[roof_record(roof)])
    (found,) = directory.roofs()
    assert found.value == 2e10 and found.rounds == 2
    nodes: dict[str, Any] = dict(directory.nodes())
    assert {n["roofs"][0]["value"] for n in nodes.values()} == {1e10, 2e10}


def test_the_description_of_a_node_names_its_worker(directory: ResultsDirectory) -> None:
    nameless = directory.path / "nodes" / "x.json"
    nameless.parent.mkdir(exist_ok=True)
    nameless.write_text('{"node": "n1"}')
    with pytest.raises(RecordsError, match="no worker is named"):
        directory.nodes()
