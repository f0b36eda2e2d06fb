"""Runs on the outer machine, whose control groups are of version 2 alone: containers under limits. Prints as
JSON what was set, what was read back and what they got."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tests.contract.burning import HOST, Burning

from nearmetal.environments import Tools
from nearmetal.host import cgroups
from nearmetal.model.study import Limits

ASKED = {
    "quarter": Limits(cpu_quota=0.25),
    "light": Limits(cpu_shares=256),
    "heavy": Limits(cpu_shares=1024),
    "small": Limits(memory=128 << 20),
}


def main(tools: Path) -> None:
    found: dict[str, object] = {"parents": asdict(cgroups.machine_parents())}
    read_back: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        alone = Burning(Tools(directory=tools), Path(directory), stack)
        made = alone.start(ASKED["quarter"])
        read_back["quarter"] = cgroups.read_back(made.cgroups)
        (found["quarter"],) = alone.shares()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        pair = Burning(Tools(directory=tools), Path(directory), stack)
        for name in ("heavy", "light"):
            read_back[name] = cgroups.read_back(pair.start(ASKED[name]).cgroups)
        found["heavy"], found["light"] = pair.shares()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        small = Burning(Tools(directory=tools), Path(directory), stack).start(ASKED["small"])
        read_back["small"] = cgroups.read_back(small.cgroups)
        for name, mib in {"modest": 64, "greedy": 160}.items():
            argv = small.command(["/usr/bin/python3", "-c", f"bytearray({mib} << 20)"])
            found[name] = HOST.run(argv, timeout=600).returncode
    found["read_back"] = read_back
    found["left"] = [str(p) for p in Path("/sys/fs/cgroup").rglob("nearmetal*")]
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
