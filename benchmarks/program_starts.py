"""What a backend adds to its container program: the start up to the first instruction, and a command.

By hand, as root: python -m benchmarks.program_starts [rounds] [backend ...]. In every round, in random order,
for each backend: an instance is started and runs `true`; and the program is started by a command line that
makes the same root directory (unshare, mount), without control groups, and runs `true` by the program's own
way in. Attachment host on both sides.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.paired import difference, interleaved, ratio, shown

from nearmetal.environments import InstanceRequest, Tools, apptainer, bubblewrap, charliecloud, lxc, nspawn
from nearmetal.environments.program import Running, running
from nearmetal.environments.registry import get_backend
from nearmetal.environments.wrapped import Wrapped, wrapped
from nearmetal.execute.machine import cache_directory
from nearmetal.execute.progress import Silent
from nearmetal.host import LocalHost
from nearmetal.host.runtime import scratch_directory
from nearmetal.model.study import Attachment, Environment
from nearmetal.workloads.build import build_tools

HOST = LocalHost()
LIMIT = 20.0
Times = tuple[float, float, float]
"""Seconds to the first instruction, thereof those of the program (with its root directory and groups entered,
but not made), and of `true` inside."""


def by_namespaces(_: Wrapped, run: Running) -> list[str]:
    return ["nsenter", "--target", str(run.pid), "--all", "--"]


def by_attach(given: Wrapped, _: Running) -> list[str]:
    return ["lxc-attach", "--lxcpath", str(given.state / "lxc"), "--name", lxc.NAME, "--"]


def by_join(given: Wrapped, run: Running) -> list[str]:
    return [*charliecloud.CH_RUN, "--join-pid", str(run.pid), str(given.state), "--"]


PROGRAMS: dict[str, tuple[Callable[[Wrapped], Sequence[str]], Callable[[Wrapped, Running], list[str]]]] = {
    "apptainer": (partial(apptainer.container, lacking=apptainer.lacking_here(HOST)), by_namespaces),
    "bubblewrap": (bubblewrap.container, by_namespaces),
    "charliecloud": (charliecloud.container, by_join),
    "lxc": (lxc.container, by_attach),
    "nspawn": (nspawn.container, by_namespaces),
}


def requested(name: str, label: str, scratch: Path) -> InstanceRequest:
    return InstanceRequest(
        label=label,
        hostname="nmstart",
        environment=Environment(name=name, backend=name, attachment=Attachment.HOST, placements=()),
        cpus=HOST.cpus(),
        seat=None,
        binds=(),
        scratch=scratch,
    )


def true(enter: Sequence[str]) -> float:
    done = HOST.run([*enter, "true"], timeout=LIMIT, cwd=Path("/"))
    assert done.ok, done
    return done.seconds


def ours(tools: Tools, name: str, label: str) -> Times:
    with (
        scratch_directory(label) as scratch,
        get_backend(name).start(HOST, tools, requested(name, label, scratch)) as instance,
    ):
        phases = instance.phases
        return phases["first_instruction"], phases["program"], true(instance.command([]))


BY_HAND = """\
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work shm root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
mkdir -p "root$2" "root$3"
cd /
shift 3
exec "$@"
"""
"""What nm-box wrap does, as a person types it; the groups are left out."""


def plain(tools: Tools, name: str, label: str) -> Times:
    program, way_in = PROGRAMS[name]
    with ExitStack() as stack:
        if name == "lxc":
            stack.enter_context(lxc.groups_of_lxc(label))
        scratch = stack.enter_context(scratch_directory(label))
        given = stack.enter_context(wrapped(tools, requested(name, label, scratch), {}))
        by_hand = ["unshare", "--mount", "sh", "-c", BY_HAND, "sh", str(given.overlay)]
        argv = [*by_hand, *map(str, given.binds), *program(given)]
        run = stack.enter_context(running(HOST, given.request, given.report, argv, timeout=LIMIT))
        first = (run.first - run.begun) / 1e9
        return first, first, true(way_in(given, run))


def main() -> None:
    if not HOST.is_root():
        sys.exit("as root: the plain side mounts the root directory by itself")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    tools = Tools(directory=build_tools(HOST, cache_directory(), progress=Silent().phase).directory)
    wanted = sys.argv[2:] or [n for n in PROGRAMS if not hasattr(get_backend(n).check(HOST, tools), "reason")]
    label = f"nearmetal-check-{os.getpid()}-starts"  # left alone as long as we live
    what: dict[str, Callable[[], Times]] = {}
    for name in wanted:
        what[f"{name} ours"] = partial(ours, tools, name, label)
        what[f"{name} plain"] = partial(plain, tools, name, label)
    begun = time.monotonic()
    times = interleaved(what, rounds)
    print(f"{rounds} rounds, {time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.1f}")
    for name in wanted:
        start, alone, enter = (
            [[t[i] for t in times[f"{name} {side}"]] for side in ("ours", "plain")] for i in range(3)
        )
        middle = sorted(start[1])[rounds // 2] * 1e3
        print(
            f"{name:13} plain {middle:6.1f} ms   start x {shown(ratio(*start))}   "
            f"+ {shown(difference(*start), 'ms', 1e3)}   program x {shown(ratio(*alone))}   "
            f"command + {shown(difference(*enter), 'ms', 1e3)}"
        )


if __name__ == "__main__":
    main()
