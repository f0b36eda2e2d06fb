"""Kills a program that changes the machine in every way that nearmetal does, at random moments, and cleans
up.

Each time, `clean` must leave nothing, restore everything, and say nothing untrue: what it calls removed is
gone, and a second search finds nothing. In every third round, `clean` itself is killed first.

    sudo .venv/bin/python benchmarks/undo_kills.py --kills 100 --seed 1

Needs root. Files of /sys and control groups of version 2 are those of a tree of plain files; the network
cards are a pair of virtual ones.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from pyroute2 import IPRoute

from nearmetal.environments import leftovers as every
from nearmetal.environments.leftovers import Cleaned, clean_up
from nearmetal.host import LocalHost, cgroups, notes
from nearmetal.host.cards import offloads
from nearmetal.host.cgroups import controllers
from nearmetal.host.facts import devices
from nearmetal.host.outside import outside_directory, short_directory
from nearmetal.host.runtime import SHARED_MEMORY, memory_scratch_directory, shared_memory_directory
from nearmetal.images.store import ImageStore
from nearmetal.model.environments.network import NetworkSettings, Offloads
from nearmetal.model.study import Attachment
from nearmetal.network.build import build_networks
from nearmetal.network.plan import NetworkRequest

HOST = LocalHost()
ON = {"io"}


class Ground:
    """The part of the machine that is changed, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.numvfs = directory / "sys/class/net/ens1/device/sriov_numvfs"
        self.group, self.disk = directory / "group", directory / "disk"
        self.store = ImageStore(directory / "images")

    def make(self, cards: tuple[str, str]) -> None:
        self.make_sys(cards)
        self.group.mkdir()
        for name, text in (("controllers", "cpu io memory"), ("subtree_control", "io"), ("procs", "")):
            (self.group / f"cgroup.{name}").write_text(text)
        self.disk.mkdir()

    def make_sys(self, cards: tuple[str, str]) -> None:
        self.numvfs.parent.mkdir(parents=True)
        self.numvfs.write_text("0\n")
        for name in cards:
            (self.directory / "sys/class/net" / name).symlink_to(f"/sys/class/net/{name}")

    def use_sys(self) -> None:
        devices.SYS = self.directory / "sys"
        devices._SETTLES = 0
        devices.functions = lambda *_: ("a", "b", "c")

    def use(self) -> None:
        notes.ROOT_STATE = self.directory / "state"
        self.use_sys()
        patch.object(controllers, "write_control", _write_control).start()
        every._managers = lambda: ()
        mkdir = Path.mkdir

        def make_group(path: Path, mode: int = 0o777, **more: bool) -> None:
            mkdir(path, mode, **more)
            if path.parent == self.group:
                (path / "cgroup.procs").touch()

        def remove_group(path: Path) -> None:
            shutil.rmtree(path) if path.parent == self.group else os.rmdir(path)  # noqa: PTH106

        for name, function in (
            ("mkdir", make_group),
            ("rmdir", remove_group),
            ("write_text", _write_at_once),
        ):
            patch.object(Path, name, function).start()

    def changed(self, label: str, cards: tuple[str, str], settings: object) -> list[str]:
        """Return what is not as it was."""
        found = []
        if self.numvfs.read_text() != "0\n":
            found.append("virtual functions")
        if set((self.group / "cgroup.subtree_control").read_text().split()) != ON:
            found.append("controllers")
        if card_settings(cards) != settings:
            found.append(f"network cards: {card_settings(cards)}")
        if any((self.directory / "images/making").glob("*")):
            found.append("image")
        places = (self.disk, Path("/tmp"), SHARED_MEMORY, Path("/run/nearmetal"), Path("/run/netns"))
        found += [str(path) for place in places for path in place.glob(f"{label}*")]
        found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if label in line]
        groups = Path("/sys/fs/cgroup").glob(f"**/{label}*")
        return found + [str(path) for path in groups] + [str(n.file) for n in notes.read_notes()[0]]


def _write_control(path: Path, text: str) -> None:
    there = set(path.read_text().split())
    there = there - {text[1:]} if text.startswith("-") else there | {text.lstrip("+")}
    _write_at_once(path, " ".join(sorted(there)))


def _write_at_once(path: Path, text: str) -> None:
    """Write a file as the kernel changes its own: wholly or not at all."""
    if path.is_relative_to("/sys"):
        path.write_bytes(text.encode())
        return
    aside = path.with_name(f"{path.name}.aside")
    aside.write_bytes(text.encode())
    aside.replace(path)


