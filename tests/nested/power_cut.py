"""Checkpoints of a process in an emulated machine whose power is cut: what its disk holds then.

It is run by its name, since every moment needs a boot. For function alone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.nested.carried import make_carried
from tests.nested.machine import outer_machine
from tests.patience import until
from tests.system.checkpoint_case import find_or_build_criu

from nearmetal.environments import Unavailable
from nearmetal.environments.criu_images import check_images
from nearmetal.environments.external import read_interrupted, read_saved
from nearmetal.errors import UsageError
from nearmetal.host.processes import labelled

pytestmark = [pytest.mark.more, pytest.mark.timeout(3600)]  # everything is emulated
PATTERN = b"nearmetal power "
PAGES = 8192
#: Holds the pattern in each page.
PROGRAM = f"""
import os, time
memory = bytearray({PATTERN!r} * 256 * {PAGES})
with open("/written/pid", "w") as file:
    file.write(str(os.getpid()))
time.sleep(1e6)
"""
#: Starts the program and a checkpoint of it, and says on the console when the checkpoint begins and when the
#: program has ended.
INSIDE = """
cd /
mkdir -p /written/state
setsid --fork python3 -c "$0" </dev/null >/dev/null 2>&1
until [ -s /written/pid ]; do sleep 0.1; done
pid=$(cat /written/pid)
( echo "cut: begun" >/dev/console
  while read -r stat </proc/$pid/stat && case $stat in *") Z "*) false;; esac; do sleep 0.01; done
  echo "cut: ended" >/dev/console ) &
exec python3 -c "
from pathlib import Path
from nearmetal.api.moves import moving
moving.checkpoint('pid:$pid', Path('/written/images'), moving.MoveOptions(), print)
" >/written/said 2>&1
"""
ENV = {"PYTHONPATH": "/carried/src:/carried/site", "XDG_STATE_HOME": "/written/state", "HOME": "/root"}


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, and CRIU as a program that needs no installation."""
    found = find_or_build_criu()
    assert not isinstance(found, Unavailable), found
    directory = tmp_path_factory.mktemp("carried")
    tree = next(Path(*Path(word).parts[: Path(word).parts.index("tree") + 1]) for word in found.argv)
    words = " ".join(word.replace(str(tree), "/carried/criu") for word in found.argv)
    program = directory / "criu"
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    files = {"criu": tree, "bin/criu": program}
    return make_carried(directory, ("msgspec", "typing_extensions.py"), files)


@pytest.mark.parametrize("moment", ["ended", 0.0, 5.0, 10.0, 20.0])
def test_a_process_that_has_ended_is_whole_on_the_disk(
    carried: Path, tmp_path: Path, moment: str | float
) -> None:
    """moment: the end of the process, or seconds after the beginning of its checkpoint."""
    with outer_machine(tmp_path, xen=False, carried=carried) as machine:
        machine.do("ln", "-s", "/carried/bin/criu", "/usr/sbin/criu")
        command = machine.ssh.start(
            ["sh", "-c", INSIDE, PROGRAM],
            env=ENV,
            stdout=tmp_path / "out",
            stderr=tmp_path / "err",
        )

        def said(word: str) -> bool:
            return f"cut: {word}" in machine.console.read_text(errors="replace")

        until(lambda: said("begun"), "the checkpoint")
        if isinstance(moment, float):
            time.sleep(moment)
        else:
            until(lambda: said("ended"), "the end of the process")
        for pid in labelled.labelled(lambda label: label == machine.label):
            os.kill(pid, signal.SIGKILL)
        command.kill()
        ended = said("ended")
    disk = tmp_path / "written"
    # As at the next boot, which replays the journal.
    subprocess.run(["e2fsck", "-fy", disk], check=False, capture_output=True)
    subprocess.run(["debugfs", "-R", f"rdump /images {tmp_path}", disk], check=True, capture_output=True)
    images = tmp_path / "images"
    sizes = {str(p.relative_to(images)): p.stat().st_size for p in sorted(images.rglob("*")) if p.is_file()}
    subprocess.run(["debugfs", "-R", f"dump /said {tmp_path}/said", disk], check=False, capture_output=True)
    print(f"cut at {moment}: ended {ended}; on the disk: {sizes}")
    if not ended:
        return  # the power ended it
    saved = read_interrupted(images)
    if saved is None:
        try:
            saved = read_saved(images)
        except UsageError as e:
            raise AssertionError(f"it runs nowhere, and its images are not on the disk: {e}") from e
    check_images(images)
    memory = b"".join(file.read_bytes() for file in images.rglob("pages-*.img"))
    assert len(re.findall(PATTERN, memory)) >= 256 * PAGES
