"""Runs on the outer machine. `change` makes every kind of change that nearmetal notes, and undoes it, in one
process after another until the power is cut. `look` prints as JSON the paths of all that it has left."""

from __future__ import annotations

import atexit
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from benchmarks.undo_kills import Ground, change, two_cards

from nearmetal.host import notes
from nearmetal.host.runtime import SHARED_MEMORY
from nearmetal.node.machine import image_store

GROUPS = Path("/sys/fs/cgroup")
PLACES = (
    *(Path("/var/tmp"), Path("/tmp"), Path("/disk"), SHARED_MEMORY),
    *(Path("/run/nearmetal"), Path("/run/netns")),
)


class Machine(Ground):
    """The machine itself. Only its SR-IOV card is a tree of plain files, which a boot removes as it resets a
    card."""

    def __init__(self, disk: Path) -> None:
        super().__init__(Path("/run/ground"))
        self.group, self.disk, self.store = GROUPS / "ground", disk, image_store()

    def make(self, cards: tuple[str, str]) -> None:
        self.make_sys(cards)
        (GROUPS / "cgroup.subtree_control").write_text("+cpu +memory +io")
        self.group.mkdir()
        inside = subprocess.Popen(["sleep", "infinity"])
        (self.group / "cgroup.procs").write_text(str(inside.pid))


def change_until_cut(disk: str, seed: str) -> None:
    machine, order = Machine(Path(disk)), random.Random(seed)
    with two_cards() as cards:
        machine.make(cards)
        machine.use_sys()
        # As other programs do: a directory is on the disk, and its removal not yet.
        subprocess.Popen(["sh", "-c", f"while sleep 3; do sync -f {disk}; done"])
        print("ready", flush=True)
        while True:
            label = f"nearmetal-{order.randbytes(3).hex()}"
            if (pid := os.fork()) == 0:
                change(machine, label, cards, order)
                atexit._run_exitfuncs()  # as at the end of a run, which undoes then what it has noted
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            print("pass", flush=True)


def look() -> list[str]:
    found = [path for place in PLACES for path in place.glob("nearmetal*")]
    found += [path for path in GROUPS.rglob("nearmetal*") if path.is_dir()]
    found += (notes.ROOT_STATE / "undo").glob("*/*")
    found += image_store().unfinished()
    return sorted(map(str, found))


if __name__ == "__main__":
    if sys.argv[1] == "look":
        print(json.dumps(look()))
    else:
        change_until_cut(*sys.argv[2:])
