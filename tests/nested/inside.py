"""nearmetal itself in the outer machine: its sources, images and programs carried there, and a command of it
run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.nested.carried import make_carried
from tests.nested.machine import Outer, outer_image, outer_machine
from tests.nested.prebuilt import prebuilt

from nearmetal.host import LocalHost
from nearmetal.images import builtin_definition
from nearmetal.images.build import build
from nearmetal.images.forms import Form, in_form
from nearmetal.images.store import Image
from nearmetal.node.machine import image_store

KERNELS = Path(__file__).parents[2] / "kernels"
CACHE = "/root/.cache/nearmetal"
RUN = "import sys; from nearmetal.cli import main; sys.exit(main())"
ENV = {"PYTHONPATH": "/carried/src:/carried/site", "HOME": "/root", "USER": "root"}
MEMORY_MIB = 3072
DOM0_WEIGHT = "4096"


def built_image(name: str) -> Image:
    definition = builtin_definition(name)
    assert definition is not None
    return build(LocalHost(), image_store(), definition, progress=print)


def carried_disk(directory: Path, image: Image, files: Mapping[str, Path]) -> Path:
    """A disk for outer_machine. directory: empty, ours; image: that the runs use; files: further ones."""
    cache, carry = directory / "cache", directory / "carry"
    carry.mkdir()
    in_form(LocalHost(), image, Form.EROFS, progress=print)
    images = cache / "images"
    (images / "names").mkdir(parents=True)
    (images / "names" / f"{image.name}.json").write_text(json.dumps({"key": image.key}))
    shutil.copytree(image.directory, images / "trees" / image.key, symlinks=True)
    disk = make_carried(carry, (), {"cache": cache, "src/nearmetal/kernels": KERNELS, **files})
    shutil.rmtree(cache)
    return disk


def whole_kernel() -> str:
    """Path, in the outer machine, of its kernel."""
    return f"/boot/{next(outer_image('whole').tree.glob('boot/vmlinuz-*')).name}"


@contextmanager
def booted(directory: Path, disk: Path, image: Image, *, xen: bool) -> Iterator[Outer]:
    """An outer machine that nearmetal() runs in. directory: empty, ours."""
    outer_tree = outer_image("whole")
    with outer_machine(directory, xen=xen, carried=disk, image=outer_tree, memory_mib=MEMORY_MIB) as outer:
        outer.do("mkdir", "-p", "/written/cache", "/written/cache-work", CACHE)
        layers = "lowerdir=/carried/cache,upperdir=/written/cache,workdir=/written/cache-work"
        outer.do("mount", "-t", "overlay", "-o", layers, "cache", CACHE)
        label = f"nearmetal-test{os.getpid()}-build"
        for built in prebuilt(outer.do("cat", "/proc/cpuinfo"), image, label):
            outer.do("mkdir", "-p", f"{CACHE}/{built.name}/bin")
            outer.ssh.copy(built / "build.json", f"{CACHE}/{built.name}/build.json", timeout=600)
            for file in (built / "bin").iterdir():
                outer.ssh.copy(file, f"{CACHE}/{built.name}/bin/{file.name}", timeout=600)
        if xen:
            # Its guests spin while they wait for each other, on the one CPU that it has too.
            outer.do("xl", "sched-credit2", "-d", "Domain-0", "-w", DOM0_WEIGHT)
        yield outer


def nearmetal(outer: Outer, words: Sequence[str], *, timeout: float) -> str:
    """Standard output of a command of it that must work."""
    argv = ["python3", "-c", RUN, *words]
    done = outer.ssh.run(argv, timeout=timeout, env=ENV, cwd=Path("/root"))
    assert done.ok, (argv, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout
