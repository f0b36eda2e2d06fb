"""What the view of a working directory costs: making, resetting, and working in it.

A directory of 1,000 files and 50 MB. A reset after 10 changed files is paired with a fresh copy that is
synced. Each file operation in the view, bound over the directory, is paired with the same in a plain copy.

    sudo .venv/bin/python -m benchmarks.views --rounds 30

Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.paired import difference, interleaved, ratio, shown

from nearmetal.environments import Tools
from nearmetal.host import LocalHost
from nearmetal.node.machine import prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.node.reset_tree import ResetTree
from nearmetal.node.working_directory import WorkingDirectory

FILES, SIZE, CHANGED = 1000, 50_000, 10
LIMIT = 600.0
HOST = LocalHost()
OPERATIONS = """
import json, os, time
names = [f"d{n % 20}/f{n}" for n in range(0, 1000, 20)]
def each(do):
    took = []
    for name in names:
        at = time.perf_counter_ns()
        do(name)
        took.append(time.perf_counter_ns() - at)
    return sorted(took)[len(took) // 2]
def append(name):
    fd = os.open(name, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"x" * 4096)
    os.close(fd)
def create(name):
    os.close(os.open(name + ".new", os.O_WRONLY | os.O_CREAT))
def synced(name):
    fd = os.open(name + ".new", os.O_WRONLY)
    os.write(fd, b"x" * 4096)
    os.fsync(fd)
    os.close(fd)
print(json.dumps({
    "stat": each(os.stat),
    "open": each(lambda n: os.close(os.open(n, os.O_RDONLY))),
    "create": each(create),
    "append": each(append),
    "fsync": each(synced),
    "truncate": each(lambda n: os.truncate(n, 100)),
    "rename": each(lambda n: os.rename(n, n + ".old")),
    "unlink": each(lambda n: os.unlink(n + ".old")),
}))
"""


def fill(directory: Path) -> None:
    for n in range(FILES):
        path = directory / f"d{n % 20}" / f"f{n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SIZE))


def seconds(do: Callable[[], object]) -> float:
    begin = time.monotonic()
    do()
    return time.monotonic() - begin


def change(tree: Path) -> None:
    for n in range(CHANGED):
        with (tree / f"d{n}" / f"f{n}").open("ab") as file:
            file.write(b"changed")


def copied(original: Path, target: Path) -> None:
    for argv in (["cp", "-a", "--", original, target], ["sync", "-f", target]):
        HOST.run([str(word) for word in argv], timeout=LIMIT).require()


def operations(tools: Tools, directory: Path, options: Sequence[str]) -> dict[str, float]:
    """Return the median seconds of each file operation in a directory."""
    enter = [tools / "nm-box", "enter", "--pid", "0", *options, "--"]
    done = HOST.run([*enter, sys.executable, "-c", OPERATIONS], timeout=LIMIT, cwd=directory).require()
    return {name: value / 1e9 for name, value in json.loads(done.stdout).items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    tools = prepare_machine(HOST, NullProgress()).tools
    with ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.home())))
        original, place, plain = top / "original", top / "place", top / "plain"
        fill(original)
        place.mkdir(mode=0o700)
        HOST.run(["sync", "-f", str(top)], timeout=LIMIT)
        tree = ResetTree(host=HOST, original=original, place=place)
        print(f"making the copy: {seconds(tree.fill):.3f} s")

        def reset() -> float:
            change(tree.tree)
            return seconds(tree.reset)

        def copy() -> float:
            shutil.rmtree(plain, ignore_errors=True)
            return seconds(lambda: copied(original, plain))

        took = interleaved({"reset": reset, "copy": copy}, rounds)
        print(f"reset after {CHANGED} changed files: {median(took['reset']) * 1e3:.1f} ms")
        print(f"  of a fresh copy: {shown(ratio(took['reset'], took['copy']))} (at most 0.25)")
        print(f"  where nothing changed: {median(seconds(tree.reset) for _ in range(rounds)) * 1e3:.1f} ms")

        def looked() -> float:
            with ExitStack() as own:
                working = WorkingDirectory(HOST, tools, original, "nearmetal-0be2c4", own)
                return seconds(lambda: working.choose(lambda _: None, top / "results"))

        print(f"making and removing an overlay: {median(looked() for _ in range(rounds)) * 1e3:.1f} ms")
        bound = ("--bind", str(tree.tree), "--at", str(original))

        def viewed() -> dict[str, float]:
            tree.reset()
            return operations(tools, original, bound)

        def plainly() -> dict[str, float]:
            copy()
            return operations(tools, plain, ())

        done = interleaved({"view": viewed, "plain": plainly}, rounds)
        for name in done["plain"][0]:
            view, alone = ([run[name] for run in done[side]] for side in ("view", "plain"))
            apart = shown(difference(view, alone), "us", 1e6)
            print(f"{name:9} {median(alone) * 1e6:8.1f} us  x {shown(ratio(view, alone))}  {apart}")


if __name__ == "__main__":
    main()
