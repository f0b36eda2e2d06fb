"""The keys of a virtual machine: what they stand for, and every combination that no guest can have."""

from __future__ import annotations

import pytest

from nearmetal.errors import StudyError
from nearmetal.model.environments.guest import Accelerator, Aio, Cache, GuestSettings, MachineType, Nic
from nearmetal.study_file import dump_study, load_text
from nearmetal.study_file.catalog import Catalog

STUDY = """\
name: guests
environments:
  native: {{backend: native, placements: [1x1]}}
  vm: {{backend: qemu, attachment: none, placements: [1x1]{more}}}
placements: {{1x1: {{instances: 1, tasks: 1}}}}
workloads: {{ep: {{kernel: ep, class: S}}}}
design: {{baseline: native, seed: 1}}
"""
CATALOG = Catalog(
    backends=("native", "namespaces", "qemu"), kernels={"ep": {"class": ("S | W", "problem size")}}
)


def loaded(more: str) -> GuestSettings | None:
    study = load_text(STUDY.format(more=more), "s.yaml", CATALOG)
    again = load_text(dump_study(study, CATALOG), "s.yaml", CATALOG)
    assert again == study
    return study.environments[1].guest


def test_keys_are_read_and_written_out_again() -> None:
    assert loaded("") is None
    assert loaded(", guest: {accelerator: auto}") == GuestSettings()
    full = (
        ", image: own, guest: {accelerator: tcg, machine: microvm, memory: 512 MiB, vcpus: 2, cpu: Haswell,"
        " huge_pages: true, pin: false, format: qcow2, cache: none, aio: native, snapshot: true,"
        " writable: 1 GiB, swap: 64 MiB, boot_timeout: 2 min, no_kvm: 'it: hangs',"
        " kernel: /boot/k, modules: /lib/modules/1}"
    )
    found = loaded(full)
    assert found is not None
    assert (found.accelerator, found.machine, found.aio, found.cache) == (
        Accelerator.TCG,
        MachineType.MICROVM,
        Aio.NATIVE,
        Cache.NONE,
    )
    assert found.memory == 512 << 20 and found.boot_timeout == 120 and found.label == "TCG, no KVM: it: hangs"
    assert loaded(", guest: {disk: /srv/a.qcow2, format: qcow2, root_device: /dev/vda1}") is not None


MISTAKES = (
    (", guest: {memory: 10 MiB}", "guest.memory: no guest boots in less than"),
    (", guest: {memory: 100000001 B}", "guest.memory: a guest's memory is a whole number of MiB"),
    (", guest: {cpu: host, accelerator: tcg}", "guest.cpu: cpu host needs accelerator kvm"),
    (", guest: {numa: 2, vcpus: 1}", "guest.numa: 2 NUMA nodes"),
    (", guest: {nic: virtio}", "guest.nic: attachment none has no network card"),
    (", guest: {machine: microvm}", "guest.machine: microvm cannot share the files"),
    (", image: own, guest: {machine: microvm, numa: 2}", "guest.numa: microvm has no NUMA"),
    (", image: own, guest: {machine: microvm, vfio: '0000:01:00.0'}", "guest.vfio: microvm has no PCI"),
    (", guest: {vfio: 'eth0'}", 'guest.vfio: "eth0" is not a PCI address'),
    (", guest: {writable: 1 GiB, aio: native}", "guest.aio: aio native needs cache none"),
    (", guest: {modules: /lib/modules/6}", "guest.modules: modules are of a kernel of your own"),
    (", guest: {root_device: /dev/vda1}", "guest.root_device: root_device is of a disk of your own"),
    (", image: own, guest: {disk: /srv/a}", "guest.disk: a disk of your own takes the place of image own"),
    (", guest: {disk: a.qcow2}", 'guest.disk: "a.qcow2" is not an absolute path'),
    (", guest: {cache: none}", "guest.cache: it has no disk"),
    (", guest: {start: restored}", "guest.start: no checkpoint holds image host"),
    (", image: own, guest: {start: restored, swap: 8 MiB}", "guest.start: no checkpoint holds disks"),
    (", guest: {speed: 3}", "guest.speed: unknown key"),
    (", guest: {machine: pc}", 'guest.machine: unknown value "pc"'),
    (", share: [ipc]", "share: a guest shares no namespace"),
    (", limits: {memory: 1 GiB}", "limits.memory: a guest has the memory that it is given"),
    (", storage: {kind: tmpfs}", "storage.kind: a guest has no storage tmpfs"),
)


