"""Start, stop and a command of each container backend against its program's own command line.

By hand, as root: python -m benchmarks.oci_starts [rounds] [backend...]. In every round, in random order: an
instance of the backend, started and ended; the plain command line of its program for such a container, with
a fresh overlay of / and nm-init as its payload, until that has told its first instruction, and until all is
put away; `true` in a standing instance by instance.command(), and by the program's own exec. The figures:
the start at most 1.1 times that of the plain command line, a command at most 20 ms beyond the own exec.
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
from dataclasses import dataclass
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
from nearmetal.host.helper import wait_readable
from nearmetal.host.runtime import scratch_directory, short_directory
from nearmetal.model.study import Attachment, Environment

HOST = LocalHost()
Times = tuple[float, float]
"""Seconds until the first instruction, and in all."""

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


@dataclass(frozen=True, kw_only=True)
class Plain:
    """argv: of the command line; fifo: where its payload tells its first instruction."""

    argv: tuple[str, ...]
    fifo: Path

    def run(self) -> Times:
        """Once: nm-init ends when nobody reads its FIFO any more."""
        reader = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK)
        begin = time.monotonic_ns()
        with subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/"
        ) as program:
            try:
                if not wait_readable(reader, 30):
                    program.kill()
                    raise SystemExit(f"{self.argv}: no first instruction")
                first = json.loads(os.read(reader, 4096))["first"]
            finally:
                os.close(reader)
            program.wait(30)
        return (first - begin) / 1e9, (time.monotonic_ns() - begin) / 1e9


@contextmanager
def plain(backend: Backend, tools: Tools, directory: Path) -> Iterator[Plain]:
    """The command line of a container of the same kind."""
    asked = request(backend.name, directory, "plain")
    overlay, report = directory / "overlay", directory / "report"
    (overlay / "root").mkdir(parents=True)
    report.mkdir()
    os.mkfifo(report / "first", 0o600)
    init = (tools / "nm-init", "--first-fifo", str(report / "first"))
    binds = {tools.directory: False, report: True}
    wrap = [tools / "nm-box", "wrap", "--root-overlay", str(overlay)]
    with ExitStack() as stack:
        if isinstance(backend, OciBackend):
            payload = FirstReport(directory=report, argv=init, descriptor=-1)
            groups = asked.label if backend.runtime.own_groups else None
            config = bundle(asked, payload, overlay / "root", binds, groups)
            (directory / "config.json").write_text(json.dumps(config))
            argv = [*_oci(backend.runtime, wrap, directory), "run", "--bundle", str(directory), asked.label]
        elif backend.name == "podman":
            short = stack.enter_context(short_directory(f"{LABEL}-podman", directory))
            store = Store(directory=directory, short=short, rootless=False)
            store.prepare(asked.label)
            words = podman_words(asked, overlay / "root", binds, pid_file=directory / "pid", groups=None)
            variables = [f"{k}={v}" for k, v in store.environment().items()]
            argv = [*wrap, "--", "env", *variables, *store.command(*words), *init]
        else:
            tree = look_at(Path("/"))
            image = skeleton_image(HOST, tree, directory)
            groups, mounts = f"/{asked.label}", overlays(tree, directory)
            words = docker_words(asked, binds, image=image, mounts=mounts, groups=groups)
            argv = ["docker", *words, *init]
        stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(asked.label)))
        yield Plain(argv=tuple(argv), fifo=report / "first")


def _oci(kind: OciRuntime, wrap: list[str], directory: Path) -> list[str]:
    unified = cgroups.unified_beside_version1() if kind.detach_unified else None
    around = [*wrap, *(["--detach", str(unified)] if unified else []), "--"]
    return [*around, kind.program, "--root", str(directory / "state"), *kind.options]


def own_exec(instance: Instance, tools: Tools) -> list[str]:
    """The program's own exec of `true`: the command without what nm-box puts before and behind."""
    words = instance.command(["true"])
    box = [i for i, word in enumerate(words) if word == tools / "nm-box"]
    return [*words[4 : box[-1]], "true"]


def timed(argv: Sequence[str]) -> Times:
    begin = time.perf_counter()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True, cwd="/")
    return time.perf_counter() - begin, 0.0


def measure(backend: Backend, tools: Tools, rounds: int) -> None:
    numbers = count()
    with ExitStack() as stack:
        here = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        state = stack.enter_context(scratch_directory(f"{LABEL}-plain"))
        command_line = stack.enter_context(plain(backend, tools, state))

        def ours() -> Times:
            scratch = here / f"s{next(numbers)}"
            scratch.mkdir()
            begin = time.perf_counter()
            with backend.start(HOST, tools, request(backend.name, scratch)) as instance:
                pass
            return instance.phases["first_instruction"], time.perf_counter() - begin

        standing = stack.enter_context(backend.start(HOST, tools, request(backend.name, here, "standing")))
        what: dict[str, Callable[[], Times]] = {
            "backend": ours,
            "plain": command_line.run,
            "command": lambda: timed(standing.command(["true"])),
            "exec": lambda: timed(own_exec(standing, tools)),
        }
        interleaved(what, 1)
        found = interleaved(what, rounds)
    start = {name: [t[0] for t in found[name]] for name in found}
    whole = {name: [t[1] for t in found[name]] for name in ("backend", "plain")}
    print(f"{backend.name}, n {rounds}")
    for name, values in start.items():
        what_is = f"start, {name}" if name in whole else name
        print(f"  {what_is:<24}{shown(interval(values), 'ms', 1e3)}")
    for name, values in whole.items():
        print(f"  {f'start and stop, {name}':<24}{shown(interval(values), 'ms', 1e3)}")
    print(f"  start against plain {shown(ratio(start['backend'], start['plain']))} (at most 1.1)")
    print(f"  start and stop against plain {shown(ratio(whole['backend'], whole['plain']))}")
    print(
        f"  command beyond exec {shown(difference(start['command'], start['exec']), 'ms', 1e3)} (at most 20)"
    )


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
