"""Environments inside the guests of another one: what they take from it, and what cannot go together."""

from __future__ import annotations

import pytest

from nearmetal.errors import StudyError
from nearmetal.model.environments.guest import GuestSettings
from nearmetal.model.study import Attachment
from nearmetal.study_file import dump_study, load_text
from nearmetal.study_file.catalog import Catalog

STUDY = """\
name: inside
environments:
  native: {{backend: native, placements: [1x1]}}
  vm: {{backend: qemu, image: own, attachment: none, placements: [1x1], guest: {{memory: 512 MiB}}}}
  box: {{backend: namespaces, inside: vm, placements: [1x1]{more}}}
placements:
  1x1: {{instances: 1, tasks: 1}}
  1x2: {{instances: 1, tasks: 2}}
  2x1: {{instances: 2, tasks: 1}}
  nodes: {{nodes: 2, instances: 1, tasks: 1}}
workloads: {{ep: {{kernel: ep, class: S}}}}
design: {{baseline: native, seed: 1}}
"""
CATALOG = Catalog(
    backends=("native", "namespaces", "lxc", "qemu"), kernels={"ep": {"class": ("S | W", "problem size")}}
)


def test_instance_inside_a_guest_inherits_image_and_guest() -> None:
    for more in ("", ", image: own", ", attachment: loopback", ", storage: {}"):
        study = load_text(STUDY.format(more=more), "s.yaml", CATALOG)
        _, vm, box = study.environments
        assert (box.inside, box.image, box.guest) == ("vm", "own", vm.guest)
        assert box.guest == GuestSettings(memory=512 << 20) and vm.inside is None
        assert load_text(dump_study(study, CATALOG), "s.yaml", CATALOG) == study


MISTAKES = (
    (", attachment: macvlan", "attachment: inside a guest, write one of veth-bridge, host"),
    (
        ", attachment: veth-bridge, network: {rate: 1 Gbit/s}",
        "network: inside a guest, a network has no rate",
    ),
    (", image: other", 'image: its image is that of the guest, "own"'),
    (", limits: {cpu: 50 %}", "limits: a guest has no control groups"),
    (", share: [ipc]", "share: it shares no namespace with its guest"),
    (", storage: {kind: tmpfs, size: 1 MiB}", "storage: no storage tmpfs inside a guest"),
    (", guest: {vcpus: 1}", "guest: namespaces has no virtual machines"),
)


@pytest.mark.parametrize(("more", "told"), MISTAKES, ids=[t.split(":")[0] for _, t in MISTAKES])
def test_key_that_does_not_apply_inside_a_guest_is_reported_with_its_line(more: str, told: str) -> None:
    with pytest.raises(StudyError) as found:
        load_text(STUDY.format(more=more), "s.yaml", CATALOG)
    assert f"environments.box.{told}" in str(found.value) and "s.yaml:5:" in str(found.value)


WRONG = (
    ("inside: vm", "inside: wm", 'inside: unknown environment "wm"; known: native, vm'),
    ("inside: vm", "inside: box", 'inside: unknown environment "box"'),
    ("inside: vm", "inside: native", 'inside: "native" has no virtual machines'),
    ("backend: namespaces", "backend: lxc", "backend: lxc cannot run inside a guest; write namespaces"),
    ("vm, placements: [1x1]", "vm, placements: [2x1]", "by attachment host; write attachment: veth-bridge"),
    (
        "vm, placements: [1x1]",
        "vm, attachment: veth-bridge, placements: [nodes]",
        "one guest holds them all, so it has one node",
    ),
)


@pytest.mark.parametrize(("old", "new", "told"), WRONG, ids=[n for _, n, _ in WRONG])
def test_inside_must_name_another_environment_with_guests(old: str, new: str, told: str) -> None:
    with pytest.raises(StudyError) as found:
        load_text(STUDY.format(more="").replace(old, new), "s.yaml", CATALOG)
    assert told in str(found.value), str(found.value)


def test_several_containers_in_one_guest_have_a_network() -> None:
    text = STUDY.format(more=", attachment: veth-bridge, network: {mtu: 1400, rto_min: 2 ms}")
    text = text.replace("placements: [1x1]", "placements: [1x2]").replace(
        "vm, placements: [1x2]", "vm, placements: [2x1]"
    )
    study = load_text(text, "s.yaml", CATALOG)
    box = study.environments[2]
    assert (box.inside, box.attachment, box.placements) == ("vm", Attachment.VETH_BRIDGE, ("2x1",))
    assert load_text(dump_study(study, CATALOG), "s.yaml", CATALOG) == study
    with pytest.raises(StudyError, match="the containers in a guest are reached by an agent only"):
        load_text(text.replace("seed: 1", "seed: 1, reach: ssh"), "s.yaml", CATALOG)


def test_a_kernel_is_a_file_or_an_image() -> None:
    text = STUDY.format(more="")
    for kernel in ("trixie-kernel", "/boot/vmlinuz-6.12"):
        study = load_text(text.replace("memory: 512 MiB", f"kernel: {kernel}"), "s.yaml", CATALOG)
        guest = study.environments[1].guest
        assert guest is not None and guest.kernel_image == (None if "/" in kernel else kernel)
    strict = Catalog(
        backends=CATALOG.backends,
        kernels=CATALOG.kernels,
        no_image=lambda name, _own, _file: f"no {name}" if name == "nowhere" else None,
    )
    for mistake, told in (
        ("kernel: nowhere", "vm.guest.kernel: no nowhere"),
        ("kernel: boot/k", "is not an absolute path"),
        ("kernel: trixie-kernel, modules: /lib/modules/6", "modules are of a kernel of your own"),
    ):
        with pytest.raises(StudyError, match=told):
            load_text(text.replace("memory: 512 MiB", mistake), "s.yaml", strict)
