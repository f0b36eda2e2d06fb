"""Apptainer of another suite for the tests, where none is installed; scripts/setup.sh builds its tree by
python -m tests.contract.apptainer_program."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from nearmetal.errors import NearmetalError, UnavailableError
from nearmetal.host import LocalHost
from nearmetal.images.build import build
from nearmetal.images.sources import archive_lines
from nearmetal.images.store import definition_key
from nearmetal.model.environments.image import ImageDefinition
from nearmetal.node.machine import image_store

PROGRAMS = Path(__file__).parent / "programs"
TREE = "NEARMETAL_TEST_APPTAINER"
"""Tells the program of ours where the tree is."""


def definition() -> ImageDefinition:
    """Debian 12 and 13 have no package of it, sid has, and this machine's own archive has sid. Its index is
    valid for a week, and mirrors may be older: so it is a further source, whose line can let that pass.

    Raises UnavailableError where apt tells of no archive."""
    sid = ImageDefinition(name="contract-apptainer", suite="sid", packages=())
    lines = archive_lines(LocalHost(), sid)
    if not lines:
        raise UnavailableError("apt names no archive of this system", remedy="look at /etc/apt/sources.list")
    late = tuple(line.replace("deb ", "deb [check-valid-until=no] ", 1) for line in lines)
    return replace(sid, suite="trixie", packages=("apptainer", "squashfs-tools"), sources=late)


def offer_apptainer() -> None:
    """On PATH for us and our children, where there can be one: it mounts, and so needs root."""
    if os.geteuid() != 0 or shutil.which("apptainer") is not None:
        return
    try:
        wanted = definition()
    except UnavailableError:
        return  # not_here() says that there is none
    image = image_store().find(wanted.name, definition_key(wanted, wanted.suite))
    if image is not None:
        os.environ[TREE] = str(image.tree)
        os.environ["PATH"] = f"{PROGRAMS}:{os.environ['PATH']}"


if __name__ == "__main__":
    try:
        build(LocalHost(), image_store(), definition(), progress=print)
    except NearmetalError as e:
        raise SystemExit(str(e)) from e
