"""An emulated machine whose power is cut while nearmetal changes it: what `clean` finds, removes and says
after the next boot.

It is run by its name, since every cut needs a boot. For function alone:

    sudo .venv/bin/python -m pytest tests/nested/power_cut_undo.py -s
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.nested.carried import make_carried
from tests.nested.inside import RUN
from tests.nested.machine import Outer, outer_machine
from tests.patience import until

from nearmetal.host.processes import labelled

pytestmark = [pytest.mark.more, pytest.mark.timeout(7200)]  # everything is emulated
ROOT = Path(__file__).parents[2]
SEED = 39
CUTS = 10
SECONDS = 30.0
"""Longest time from the first change to the cut."""
PACKAGES = (
    *("annotated_doc", "annotated_types", "msgspec", "pydantic", "pydantic_core", "pyroute2", "shellingham"),
    *("typer", "typing_extensions.py", "typing_inspection"),
)
#: /tmp is on the disk. /disk is a second file system: what is not synced stays in memory for longer there.
PREPARE = """
set -e
umount /tmp
if [ ! -e /written/disk ]; then
    truncate -s 64M /written/disk
    mkfs.ext4 -q /written/disk
    tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
fi
modprobe loop
mkdir -p /disk
mount -o loop,commit=300 /written/disk /disk
"""
ENV = {
    "PYTHONPATH": "/carried/src:/carried/site:/carried",
    "PYTHONPYCACHEPREFIX": "/written/compiled",
    "HOME": "/root",
    "USER": "root",
}


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a `clean` has said: the paths that it has found, those that are left, and its messages."""

    found: list[str]
    left: list[str]
    messages: list[str]


def run(machine: Outer, *words: str) -> str:
    done = machine.ssh.run(["python3", *words], timeout=1800, env=ENV, cwd=Path("/root"))
    assert done.ok, (words, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def look(machine: Outer) -> list[str]:
    found: list[str] = json.loads(run(machine, "-m", "tests.nested.undo_inside", "look"))
    return found


def clean(machine: Outer, *options: str) -> Said:
    said = json.loads(run(machine, "-c", RUN, "clean", "--json", *options))
    found, left = ([item["detail"] for item in said[key]] for key in ("found", "left"))
    return Said(found=found, left=left, messages=said["failures"] + said["not_searched"])


def check(machine: Outer) -> list[str]:
    """Clean up after a cut, and return what the cut has left."""
    before = look(machine)
    dry = clean(machine, "--dry-run")
    assert look(machine) == before, "it has changed something"
    assert set(dry.found) <= set(before), "found what does not exist"
    for path in set(before) - set(dry.found):
        # A note is not named beside the directories that it is about.
        label = Path(path).name.partition(".")[0]
        assert "/undo/" in path and any(Path(p).name.startswith(label) for p in dry.found), path
    cleaned = clean(machine)
    assert set(cleaned.found) >= set(dry.found)
    assert (cleaned.left, cleaned.messages, look(machine)) == ([], [], [])
    again = clean(machine)
    assert (again.found, again.left, again.messages) == ([], [], [])
    return before


def cut(machine: Outer) -> None:
    for pid in labelled.labelled(lambda label: label == machine.label):
        os.kill(pid, signal.SIGKILL)


def test_nothing_is_left_after_a_power_cut_and_nothing_untrue_is_said(tmp_path: Path) -> None:
    (tmp_path / "carry").mkdir()
    files = {name: ROOT / name for name in ("benchmarks/undo_kills.py", "tests/nested/undo_inside.py")}
    carried = make_carried(tmp_path / "carry", PACKAGES, files)
    draw = random.Random(SEED)
    for number in range(CUTS + 1):
        directory = tmp_path / f"boot-{number}"
        directory.mkdir()
        written = tmp_path / "written"
        with outer_machine(directory, xen=False, carried=carried, written=written) as machine:
            machine.do("sh", "-c", PREPARE)
            left = check(machine)
            if number == 0:
                assert left == []
                machine.do("sync", timeout=600)  # the compiled sources
            else:
                print(f"cut {number} left {left}", flush=True)
            if number == CUTS:
                return
            seed, seconds = draw.random(), draw.uniform(0, SECONDS)
            if number % 3 == 2:
                # Cut when `clean` has ended: what it has removed must not be back.
                print(f"cut {number + 1}: after a clean-up", flush=True)
                cut(machine)
                continue
            out = directory / "out"
            words = ["python3", "-m", "tests.nested.undo_inside", "change", "/disk", str(seed)]
            changing = machine.ssh.start(words, env=ENV, stdout=out, stderr=directory / "err")

            def ready(out: Path = out) -> bool:
                return out.exists() and "ready" in out.read_text()

            until(ready, "the changes")
            time.sleep(seconds)
            assert changing.poll() is None, (directory / "err").read_text()
            passes = out.read_text().count("pass")
            cut(machine)
            changing.kill()
            print(f"cut {number + 1}: after {seconds:.1f} s, {passes} runs ended, seed {seed}", flush=True)
