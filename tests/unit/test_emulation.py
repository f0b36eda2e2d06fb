"""Machines that are emulated, and a Xen that stands on none: found, kept in the study, said in every form."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.analysis.two_level import compare_states
from nearmetal.api.catalog import catalog
from nearmetal.environments import Tools
from nearmetal.environments.cpuid import hypervisors
from nearmetal.environments.xen import backend as xen_backend
from nearmetal.environments.xen.backend import Xen
from nearmetal.model.environments.guest import GuestSettings, labels_emulator
from nearmetal.model.environments.placement import NodeKind
from nearmetal.model.study import Arm, Attachment, Environment, Placement
from nearmetal.node.progress import NullProgress
from nearmetal.node.survey.emulation import with_emulation
from nearmetal.report.forms.csv_form import csv_text
from nearmetal.report.forms.json_form import json_form
from nearmetal.report.forms.latex import latex_text
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.forms.terminal import terminal_text
from nearmetal.report.tables.emulation import emulation_sentences
from nearmetal.study_file import dump_study, load_text
from nearmetal.subjects.kernel import ready_limit
from nearmetal.subjects.launches.job import READY_LIMIT
from nearmetal.testing.fake_host import Answer, FakeHost

INFO = (
    "xen_major : 4\nxen_minor : 17\nxen_extra : .3\nhw_caps                : 078bf3fd:{}:20100800:00000005\n"
)
DMI = {"/sys/class/dmi/id/sys_vendor": "QEMU\n", "/sys/class/dmi/id/product_name": "Standard PC (Q35)\n"}
TOOLS = Tools(directory=Path("/t"))
LIBVIRT_STEP = ("/t/nm-box", "cpuid")
TCG = '{"hypervisors": ["TCGTCGTCGTCG"]}'
IN_XEN = "Xen in TCG: QEMU Standard PC (Q35)"


class Told(NullProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class OnlyHost:
    """Of node.machine.Machine what is looked at."""

    host: FakeHost
    tools: Tools = TOOLS


def dom0(monkeypatch: pytest.MonkeyPatch, caps: str, below: str | None) -> FakeHost:
    commands: dict[tuple[str, ...], Answer] = {("xl", "info"): INFO.format(caps)}
    if below is not None:
        commands[LIBVIRT_STEP] = below
    host = FakeHost(
        files=DMI,
        commands=commands,
        programs={"xl": "/usr/sbin/xl"},
        name=f"dom0 {caps} {below}",
    )
    monkeypatch.setattr(xen_backend, "visited", lambda *_: nullcontext(host))
    return host


@pytest.mark.parametrize(
    ("caps", "below", "told"),
    [
        ("80982201", TCG, IN_XEN),
        (
            "80982201",
            '{"hypervisors": ["KVMKVMKVM"]}',
            "Xen in a virtual machine: KVM, QEMU Standard PC (Q35)",
        ),
        ("80982201", '{"hypervisors": ["XenVMMXenVMM"]}', "Xen in a virtual machine: QEMU Standard PC (Q35)"),
        ("80982201", "no JSON", "Xen in a virtual machine: QEMU Standard PC (Q35)"),
        ("00982201", None, ""),
    ],
)
def test_hypervisor_below_xen_is_named(
    monkeypatch: pytest.MonkeyPatch, caps: str, below: str | None, told: str
) -> None:
    host = dom0(monkeypatch, caps, below)
    assert Xen().nested(host, TOOLS, sample.study().environments[0]) == told


def test_an_answer_that_is_none_names_no_hypervisor() -> None:
    for text in ("", "[]", '{"hypervisors": 3}', '{"other": []}'):
        assert hypervisors(FakeHost(commands={LIBVIRT_STEP: text}), "/t/nm-box") == ()


def test_every_environment_says_by_what_it_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    host = dom0(monkeypatch, "80982201", TCG)
    native, *rest = sample.study().environments
    pv = Environment(
        name="pv", backend="xen", image="small", attachment=Attachment.NONE, placements=native.placements
    )
    named = tuple(w for w in sample.study().workloads if w.name == "pingpong")
    study = replace(sample.study(), environments=(native, *rest, pv), workloads=named)
    said = Told()
    machine: Any = OnlyHost(host)
    found = with_emulation(machine, study, said)
    labels = {e.name: e.emulation for e in found.environments}
    assert labels.pop("pv") == IN_XEN
    assert set(labels.values()) == {"TCG: QEMU Standard PC (Q35)"}
    assert [n for n in said.notes if n.startswith(f"warning: pv: {IN_XEN}; every figure is of that")]
    again = load_text(dump_study(found, catalog()), "s.yaml", None, seed=7)
    assert [e.emulated for e in again.environments] == [e.emulated for e in found.environments]


def test_no_emulation_is_noted_on_a_machine_that_is_not_emulated() -> None:
    host = FakeHost(commands={LIBVIRT_STEP: '{"hypervisors": ["KVMKVMKVM"]}'}, name="a virtual machine")
    machine: Any = OnlyHost(host)
    said = Told()
    assert with_emulation(machine, sample.study(), said) == sample.study() and said.notes == []


def test_the_kind_of_several_nodes_is_recorded_by_who_makes_them() -> None:
    place = replace(sample.study().placements[0], name="nodes", nodes=2, cpus=())
    named = tuple(w for w in sample.study().workloads if w.name == "pingpong")
    study = replace(sample.study(), placements=(*sample.study().placements, place), workloads=named)
    machine: Any = OnlyHost(FakeHost(commands={LIBVIRT_STEP: '{"hypervisors": []}'}, name="a machine"))
    found = with_emulation(machine, study, Told())
    kinds = {p.name: p.node_kind for p in found.placements}
    assert kinds.pop("nodes") is NodeKind.EMULATED and set(kinds.values()) == {None}
    assert load_text(dump_study(found, catalog()), "s.yaml", None, seed=7).placements == found.placements


def test_nodes_are_emulated_by_their_recorded_kind_and_not_by_their_number() -> None:
    several = Placement(name="n", nodes=3, instances=1, tasks=1)
    assert several.node.emulated, "a study from before the kind was recorded"
    assert not replace(several, node_kind=NodeKind.MACHINE).node.emulated
    assert replace(several, nodes=1, node_kind=NodeKind.EMULATED).node.emulated


def test_every_form_says_so() -> None:
    plain = sample.analysis()
    study = replace(
        sample.study(),
        environments=tuple(replace(e, emulated=IN_XEN) for e in sample.study().environments),
    )
    floor = replace(plain.noise_floor, cells=tuple(replace(c, guest=IN_XEN) for c in plain.noise_floor.cells))
    analysis = replace(plain, cells=tuple(replace(c, guest=IN_XEN) for c in plain.cells), noise_floor=floor)
    forms: dict[str, Any] = {
        "terminal": terminal_text(study, analysis, results_dir="r", report=None, width=100),
        "markdown": markdown_text(study, analysis),
        "latex": latex_text(study, analysis),
    }
    for name, text in forms.items():
        said = " ".join(str(text).split())
        assert "(Xen in TCG)" in said and f"({IN_XEN}) are emulated" in said, name
    assert csv_text(analysis).count(IN_XEN) >= len(analysis.cells)
    form: Any = json_form(study, analysis, results_dir="r", report=None)
    assert all(c["guest"] == IN_XEN for c in form["cells"])
    assert any(f"({IN_XEN}) are emulated" in text for text in form["warnings"])


def test_a_comparison_of_boots_says_so() -> None:
    plain = sample.analysis()
    emulated = replace(plain, cells=tuple(replace(c, guest=IN_XEN) for c in plain.cells))
    cells = compare_states([[plain], [plain]], [[emulated], [emulated]], margin=0.03, confidence=0.95)
    labelled = [c for c in cells if c.guest]
    assert labelled and {c.guest for c in labelled} == {IN_XEN}
    several = {c.arm for c in labelled}
    assert len(several) > 1
    (sentence,) = emulation_sentences((c.arm, c.guest) for c in cells)
    assert f"({IN_XEN}) are emulated: their figures" in sentence and all(arm in sentence for arm in several)
    alone = [(c.arm, c.guest) for c in labelled if c.arm == labelled[0].arm]
    (sentence,) = emulation_sentences(alone)
    assert f"{labelled[0].arm} ({IN_XEN}) is emulated: its figures" in sentence


def test_ranks_have_as_long_to_start_as_the_slowest_guest_to_boot() -> None:
    def limit(*guests: GuestSettings | None) -> float:
        environments = [replace(sample.study().environments[0], guest=guest) for guest in guests]
        return ready_limit(Arm(environment=e, placement=sample.study().placements[0]) for e in environments)

    assert limit(None) == limit(None, GuestSettings(boot_timeout=20)) == READY_LIMIT
    assert limit(None, GuestSettings(boot_timeout=240), GuestSettings(boot_timeout=20)) == 240


@pytest.mark.parametrize(
    ("label", "emulated"),
    [
        ("TCG, no KVM: /dev/kvm is missing", True),
        ("TCG: QEMU Standard PC (Q35)", True),
        (IN_XEN, True),
        ("Xen in a virtual machine: KVM, TCG Systems Model 3", False),
        ("", False),
    ],
)
def test_the_name_of_a_machine_is_no_emulator(label: str, emulated: bool) -> None:
    assert labels_emulator(label) is emulated
