"""Boot times: a machine's own records read, whatever they hold; guests' starts as a table beside them."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host import Completed
from nearmetal.host.facts.boot_records import (
    boot_records,
    journal_gaps,
    seconds_of,
    systemd_phases,
    wtmp_gaps,
)
from nearmetal.model.change import replace
from nearmetal.model.record import JsonValue, Row, Status, TrialRecord
from nearmetal.model.study import Attachment, Better, Design, Environment, Placement, Study
from nearmetal.published import published
from nearmetal.report.record_index import RecordIndex
from nearmetal.report.sheet import markdown_of, text_of
from nearmetal.report.tables.papers.boot import boot_leaf, steps_of
from nearmetal.testing.fake_host import FakeHost
from nearmetal.testing.simulate import PLAIN

ANALYZE = ("systemd-analyze", "time", "--no-pager")
JOURNAL = ("journalctl", "--utc", "--no-pager", "--list-boots")
LAST = ("last", "-x", "-F", "shutdown")
STARTUP = """\
Startup finished in 7.601s (firmware) + 2.7s (loader) + 901ms (kernel) + 1min 14.1s (userspace) = 1min 25.302s
graphical.target reached after 14.051s in userspace.
"""
NEW_JOURNAL = """\
IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY
 -2 0123456789abcdef0123456789abcdef Mon 2023-11-20 10:00:00 UTC Mon 2023-11-20 12:00:00 UTC
 -1 1123456789abcdef0123456789abcdef Mon 2023-11-20 12:00:43 UTC Mon 2023-11-20 13:00:00 UTC
  0 2123456789abcdef0123456789abcdef Tue 2023-11-21 12:00:43 UTC Tue 2023-11-21 13:00:00 UTC
"""
OLD_JOURNAL = """\
-1 0123456789abcdef0123456789abcdef Mon 2023-11-20 10:00:00 UTC—Mon 2023-11-20 12:00:00 UTC
 0 1123456789abcdef0123456789abcdef Mon 2023-11-20 12:00:43 UTC—Mon 2023-11-20 13:00:00 UTC
"""
WTMP = """\
shutdown system down  6.1.0-13-amd64   Mon Nov 20 09:58:00 2023 - Mon Nov 20 10:00:05 2023  (00:02)
shutdown system down  6.1.0-12-amd64   Thu Nov  2 09:58:00 2023 - Mon Nov 20 09:00:00 2023  (17+23:02)
reboot   system boot  6.1.0-12-amd64   Thu Nov  2 09:50:00 2023 - Thu Nov  2 09:58:00 2023  (00:08)

