"""Every subject is found the same way, by its entry point; a study file names only those of events."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nearmetal import plugins
from nearmetal.errors import StudyError, UsageError
from nearmetal.model.keys import COUNT, key_or
from nearmetal.model.study import (
    ApplicationWorkload,
    CommandWorkload,
    EventSubject,
    KernelWorkload,
    SubjectFacts,
    Workload,
)
from nearmetal.study_file import load_text
from nearmetal.study_file.catalog import loaded_subjects, subject_facts, subject_names
from nearmetal.study_file.explain import explain
from nearmetal.study_file.sections.workload import event_section
from nearmetal.subjects.contract import Subject
from nearmetal.subjects.kernel import Kernels
from nearmetal.subjects.program import Programs
from nearmetal.subjects.registry import subject_of, subjects_of
from nearmetal.subjects.start_stop import StartStop

CG = KernelWorkload(name="cg", kernel="cg", params={})
OWN = CommandWorkload(name="own", argv=("true",))
HPCC = ApplicationWorkload(name="hpcc", application="hpcc")
FACTS = [subject_facts(name) for name in subject_names()]
START = EventSubject(name="boot", facts=subject_facts("start"))


@pytest.mark.parametrize(
    ("workload", "subject"), [(CG, Kernels), (OWN, Programs), (HPCC, Programs), (START, StartStop)]
)
def test_each_workload_has_a_subject(workload: Workload, subject: type[Subject]) -> None:
    assert subject_of(workload) is subject


def test_subjects_take_turns_in_their_order() -> None:
    assert subjects_of([OWN, CG, START, HPCC]) == [
        (StartStop, [START]),
        (Kernels, [CG]),
        (Programs, [OWN, HPCC]),
    ]


def test_a_subject_that_is_not_installed_is_named() -> None:
    with pytest.raises(UsageError, match="no subject 'ending'"):
        subject_of(EventSubject(name="e", facts=SubjectFacts(name="ending", metrics=("m",))))


@pytest.mark.parametrize("name", subject_names())
def test_a_subject_documents_its_event(name: str) -> None:
    facts = subject_facts(name)
    assert facts.doc and f"{name}: {facts.doc}" in " ".join(explain().split())
    assert facts.quantiles == facts.plurals.keys(), "the charts of their times name the events"


def test_a_subject_that_does_not_load_is_not_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> SubjectFacts:
        if name == "exec":
            raise UsageError("subject 'exec' does not load")
        return subject_facts(name)

    monkeypatch.setattr("nearmetal.study_file.catalog.subject_facts", fails)
    names = {facts.name for facts in loaded_subjects()}
    assert "exec" not in names and "start" in names


@dataclass(frozen=True, kw_only=True)
class OtherMemory(EventSubject):
    memory: int = key_or(0, COUNT, "other: number of its memories", 3)


def test_two_subjects_may_share_a_key_only_with_one_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SubjectFacts(name="other", metrics=("m",), workload=OtherMemory)
    monkeypatch.setattr("nearmetal.study_file.sections.workload.loaded_subjects", lambda: [*FACTS, other])
    with pytest.raises(UsageError, match="subjects checkpoint and other declare the key memory differently"):
        event_section.__wrapped__()


def test_a_subject_whose_entry_point_has_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "load_class", lambda *_: StartStop)
    with pytest.raises(UsageError, match="boot: its class StartStop has the facts of start or stop"):
        subject_facts("boot")


def test_a_study_file_names_no_subject_of_kernels_or_programs() -> None:
    assert {"start", "stop"} <= set(subject_names())
    text = (
        "name: s\nenvironments: {native: {backend: native}}\nplacements: {one: {instances: 1, tasks: 1}}\n"
        "workloads: {w: {subject: kernels}}\ndesign: {baseline: native}\n"
    )
    with pytest.raises(StudyError, match='unknown value "kernels"'):
        load_text(text, "s.yaml", None)
