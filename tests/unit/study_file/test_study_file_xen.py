"""Guests of Xen in study files: read, written out again, and every mistake at its place."""

from __future__ import annotations

import pytest
from tests.unit.study_file.test_study_file_load import problems

from nearmetal.environments.xen.settings import Dom0, XenDisk, XenDiskKind, XenScheduler, XenSettings, XenType
from nearmetal.model.environments.guest import MIB
from nearmetal.study_file import Catalog, dump_study, load_text

STUDY = """\
name: guests
environments:
  native: {{backend: native}}
  vm:
    backend: {backend}
    image: {image}
    attachment: {attachment}
    guest: {guest}
    xen: {xen}
placements:
  1x1: {{instances: 1, tasks: 1}}
workloads:
  triad: {{kernel: stream}}
design: {{baseline: native}}
"""


@pytest.fixture
def known(catalog: Catalog) -> Catalog:
    from dataclasses import replace

    return replace(catalog, backends=(*catalog.backends, "xen", "qemu"))


def text(
    *,
    backend: str = "xen",
    image: str = "debian-mpi",
    attachment: str = "none",
    guest: str = "{memory: 256 MiB}",
    xen: str = "{}",
) -> str:
    return STUDY.format(backend=backend, image=image, attachment=attachment, guest=guest, xen=xen)


FULL = (
    "{type: pv, dom0: {host: root@node7, ssh_config: /etc/a b}, scheduler: credit2, weight: 512, cap: 50, "
    "bridge: xenbr0, disk: {kind: lvm, path: vg0}}"
)


def test_every_key_is_read_and_written_out_again() -> None:
    study = load_text(text(xen=FULL, guest="{writable: 64 MiB, swap: 1 MiB}"), "s.yaml", None, seed=1)
    vm = next(e for e in study.environments if e.name == "vm")
    assert vm.guest is not None and vm.guest.writable == 64 * MIB
    assert vm.own == XenSettings(
        type=XenType.PV,
        dom0=Dom0(destination="root@node7", config="/etc/a b"),
        scheduler=XenScheduler.CREDIT2,
        weight=512,
        cap=50,
        bridge="xenbr0",
        disk=XenDisk(kind=XenDiskKind.LVM, path="vg0"),
    )


@pytest.mark.parametrize("xen", ["{}", FULL, "{disk: {kind: block, path: /dev/sdb, overwrite: true}}"])
def test_a_study_goes_round(xen: str, known: Catalog) -> None:
    study = load_text(text(xen=xen, guest="{writable: 1 GiB}"), "s.yaml", None, seed=1)
    assert load_text(dump_study(study, known), "again.yaml", None, seed=1) == study


@pytest.mark.parametrize(
    ("fields", "where", "what"),
    [
        ({"xen": "{type: pvv}"}, "9:17", '"pvv"'),
        ({"xen": "{weight: 0}"}, "9:19", "0 is not between 1 and 65535"),
        ({"xen": "{dom0: {host: -oProxyCommand=x}}"}, "9:24", "is not a destination of ssh"),
        ({"xen": "{bridge: a/b}"}, "9:19", "a/b"),
        ({"backend": "qemu"}, "9:5", "backend qemu is not Xen"),
        ({"image": "host"}, "6:12", "no image host"),
        (
            {"guest": "{memory: 256 MiB, nic: e1000}"},
            "8:30",
            "its card is paravirtual; nic is for libvirt or qemu",
        ),
        (
            {"guest": "{machine: q35}"},
            "8:13",
            "write xen: type; machine is for libvirt or qemu",
        ),
        ({"attachment": "veth-bridge", "xen": "{bridge: br0}"}, "9:19", "gives it an interface already"),
        (
            {"attachment": "veth-bridge", "xen": "{dom0: {host: far}}"},
            "9:17",
            "does not reach a guest on far",
        ),
        ({"xen": "{disk: {kind: lvm, path: vg0}}"}, "9:17", "has no disk of its own"),
        (
            {"xen": "{disk: {kind: lvm}}", "guest": "{writable: 1 GiB}"},
            "9:17",
            "needs its path: the volume group",
        ),
        (
            {"xen": "{disk: {kind: block, path: /dev/a}}", "guest": "{writable: 1 GiB, swap: 1 GiB}"},
            "9:24",
            "swap would be a second",
        ),
        (
            {"xen": "{disk: {kind: file, overwrite: true}}", "guest": "{writable: 1 GiB}"},
            "9:41",
            "overwrites nothing",
        ),
        (
            {"xen": "{disk: {kind: file, path: 'a,b'}}", "guest": "{writable: 1 GiB}"},
            "9:36",
            "is not an absolute path",
        ),
        (
            {"xen": "{disk: {kind: lvm, path: -f}}", "guest": "{writable: 1 GiB}"},
            "9:35",
            "is not the name of a volume group",
        ),
    ],
)
def test_mistake_is_reported_at_its_place(fields: dict[str, str], where: str, what: str) -> None:
    told = problems(text(**fields), None)
    assert any(line.startswith(f"s.yaml:{where} ") and what in line for line in told), told