def card_settings(cards: tuple[str, str]) -> list[object]:
    with IPRoute() as ip:
        found: list[object] = []
        for name in cards:
            for index in ip.link_lookup(ifname=name):
                link = ip.get_links(index)[0]
                values = [link.get_attr(k) or "" for k in ("IFLA_MTU", "IFLA_TXQLEN", "IFLA_IFALIAS")]
                found.append([name, *values, link["flags"] & 1, offloads(name)])
        return found


@contextmanager
def two_cards() -> Iterator[tuple[str, str]]:
    name = f"nmk{secrets.token_hex(3)}"
    names = f"{name}a", f"{name}b"
    with IPRoute() as ip:
        ip.link("add", ifname=names[0], kind="veth", peer=names[1], mtu=1700)
        try:
            ip.link("set", index=ip.link_lookup(ifname=names[0])[0], ifalias="cable", state="up", txqlen=55)
            yield names
        finally:
            for index in ip.link_lookup(ifname=names[0]):
                ip.link("del", index=index)


def change(ground: Ground, label: str, cards: tuple[str, str], order: random.Random) -> None:
    """Make all changes in a random order, and undo them."""
    controllers._label = lambda: label
    settings = NetworkSettings(devices=cards, mtu=1600, offloads=Offloads(tso=False))
    want = NetworkRequest(attachment=Attachment.PHYS, settings=settings, instances=2)
    parents = cgroups.machine_parents()
    assert isinstance(parents, cgroups.Parents)
    with ExitStack() as stack:
        scratch = stack.enter_context(memory_scratch_directory(label))
        made = cgroups.directories(parents, f"{label}-0", {"cpu", "memory"})
        stack.callback(cgroups.remove, cgroups.unique(made))
        network = build_networks(label, [want], scratch)
        groups = partial(cgroups.create, made, cgroups.GroupLimits())
        ways: list[Callable[[], object]] = [
            partial(stack.enter_context, devices.make_functions(HOST, "ens1", 3, label)),
            partial(stack.enter_context, outside_directory(ground.disk / f"{label}-work")),
            partial(stack.enter_context, short_directory(f"{label}-ssh")),
            partial(stack.enter_context, shared_memory_directory(label)),
            partial(stack.enter_context, network),
            partial(stack.enter_context, controllers.divide_group(ground.group, {"cpu", "memory"})),
            partial(stack.enter_context, ground.store.making("a", "import-a")),
            groups,
        ]
        order.shuffle(ways)
        for way in ways:
            way()


def clean(ground: Ground, label: str) -> Cleaned:
    cleaned = clean_up(HOST, label, quietly=True)
    for path in ground.store.unfinished():
        ground.store.remove_unfinished(path.name)
    return cleaned


def started(ground: Ground, what: str, label: str, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, __file__, "--act", what, str(ground.directory), label, *words]
    tool = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
    assert tool.stdout is not None and tool.stdout.readline() == "ready\n", tool.communicate()
    return tool


def kill_after(tool: subprocess.Popen[str], seconds: float) -> None:
    time.sleep(seconds)
    if tool.poll() not in (None, 0):
        raise SystemExit(f"ended by itself: {tool.communicate()}")
    tool.kill()
    tool.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0, help="longest time until a kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--act", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.act:
        what, directory, label, *cards = options.act
        ground = Ground(Path(directory))
        ground.use()
        print("ready", flush=True)
        if what == "clean":
            clean(ground, label)
        else:
            order = random.Random(cards[2])
            while True:
                change(ground, label, (cards[0], cards[1]), order)
        return 0
    draw, bad, kinds = random.Random(options.seed), 0, Counter[str]()
    for number in range(options.kills):
        label = f"nearmetal-kill{secrets.token_hex(3)}"  # no label that runs beside this one clean up
        with tempfile.TemporaryDirectory(prefix="nm-undo-") as place, two_cards() as cards:
            ground = Ground(Path(place))
            ground.make(cards)
            ground.use()
            settings = card_settings(cards)
            kill_after(
                started(ground, "change", label, *cards, str(draw.random())), draw.uniform(0, options.seconds)
            )
            if number % 3 == 2:
                kill_after(started(ground, "clean", label), draw.uniform(0, 0.3))
            cleaned = clean(ground, label)
            kinds.update(item.kind for item in cleaned.found)
            wrong = [*map(str, cleaned.left), *cleaned.failures, *ground.changed(label, cards, settings)]
            wrong += [f"found again: {item}" for item in clean_up(HOST, label, quietly=True).found]
            if wrong:
                bad += 1
                print(f"kill {number} of {label}: {wrong}", flush=True)
    print(f"{options.kills} kills, {bad} with something left or untrue; removed: {dict(kinds)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
