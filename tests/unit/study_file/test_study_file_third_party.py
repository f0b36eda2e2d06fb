"""A backend with virtual machines of another package: a study file takes it as it takes our own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint

import pytest
from tests.unit.study_file.test_study_file_inside import CATALOG

from nearmetal import plugins
from nearmetal.environments import GUEST_ATTACHMENTS, KERNEL, OWN_ALL, Capabilities
from nearmetal.errors import StudyError
from nearmetal.model.capabilities import ENTRY_POINTS
from nearmetal.model.environments.environment import BackendSettings, Environment
from nearmetal.model.environments.guest import GuestSettings
from nearmetal.model.keys import SIZE, SOME_TEXT, key
from nearmetal.model.study import Attachment, Study
from nearmetal.study_file import dump_study, explain, json_schema, load_text


@dataclass(frozen=True, kw_only=True)
class HiveSettings(BackendSettings):
    section = "hive"
    title = "the hive"
    doc = "of a guest of the hive"
    example = {"loader": "uefi"}  # noqa: RUF012  a ClassVar of the base

    loader: str = field(default="bios", metadata=key(SOME_TEXT, "what boots it", "uefi"))
    buffer: int | None = field(default=None, metadata=key(SIZE, "of its disk", "1 MiB"))


class Hive:
    """What a package has in its one file, without what starts a guest."""

    name = "hive-vm"
    capabilities = Capabilities(
        own=OWN_ALL | {KERNEL},
        attachments=GUEST_ATTACHMENTS - {Attachment.USER, Attachment.OVS},
        settings=HiveSettings,
        not_of_guest={"numa": "the hive has no NUMA nodes"},
        misfits=lambda e, _given: iter(
            [(("image",), "the hive boots no image host")] if e.image == "host" else []
        ),
    )


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("hive-vm", f"{__name__}:Hive", ENTRY_POINTS)
    known = plugins.points
    monkeypatch.setattr(
        plugins, "points", lambda group: known(group) | ({point.name: point} if group == ENTRY_POINTS else {})
    )


STUDY = """\
name: third
environments:
  native: {backend: native, placements: [1x1]}
  vm:
    backend: hive-vm
    image: own
    attachment: none
    placements: [1x1]
    guest: {memory: 512 MiB}
    hive: {loader: my loader, buffer: 2 MiB}
  box: {backend: namespaces, inside: vm, placements: [1x1]}
placements: {1x1: {instances: 1, tasks: 1}}
workloads: {ep: {kernel: ep, class: S}}
design: {baseline: native, seed: 1}
"""
KNOWN = replace(CATALOG, backends=(*CATALOG.backends, "hive-vm"))


def load(text: str = STUDY) -> Study:
    return load_text(text, "s.yaml", KNOWN)


def test_third_party_backend_takes_guest_and_own_keys_and_encloses_containers() -> None:
    study = load()
    _, vm, box = study.environments
    assert vm.guest == GuestSettings(memory=512 << 20)
    assert vm.own == HiveSettings(loader="my loader", buffer=2 << 20)
    assert (box.inside, box.guest, box.own) == ("vm", vm.guest, None)
    text = dump_study(study, KNOWN)
    assert '    hive:\n      loader: "my loader"\n      buffer: 2 MiB\n' in text
    assert load(text) == load_text(text, "s.yaml", None) == study


def test_keys_of_a_third_party_backend_are_described() -> None:
    assert re.search(r"^ +loader +what boots it\.  Example: uefi  \(default bios\)$", explain(), re.MULTILINE)
    own = json_schema(KNOWN)["$defs"]["Environment"]["properties"]["hive"]
    assert own["description"] == "of a guest of the hive" and own["$ref"] == "#/$defs/HiveSettings"


MISTAKES = (
    (
        "attachment: none",
        "attachment: user",
        "7:17  environments.vm.attachment: only libvirt and qemu can have it; write attachment: none, or",
    ),
    (
        "attachment: none",
        "attachment: ovs",
        "7:17  environments.vm.attachment: hive-vm cannot have it",
    ),
    ("memory: 512 MiB", "numa: 1", "9:13  environments.vm.guest.numa: the hive has no NUMA nodes"),
    ("memory: 512 MiB", "memory: 1 MiB", "9:21  environments.vm.guest.memory: no guest boots in less"),
    ("image: own", "image: host", "6:12  environments.vm.image: the hive boots no image host"),
    ("buffer: 2 MiB", "buffer: 2", "10:39  environments.vm.hive.buffer:"),
    ("buffer: 2 MiB", "bufer: 2", '10:31  environments.vm.hive.bufer: unknown key; did you mean "buffer"?'),
    ("hive: {", "hvie: {", '10:5  environments.vm.hvie: unknown key; did you mean "hive"?'),
    (
        "backend: hive-vm",
        "backend: qemu",
        "10:5  environments.vm.hive: backend qemu is not the hive; write backend: hive-vm, or take this out",
    ),
    (
        "box: {backend: namespaces",
        "box: {backend: hive-vm",
        "backend: hive-vm cannot run inside a guest; write namespaces",
    ),
)


@pytest.mark.parametrize(("old", "new", "told"), MISTAKES, ids=[new for _, new, _ in MISTAKES])
def test_mistakes_in_third_party_keys_are_reported_with_their_line(old: str, new: str, told: str) -> None:
    with pytest.raises(StudyError) as found:
        load(STUDY.replace(old, new))
    assert told in str(found.value)


def test_only_virtual_machines_take_guest() -> None:
    with pytest.raises(StudyError, match="guest is for libvirt, qemu, xen, hive-vm"):
        load(STUDY.replace("backend: hive-vm", "backend: lxc"))


def test_an_environment_without_own_keys_has_none() -> None:
    assert Environment(name="e", backend="hive-vm", placements=()).own is None
