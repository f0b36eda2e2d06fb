"""Start, stop and a command of each container backend against its program's own command line.

By hand, as root: python -m benchmarks.starts [rounds] [backend...]. In every round, in random order: an instance of
the backend, started and ended; the plain command line that runs `true` in such a container, a fresh overlay of /
included; `true` in a standing instance by instance.command(), and by the program's own exec. The figures: start
and stop at most 1.1 times the plain command line, a command at most 20 ms beyond the own exec.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from benchmarks.paired import difference, interleaved, interval, ratio, shown

from nearmetal.environments import Backend, Instance, InstanceRequest, Tools, Unavailable
from nearmetal.environments.docker import run_words as docker_words
from nearmetal.environments.docker_image import look_at, overlays, skeleton_image
from nearmetal.environments.oci import OciBackend, OciRuntime, bundle
from nearmetal.environments.podman import Store
from nearmetal.environments.podman import run_words as podman_words
from nearmetal.environments.program import FirstReport
from nearmetal.environments.registry import get_backend
from nearmetal.execute.progress import Silent
from nearmetal.execute.session import prepare_machine
from nearmetal.host import LocalHost, cgroups
from nearmetal.host.runtime import scratch_directory, short_directory
from nearmetal.model.study import Attachment, Environment

HOST = LocalHost()
BACKENDS = ("runc", "crun", "podman", "docker")
LABEL = f"nearmetal-starts{os.getpid()}"


def request(backend: str, scratch: Path, slot: str = "a") -> InstanceRequest:
    environment = Environment(name="starts", backend=backend, attachment=Attachment.NONE, placements=())
    return InstanceRequest(
        label=f"{LABEL}-{slot}",
        hostname="nmstarts",
        environment=environment,
        cpus=HOST.cpus(),
        seat=None,
        binds=(),
        scratch=scratch,
    )


@contextmanager
def plain(backend: Backend, tools: Tools, directory: Path) -> Iterator[list[str]]:
    """A command line that starts a container of the same kind, runs `true` in it and puts it away."""
    asked = request(backend.name, directory, "plain")
    overlay = directory / "overlay"
    (overlay / "root").mkdir(parents=True)
    wrap = [tools / "nm-box", "wrap", "--root-overlay", str(overlay)]
    binds = {tools.directory: False}
    if isinstance(backend, OciBackend):
        yield _plain_oci(backend.runtime, asked, wrap, directory)
    elif backend.name == "podman":
        with short_directory(f"{LABEL}-podman", directory) as short:
            store = Store(directory=directory, short=short, rootless=False)
            store.prepare(asked.label)
            words = podman_words(asked, overlay / "root", binds, pid_file=directory / "pid", groups=None)
            variables = [f"{k}={v}" for k, v in store.environment().items()]
            yield [*wrap, "--", "env", *variables, *store.command(*words), "true"]
    else:
        tree = look_at(Path("/"))
        image = skeleton_image(HOST, tree, directory)
        mounts = overlays(tree, directory)
        words = docker_words(
            asked, binds, image=image, mounts=mounts, groups=f"/{LABEL}-plain", memory=1 << 30
        )
        yield ["docker", *words, "true"]
    cgroups.remove(cgroups.of_every_hierarchy(f"{LABEL}-plain"))


def _plain_oci(kind: OciRuntime, asked: InstanceRequest, wrap: list[str], directory: Path) -> list[str]:
    payload = FirstReport(directory=directory, argv=("true",), descriptor=-1)
    groups = asked.label if kind.own_groups else None
    (directory / "config.json").write_text(
        json.dumps(bundle(asked, payload, directory / "overlay" / "root", {}, groups))
    )
    unified = cgroups.unified_beside_version1() if kind.detach_unified else None
    around = [*wrap, *(["--detach", str(unified)] if unified else []), "--"]
    state = ["--root", str(directory / "state"), *kind.options]
    return [*around, kind.program, *state, "run", "--bundle", str(directory), asked.label]


def own_exec(instance: Instance, tools: Tools) -> list[str]:
    """The program's own exec of `true`: the command without what nm-box puts before and behind."""
    words = instance.command(["true"])
    box = [i for i, word in enumerate(words) if word == tools / "nm-box"]
    return [*words[4 : box[-1]], "true"]


def timed(argv: Sequence[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True, cwd="/")
    return time.perf_counter() - begin


def measure(backend: Backend, tools: Tools, rounds: int) -> None:
    numbers = count()
    with ExitStack() as stack:
        here = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        state = stack.enter_context(scratch_directory(f"{LABEL}-plain"))
        command_line = stack.enter_context(plain(backend, tools, state))

        def ours() -> float:
            scratch = here / f"s{next(numbers)}"
            scratch.mkdir()
            begin = time.perf_counter()
            with backend.start(HOST, tools, request(backend.name, scratch)):
                pass
            return time.perf_counter() - begin

        standing = stack.enter_context(backend.start(HOST, tools, request(backend.name, here, "standing")))
        what: dict[str, Callable[[], float]] = {
            "start and stop": ours,
            "plain": lambda: timed(command_line),
            "command": lambda: timed(standing.command(["true"])),
            "exec": lambda: timed(own_exec(standing, tools)),
        }
        interleaved(what, 1)
        found = interleaved(what, rounds)
    print(f"{backend.name}, n {rounds}")
    for name, values in found.items():
        print(f"  {name:<16}{shown(interval(values), 'ms', 1e3)}")
    print(
        f"  start and stop against plain {shown(ratio(found['start and stop'], found['plain']))} (at most 1.1)"
    )
    beyond = difference(found["command"], found["exec"])
    print(f"  command beyond exec {shown(beyond, 'ms', 1e3)} (at most 20)")


def main(rounds: int, names: Sequence[str]) -> None:
    tools = prepare_machine(HOST, Silent()).tools
    for name in names:
        backend = get_backend(name)
        answer = backend.check(HOST, tools)
        if isinstance(answer, Unavailable):
            print(f"{name}: {answer.reason}; {answer.remedy}")
        else:
            measure(backend, tools, rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:] or BACKENDS)