@pytest.mark.parametrize(("more", "told"), MISTAKES, ids=[t.split(":")[0] for _, t in MISTAKES])
def test_impossible_combination_of_guest_keys_is_reported_with_its_place(more: str, told: str) -> None:
    with pytest.raises(StudyError) as found:
        load_text(STUDY.format(more=more), "s.yaml", CATALOG)
    said = str(found.value)
    assert f"environments.vm.{told}" in said and "s.yaml:4:" in said, said


def test_networks_that_no_guest_has_and_guests_that_no_container_has() -> None:
    for attachment, told in (("host", "machine's own network"), ("ipvlan", "ipvlan delivers")):
        text = STUDY.format(more="").replace("attachment: none", f"attachment: {attachment}")
        with pytest.raises(StudyError, match=told):
            load_text(text, "s.yaml", CATALOG)
    with pytest.raises(StudyError, match="namespaces has no virtual machines"):
        load_text(STUDY.format(more=", guest: {vcpus: 1}").replace("qemu", "namespaces"), "s.yaml", CATALOG)
    text = STUDY.format(more=", guest: {nic: e1000}").replace("attachment: none", "attachment: veth-bridge")
    study = load_text(text, "s.yaml", CATALOG)
    assert study.environments[1].guest == GuestSettings(nic=Nic.E1000)


ATTACHED = """\
name: guests
environments:
  native: {{backend: native, placements: [1x1, 1x2]}}
  one: {{backend: {backend}, attachment: {attachment}, placements: [{place}]{more}}}
placements:
  1x1: {{instances: 1, tasks: 1}}
  1x2: {{instances: 1, tasks: 2}}
  2x1: {{instances: 2, tasks: 1}}
workloads: {{ep: {{kernel: ep, class: S}}}}
design: {{baseline: native, seed: 1}}
"""


@pytest.mark.parametrize(
    ("backend", "attachment", "place", "more", "told"),
    [
        (
            "namespaces",
            "macvtap",
            "1x1",
            "",
            "4:42  environments.one.attachment: only qemu can have it; write attachment: macvlan",
        ),
        (
            "namespaces",
            "user",
            "1x1",
            "",
            "4:42  environments.one.attachment: only libvirt and qemu can have",
        ),
        ("xen", "macvtap", "1x1", "", "4:35  environments.one.attachment: only qemu can have it"),
        ("native", "user", "1x1", "", "4:38  environments.one.attachment: native is the machine itself"),
        ("qemu", "user", "2x1", "", "cannot reach each other by attachment user"),
        ("qemu", "user", "1x1", ", network: {mtu: 1400}", "attachment user has no network that is built"),
        ("qemu", "macvtap", "2x1", ", network: {mode: l2}", 'attachment macvtap has no mode "l2"'),
        (
            "qemu",
            "macvtap",
            "2x1",
            ", network: {mtu: 9000}, guest: {nic: rtl8139}",
            "environments.one.guest.nic: rtl8139 carries at most 4096 bytes",
        ),
    ],
)
def test_attachments_of_qemu_alone(backend: str, attachment: str, place: str, more: str, told: str) -> None:
    catalog = Catalog(backends=("native", "namespaces", "qemu", "xen"), kernels=CATALOG.kernels)
    text = ATTACHED.format(backend=backend, attachment=attachment, place=place, more=more)
    with pytest.raises(StudyError) as caught:
        load_text(text, "s.yaml", catalog)
    assert told in str(caught.value), str(caught.value)


def test_a_guest_has_a_card_in_user_mode_and_by_macvtap() -> None:
    for attachment, place in (("user", "1x1"), ("macvtap", "2x1")):
        more = ", guest: {nic: e1000}"
        text = ATTACHED.format(backend="qemu", attachment=attachment, place=place, more=more)
        study = load_text(text, "s.yaml", CATALOG)
        assert load_text(dump_study(study, CATALOG), "s.yaml", CATALOG) == study
        assert study.environments[1].attachment.value == attachment
