"""Moves of a process and of a container by CRIU to a copy of their images: by nearmetal, and by hand with
plain commands of criu and runc. Parts of benchmarks/lifecycle.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from nearmetal.environments import Criu, InstanceRequest, Tools, Unavailable
from nearmetal.environments.criu import script
from nearmetal.environments.registry import get_backend
from nearmetal.host import LocalHost
from nearmetal.host.connection import connected_sockets
from nearmetal.host.runtime import scratch_directory
from nearmetal.lifecycle import Method
from nearmetal.model.environments.guest import MIB
from nearmetal.model.study import Attachment, Environment
from nearmetal.node.criu import find_criu
from nearmetal.subjects.events.checkpoint_event import CheckpointEvent
from nearmetal.subjects.events.progress import ProgramProgress, read_progress

HOST = LocalHost()
LABEL = f"nearmetal-check-{os.getpid()}-lp"
MEMORY, HOT, RATE = 256 * MIB, 16 * MIB, 16 * MIB
LIMIT = 60.0
LOOK_AGAIN = 0.0005
PIPES = Path("/proc/sys/fs/pipe-max-size")
PINNED = ("taskset", "--cpu-list", str(HOST.cpus()[-1]))
"""Command prefix that pins a program to the CPU of the instance. CRIU does not restore the CPU affinity."""
numbers = count()


@dataclass(frozen=True, kw_only=True)
class ProcessMove:
    """One move. Times are in seconds.

    total: time from the request until the program continues and the source has been removed.
    gap: longest time between two steps of the program, which takes one step per millisecond.
    phases: time by phase, only for moves by nearmetal.
    """

    total: float
    gap: float
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Directories of one move: for images at both sides, for files that the instance writes, and for the
    record of its program."""

    root: Path

    def __post_init__(self) -> None:
        for path in (self.here, self.there, self.root / "layers", self.root / "scratch", self.shared):
            path.mkdir()

    @property
    def here(self) -> Path:
        return self.root / "here"

    @property
    def there(self) -> Path:
        return self.root / "there"

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    @property
    def record(self) -> Path:
        return self.shared / "record"


def require_criu() -> Criu:
    found = find_criu(HOST)
    if isinstance(found, Unavailable):
        sys.exit(f"{found.reason}; {found.remedy}")
    return found


@contextmanager
def large_pipes() -> Iterator[None]:
    """Raise the limit on the size of pipes, as lazy pages need it, until exit."""
    before = PIPES.read_text()
    if int(before) < 4 << 20:
        PIPES.write_text(str(4 << 20))
    try:
        yield
    finally:
        PIPES.write_text(before)


def by_nearmetal(tools: Tools, criu: Criu, backend: str, method: Method) -> ProcessMove:
    with scratch_directory(f"{LABEL}-{next(numbers)}") as root:
        place = Place(root=root)
        own = "net" in get_backend(backend).capabilities.own
        environment = Environment(
            name=backend,
            backend=backend,
            attachment=Attachment.NONE if own else Attachment.HOST,
            placements=(),
        )
        request = InstanceRequest(
            label=root.name,
            hostname="nmlp",
            environment=environment,
            cpus=HOST.cpus()[-1:],
            seat=None,
            binds=(place.shared,),
            scratch=place.root / "scratch",
        )
        moved = CheckpointEvent(
            host=HOST,
            tools=tools,
            criu=criu,
            backend=get_backend(backend),
            request=request,
            method=method,
            memory=MEMORY,
            dirtied=(HOT, RATE),
            images=place.here,
            there=place.there,
            layers=place.root / "layers",
            record=place.record,
            log=place.root / "log",
        ).run()
        return ProcessMove(total=moved.phases.total, gap=moved.pause, phases=moved.phases.record())


