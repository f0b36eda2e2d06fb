"""nearmetal itself on an emulated dom0: an MPI job over two PV guests and one over two PVH guests against the
bare dom0, weighed, with a verdict told. For function alone; minutes long, so not among the usual tests."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.nested.carried import make_carried
from tests.nested.machine import outer_image, outer_machine
from tests.nested.parts import Parts
from tests.nested.prebuilt import prebuilt
from tests.nested.test_nested_xen import guest, out

from nearmetal.environments.xl import Xl
from nearmetal.errors import RunError
from nearmetal.execute.machine import image_store
from nearmetal.host import LocalHost
from nearmetal.images import builtin_definition
from nearmetal.images.build import build
from nearmetal.images.forms import Form, in_form
from nearmetal.images.store import Image
from nearmetal.model.xen import XenType

IMAGE = "debian-mpi"
CACHE = "/root/.cache/nearmetal"
RUN = "import sys; from nearmetal.cli import main; sys.exit(main())"
STUDY = """\
name: nested-emulated-xen
question: does it work? (every figure is of an emulator)
environments:
  bare: {{backend: native, image: debian-mpi}}
  pv:
    backend: xen
    image: debian-mpi
    attachment: veth-bridge
    guest: {{memory: 256 MiB, vcpus: 1, kernel: {kernel}, boot_timeout: 5 min}}
    xen: {{type: pv, weight: 512}}
    placements: [2x1]
  pvh:
    backend: xen
    image: debian-mpi
    guest: {{memory: 256 MiB, vcpus: 1, kernel: {kernel}, boot_timeout: 5 min}}
    attachment: none
    xen: {{type: pvh}}
    placements: [1x2]
placements:
  1x2: {{instances: 1, tasks: 2, oversubscribe: true}}
  2x1: {{instances: 2, tasks: 1, oversubscribe: true}}
workloads:
  latency: {{kernel: pingpong, bytes: 8 B}}
design:
  baseline: bare
  min_blocks: 6
  max_blocks: 6
  max_time: 30 min
"""


def cached(directory: Path, image: Image) -> Path:
    """The part of our cache that the run is to find: the image and its form as a disk."""
    in_form(LocalHost(), image, Form.EROFS, progress=print)
    images = directory / "images"
    (images / "names").mkdir(parents=True)
    (images / "names" / f"{IMAGE}.json").write_text(json.dumps({"key": image.key}))
    shutil.copytree(image.directory, images / "trees" / image.key, symlinks=True)
    return directory


def test_a_bridge_that_is_not_there_is_told_by_xl(parts: Parts, tmp_path: Path) -> None:
    machine, scratch = tmp_path / "machine", tmp_path / "scratch"
    machine.mkdir()
    scratch.mkdir()
    with outer_machine(machine, xen=True) as outer:
        with (
            pytest.raises(RunError, match="is not created"),
            guest(outer, parts, scratch, type=XenType.PV, bridge="nobridge0"),
        ):
            pass
        with guest(outer, parts, scratch, type=XenType.PVH, weight=100) as g:
            assert out(g, "cat", "/sys/hypervisor/guest_type") == "PVH"
        assert not [d for d in Xl(outer.ssh).domains() if d.name.startswith("nearmetal-")]


def test_mpi_over_guests_is_weighed(tmp_path: Path) -> None:
    definition = builtin_definition(IMAGE)
    assert definition is not None
    image = build(LocalHost(), image_store(), definition, progress=print)
    outer_tree = outer_image("whole")
    kernel = next(outer_tree.tree.glob("boot/vmlinuz-*")).name
    carry, machine = tmp_path / "carry", tmp_path / "machine"
    carry.mkdir()
    machine.mkdir()
    kernels = Path(__file__).parents[2] / "kernels"
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(kernel=f"/boot/{kernel}"))
    files = {
        "cache": cached(tmp_path / "cache", image),
        "src/nearmetal/kernels": kernels,
        "study.yaml": study,
    }
    disk = make_carried(carry, (), files)
    with outer_machine(machine, xen=True, carried=disk, image=outer_tree, memory_mib=3072) as outer:
        outer.do("mkdir", "-p", "/written/cache", "/written/cache-work", CACHE)
        layers = "lowerdir=/carried/cache,upperdir=/written/cache,workdir=/written/cache-work"
        outer.do("mount", "-t", "overlay", "-o", layers, "cache", CACHE)
        label = f"nearmetal-test{os.getpid()}-build"
        for built in prebuilt(outer.do("cat", "/proc/cpuinfo"), image, label):
            outer.do("mkdir", "-p", f"{CACHE}/{built.name}/bin")
            outer.ssh.copy(built / "build.json", f"{CACHE}/{built.name}/build.json", timeout=60)
            for file in (built / "bin").iterdir():
                outer.ssh.copy(file, f"{CACHE}/{built.name}/bin/{file.name}", timeout=120)
        run = ["python3", "-c", RUN, "run", "/carried/study.yaml", "--max-blocks", "2", "--json"]
        env = {"PYTHONPATH": "/carried/src:/carried/site", "HOME": "/root", "USER": "root"}
        done = outer.ssh.run(run, timeout=1500, env=env, cwd=Path("/root"))
        (machine / "said.json").write_text(done.stdout)
        assert done.ok, (done.stdout[-3000:], done.stderr[-3000:])
        told = json.loads(done.stdout)
        domains = outer.do("xl", "list")
    assert "nearmetal-" not in domains
    cells = {(c["arm"].partition("~")[0], c["metric"]): c for c in told["cells"]}
    assert {"pv", "pvh"} <= {arm for arm, _ in cells}
    assert all(c["verdict"] for c in cells.values())