wtmp begins Thu Nov  2 09:50:00 2023
"""


def failed(text: str) -> Completed:
    return Completed(argv=(), returncode=1, stdout="", stderr=text, seconds=0.0)


def test_boot_times_of_systemd_are_parsed() -> None:
    assert systemd_phases(STARTUP) == pytest.approx(
        {"firmware": 7.601, "loader": 2.7, "kernel": 0.901, "userspace": 74.1, "whole": 85.302}
    )
    assert systemd_phases("Bootup is not yet finished. Please try again later.") == {}
    assert seconds_of("2h 1min 3us") == pytest.approx(7260.000003) and seconds_of("3 apples") is None


def test_reboots_are_the_gaps_between_boots() -> None:
    assert journal_gaps(NEW_JOURNAL) == [43.0], "a day off is no reboot"
    assert journal_gaps(OLD_JOURNAL) == [43.0]
    assert wtmp_gaps(WTMP) == [125.0]
    assert (
        wtmp_gaps("shutdown system down  6 Mon Feb 31 09:58:00 2023 - Mon Nov 20 10:00:05 2023  (00:02)")
        == []
    )


@given(st.text() | st.text(alphabet=string.digits + "smin .()+=-: \n—", max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    phases = systemd_phases(f"Startup finished in {text}")
    assert all(v >= 0 for v in phases.values()) and ("whole" in phases or not phases)
    assert all(0 < g <= 3600 for g in (*journal_gaps(text), *wtmp_gaps(f"shutdown system down {text}")))


@given(st.lists(st.sampled_from([*STARTUP, *OLD_JOURNAL, *WTMP]), max_size=200).map("".join))
def test_pieces_of_records_are_read_without_an_error(text: str) -> None:
    for whole in (STARTUP, OLD_JOURNAL, WTMP):
        torn = whole[: len(text)] + text + whole[len(text) :]
        assert all(v >= 0 for v in systemd_phases(torn).values())
        assert all(0 < g <= 3600 for g in (*journal_gaps(torn), *wtmp_gaps(torn)))


def test_missing_sources_of_boot_times_are_reported() -> None:
    every = {name: f"/bin/{name}" for name in (ANALYZE[0], JOURNAL[0], LAST[0])}
    told: dict[tuple[str, ...], Any] = {ANALYZE: STARTUP, JOURNAL: NEW_JOURNAL}
    found = boot_records(FakeHost(programs=every, commands=told))
    assert found["phases"]["kernel"] == 0.901 and found["absent"] == {}
    assert (found["source"], found["reboots"]) == ("journal", [43.0])
    none: dict[tuple[str, ...], Any] = {
        ANALYZE: failed("System has not been booted with systemd"),
        JOURNAL: "No journal files were found.\n",
        LAST: WTMP,
    }
    found = boot_records(FakeHost(programs=every, commands=none))
    assert (found["phases"], found["source"], found["reboots"]) == (None, "wtmp", [125.0])
    assert found["absent"] == {
        "systemd-analyze": "systemd-analyze ended with 1: System has not been booted with systemd",
        "journal": "it has no record of it",
    }
    found = boot_records(FakeHost(missing=("systemd-analyze", "journalctl", "last")))
    assert found["phases"] is found["reboots"] is found["source"] is None
    assert found["absent"]["wtmp"] == "last is not installed"


def test_the_paper_is_carried_as_printed() -> None:
    paper = published("virtual-cluster-2009")
    assert paper is not None
    boots = [f for f in paper.figures if f.phase.startswith("boot.")]
    assert {f.source for f in boots} == {"Table 1"}
    of = {(f.arm, f.phase): f.low for f in boots}
    assert of["virtual machine", "boot.mean"] == 65.5 and of["physical node, in all", "boot.minimum"] == 160
    assert len(of) == 15


def trial(block: int, phases: dict[str, float], rows: tuple[Row, ...] = ()) -> TrialRecord:
    return replace(PLAIN, trial=f"t{block}", block=block, arm="vm/1x1", rows=rows, phases=phases, counters={})


PHASES = {
    "start.kernel": 0.8,
    "start.agent": 0.1,
    "start.first_instruction": 3.0,
    "start.first_command": 0.05,
}
STUDY = Study(
    name="s",
    question="",
    environments=(
        Environment(name="native", backend="native", placements=("1x1",)),
        Environment(name="vm", backend="qemu", attachment=Attachment.NONE, placements=("1x1",)),
    ),
    placements=(Placement(name="1x1", instances=1, tasks=1),),
    workloads=(),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=1),
)


def test_starts_are_those_of_a_subject_else_of_the_trials() -> None:
    assert steps_of([trial(1, PHASES), trial(2, PHASES)])["kernel"] == [0.8, 0.8]
    row = Row(
        workload="boot",
        metric="start",
        unit="s",
        better=Better.LOWER,
        values=(3.0, 4.0, 5.0),
        status=Status.OK,
        parts={"step.kernel": (1.0, 2.0, 3.0), "step.agent": (0.1, 0.1, 0.1)},
    )
    found = steps_of([trial(1, PHASES, (row,))])
    assert found["kernel"] == [1.0, 2.0, 3.0] and found["first_instruction"] == [3.0, 4.0, 5.0]
    assert found["first_command"] == [0.05]


def test_boots_stand_in_the_form_of_the_paper_beside_the_node_and_the_paper() -> None:
    records = RecordIndex([trial(1, PHASES), trial(2, {**PHASES, "start.first_instruction": 4.0})])
    boots: JsonValue = {
        "phases": {"kernel": 0.9, "whole": 85.3},
        "reboots": [43.0, 45.0],
        "source": "journal",
        "absent": {"wtmp": "last is not installed"},
    }
    leaf = boot_leaf(STUDY, records, {"boots": boots})
    assert leaf is not None
    text, markdown = text_of(leaf), markdown_of(leaf)
    for said in (text, markdown):
        assert "minimum" in said and "standard deviation" in said
        assert "wtmp: last is not installed" in said and "M. Fenn" in said
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert "in all, until ready 3 3.5 4 3.5 0.707 2" in lines
    assert "physical reboot, by its journal 43 44 45 44 1.41 2" in lines
    assert "first command 0.05 0.05 0.05 0.05 0 2" in lines
    assert "virtual machine 61.2 65.4 70.2 65.5 2.54" in lines
    assert boot_leaf(STUDY, RecordIndex([trial(1, {"start.exec": 0.1})]), {}) is None
    assert "Of several guests" not in text
    pair = replace(STUDY, placements=(replace(STUDY.placements[0], instances=2),))
    leaf = boot_leaf(pair, records, {})
    assert leaf is not None and "If an environment has several guests" in text_of(leaf)


@pytest.mark.parametrize(
    ("backend", "step", "words"),
    [
        ("qemu", "program", "QEMU"),
        ("libvirt", "libvirt", "libvirt, until it runs"),
        ("of-another-machine", "program", "program of the hypervisor"),
    ],
)
def test_a_backend_has_words_for_the_steps_of_its_own(backend: str, step: str, words: str) -> None:
    vm = replace(STUDY.environments[1], backend=backend)
    study = replace(STUDY, environments=(STUDY.environments[0], vm))
    phases = {"start.prepare": 0.2, f"start.{step}": 0.5, **PHASES}
    leaf = boot_leaf(study, RecordIndex([trial(1, phases)]), {})
    assert leaf is not None
    lines = [" ".join(line.split()) for line in text_of(leaf).splitlines()]
    at = lines.index(f"{words} 0.5 0.5 0.5 0.5 not known 1")
    assert lines[at - 1].startswith("until the hypervisor was called")
    assert lines[at + 1].startswith("kernel 0.8")