def process_by_hand(tools: Tools, criu: Criu, method: Method) -> ProcessMove:
    """Move a process with the commands of the manual: dump, cp, restore."""
    with _by_hand(tools) as (place, words, stack):
        process = subprocess.Popen(
            [*PINNED, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        stack.callback(_end, process)
        before = _settled(place)
        lazy = method is Method.CRIU_LAZY
        way = _lazily if lazy else _by_files
        begin = time.monotonic()
        way(criu, place, process, stack)
        _wait(place, before.steps)
        if lazy:
            process.wait()
            _wait_fetched(place)
        return ProcessMove(total=time.monotonic() - begin, gap=_verified(place).gap)


def _by_files(criu: Criu, place: Place, process: subprocess.Popen[bytes], stack: ExitStack) -> None:
    _run([*criu.argv, "dump", "--tree", str(process.pid), "--images-dir", str(place.here)])
    process.wait()  # its PID is free then
    _run(["cp", "--archive", f"{place.here}/.", str(place.there)])
    pid_file = place.root / "pid"
    stack.callback(_kill, pid_file)
    words = [*PINNED, *criu.argv, "restore", "--images-dir", str(place.there), "-d"]
    _run([*words, "--pidfile", str(pid_file)])


def _lazily(criu: Criu, place: Place, process: subprocess.Popen[bytes], stack: ExitStack) -> None:
    near, far = connected_sockets()
    tree = ["--tree", str(process.pid), "--images-dir", str(place.here)]
    with near:
        words = [*criu.argv, "dump", *tree, "--lazy-pages", "--ps-socket", str(near.fileno())]
        dump = _background(words, stack, near.fileno())
    _run(["cp", "--archive", f"{place.here}/.", str(place.there)])
    with far:
        words = [*criu.argv, "lazy-pages", "--images-dir", str(place.there), "--page-server"]
        fetching = _background([*words, "--ps-socket", str(far.fileno())], stack, far.fileno())
    # The source still has its PIDs, so the copy gets a namespace of its own.
    words = [*PINNED, "unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    words += [*criu.argv, "restore", "--images-dir", str(place.there), "--lazy-pages"]
    restored = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(_end, restored)
    (place.root / "fetched").write_text(f"{dump.pid} {fetching.pid}")
    stack.callback(dump.wait)
    stack.callback(fetching.wait)


def _wait_fetched(place: Place) -> None:
    """Wait until both sides of the page server have ended."""
    for pid in map(int, (place.root / "fetched").read_text().split()):
        end = time.monotonic() + LIMIT
        while _alive(pid):
            if time.monotonic() > end:
                raise SystemExit("the pages are not fetched")
            time.sleep(LOOK_AGAIN)


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def container_by_hand(tools: Tools, criu: Criu) -> ProcessMove:
    """Move a container of runc with its commands: checkpoint, cp, restore."""
    with _by_hand(tools) as (place, words, stack):
        bundle = place.root / "bundle"
        (bundle / "root").mkdir(parents=True)
        _run(["runc", "spec", "--bundle", str(bundle)])
        config = json.loads((bundle / "config.json").read_text())
        (bundle / "config.json").write_text(json.dumps(_container(config, words, place, tools)))
        name = place.root.name
        runc = [
            "runc",
            "--root",
            str(place.root / "runc"),
            "--criu",
            str(script(tools, criu.argv, place.root)),
        ]
        stack.callback(subprocess.run, [*runc, "delete", "--force", name], check=False, capture_output=True)
        _run([*runc, "run", "--detach", "--bundle", str(bundle), name])
        before = _settled(place)
        begin = time.monotonic()
        _run([*runc, "checkpoint", "--image-path", str(place.here), "--work-path", str(place.here), name])
        _run(["cp", "--archive", f"{place.here}/.", str(place.there)])
        work = ["--image-path", str(place.there), "--work-path", str(place.there)]
        _run([*PINNED, *runc, "restore", "--detach", *work, "--bundle", str(bundle), name])
        _wait(place, before.steps)
        return ProcessMove(total=time.monotonic() - begin, gap=_verified(place).gap)


def _container(config: dict[str, Any], words: Sequence[str], place: Place, tools: Tools) -> dict[str, Any]:
    """Return the configuration of a container that runs a program and mounts the directory of its record."""
    # The streams are opened inside: CRIU does not know a file of the machine.
    inside = 'exec "$@" </dev/null >/dev/null 2>&1'
    config["process"] |= {"args": ["/bin/sh", "-c", inside, "sh", *PINNED, *words], "terminal": False}
    config["root"] = {"path": "root", "readonly": False}
    seen = [Path(p) for p in ("/bin", "/lib", "/lib64", "/usr") if Path(p).exists()]
    config["mounts"] += [
        {"destination": str(p), "type": "bind", "source": str(p.resolve()), "options": ["rbind", "ro"]}
        for p in (*seen, tools.directory)
    ]
    config["mounts"].append(
        {
            "destination": str(place.shared),
            "type": "bind",
            "source": str(place.shared),
            "options": ["rbind", "rw"],
        }
    )
    return config


@contextmanager
def _by_hand(tools: Tools) -> Iterator[tuple[Place, list[str], ExitStack]]:
    """Yield directories, the command line of the program to be moved, and a stack that ends all processes."""
    with scratch_directory(f"{LABEL}-{next(numbers)}") as root, ExitStack() as stack:
        place = Place(root=root)
        words = [tools / "nm-keeper", str(MEMORY), str(place.record), str(HOT), str(RATE)]
        yield place, words, stack


def _run(words: Sequence[str]) -> None:
    # Files, not pipes, which a detached program would keep open; and not subprocess.run(), which looks only
    # every 50 ms whether a program with a time limit has ended.
    with tempfile.NamedTemporaryFile("r") as said:
        output = Path(said.name)
        if HOST.start(words, stdout=output, stderr=output).wait(LIMIT) != 0:
            raise SystemExit(f"{' '.join(words)}: {output.read_text()[-1000:]}")


def _background(words: Sequence[str], stack: ExitStack, server: int) -> subprocess.Popen[bytes]:
    """Start a program of CRIU, and return when it is ready."""
    reader, writer = os.pipe()
    stack.callback(os.close, reader)
    process = subprocess.Popen(
        [*words, "--status-fd", str(writer)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(writer, server),
    )
    stack.callback(process.kill)
    os.close(writer)
    if not os.read(reader, 1):
        raise SystemExit(f"{' '.join(words)} has ended")
    return process


def _settled(place: Place) -> ProgramProgress:
    """Wait until the program has verified its memory once."""
    return _until(place, lambda now: now.passes >= 1)


def _wait(place: Place, steps: int) -> None:
    """Wait until the program has taken more steps than it had at the source."""
    source = read_progress(place.record)
    _until(place, lambda now: now.steps > max(steps, source.steps))


def _verified(place: Place) -> ProgramProgress:
    passes = read_progress(place.record).passes
    found = _until(place, lambda now: now.passes >= passes + 2)
    if found.wrong or found.strange:
        raise SystemExit("the program came to a wrong answer after a move by hand")
    return found


def _until(place: Place, reached: Callable[[ProgramProgress], bool]) -> ProgramProgress:
    end = time.monotonic() + LIMIT
    while not reached(now := read_progress(place.record)):
        if time.monotonic() > end:
            raise SystemExit("the program does not go on")
        time.sleep(LOOK_AGAIN)
    return now


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(LIMIT)


def _kill(pid_file: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
