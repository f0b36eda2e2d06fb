"""Lets tests of checkpoints use Debian sid's crun, which is built with CRIU. Debian 12's is not."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from nearmetal.host import LocalHost
from nearmetal.images import builtin_definition
from nearmetal.images.build import build
from nearmetal.node.criu import IMAGE
from nearmetal.node.machine import image_store


def write_crun(directory: Path) -> None:
    """Write the program `crun` into a directory. Its image is built once on a machine."""
    criu = builtin_definition(IMAGE)
    assert criu is not None
    wanted = replace(criu, name="contract-crun", packages=("crun", "libcriu2"))
    tree = build(LocalHost(), image_store(), wanted, progress=lambda _: None).tree
    libraries = tree / "usr/lib/x86_64-linux-gnu"
    argv = [tree / "usr/lib64/ld-linux-x86-64.so.2", "--library-path", libraries, tree / "usr/bin/crun"]
    (program := directory / "crun").write_text(f'#!/bin/sh\nexec {shlex.join(map(str, argv))} "$@"\n')
    program.chmod(0o755)
