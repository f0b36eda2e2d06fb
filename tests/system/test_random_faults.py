"""Checkpoints with a random fault at a random time, until 300 faults have hit. None may end wrongly.

A fault misses if it comes before or after the move, or finds nothing that it could kill. Its checkpoint is
judged too, and another fault of its kind is drawn.

Wrong is: two copies of the program at any time, a program that runs nowhere without an error that says so, an
error that says the opposite of what is seen from outside, or anything left, after `nearmetal clean` where the
tool itself was killed. `--part apart` runs them; each seed is a test with faults of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import pytest
from tests.patience import until
from tests.system.checkpoint_case import Case, checkpointing_backends
from tests.system.random_draws import Fault, faults, judge

from nearmetal.environments import Criu
from nearmetal.errors import NearmetalError, RunError, TrialFailedError
from nearmetal.host import namespaces
from nearmetal.host.leftovers import find
from nearmetal.host.runtime import scratch_directory
from nearmetal.subjects.events import checkpoint_event
from nearmetal.subjects.events.progress import read_progress

pytestmark = [pytest.mark.apart, pytest.mark.beside, pytest.mark.no_run]

BACKENDS = ("native", "namespaces", "runc")
SEEDS = 12
SPAN = 0.5
"""Seconds from the begin of a move, within which its fault occurs. Most moves take less."""
HERE, LOST = "the program goes on at the source", "runs nowhere"
numbers = count()


@dataclass
class Observer:
    """Looks from outside whether the program runs where an error says, before anything is ended.

    begun, failing, over: of the event. wrong: what was found.
    """

    record: Path
    begun: threading.Event = field(default_factory=threading.Event)
    failing: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    struck_meanwhile: bool = False
    wrong: list[str] = field(default_factory=list)

    def judge(self, said: str) -> None:
        steps, end = read_progress(self.record).steps, time.monotonic() + (10.0 if HERE in said else 0.05)
        while not (on := read_progress(self.record).steps > steps) and time.monotonic() < end:
            time.sleep(0.001)
        if on != (HERE in said) and not self.struck_meanwhile:
            self.wrong.append(f"it is said: {said}; and it {'runs' if on else 'does not run'}")


@contextmanager
def observed(record: Path) -> Iterator[Observer]:
    observer, original = Observer(record), checkpoint_event._EventRun._failed

    def failed(course: checkpoint_event._EventRun, error: RunError | OSError) -> TrialFailedError:
        observer.failing.set()
        found = original(course, error)
        observer.judge(found.what)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_event._EventRun, "_failed", failed)
        yield observer


def matching(case: Case, *, names: tuple[str, ...] = (), words: tuple[str, ...] = ()) -> list[int]:
    """The processes of a case with one of these names, or with one of these words on their command line."""
    found = []
    for pid in case.processes():
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name in names or any(word.encode() in command for word in words):
                found.append(pid)
    return found


def kill(pids: list[int]) -> int:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def kill_program(case: Case) -> int:
    """The source, or after the restore the destination, with its first process."""
    return kill(matching(case, names=("nm-init", "nm-keeper")))


def kill_criu(case: Case) -> int:
    return kill(matching(case, words=("dump", "restore", "swrk")))


def cut_link(case: Case) -> int:
    """Ends what memory is sent by."""
    return kill(matching(case, words=("page-server", "lazy-pages")))


def kill_copy(case: Case) -> int:
    """The copy of the images from one side to the other: the tool's own child, without a label. It takes a
    few milliseconds, which a fault at a random time has never met: this one waits for the next copy."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    found = []
    for pid in map(int, children.split()):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text()
            found += [pid] if command.startswith("cp\0") and str(case.root) in command else []
    return kill(found)


def kill_runtime(case: Case) -> int:
    """The container program, or nm-box, which holds what was started."""
    return kill(matching(case, names=("runc", "nm-box")))


WAITING = (kill_copy,)
"""Faults that wait until they find what they kill, or until the event is over."""
KILLS: Mapping[str, Callable[[Case], int]] = {
    "kill of the program": kill_program,
    "kill of CRIU": kill_criu,
    "cut link": cut_link,
    "kill of the copy": kill_copy,
    "kill of the runtime": kill_runtime,
}
FULL, TOOL = "full disk", "kill of the tool"
KINDS = (*KILLS, FULL, TOOL)


def run_with(case: Case, act: Callable[[Case], int], delay: float) -> tuple[str, int, list[str]]:
    """Run an event with a fault some seconds after its begin. Return the error, empty without one, how many
    processes were killed, and what was wrong."""
    said, struck = "", 0

    with observed(case.record) as observer:

        def strike() -> None:
            nonlocal struck
            observer.begun.wait()
            if observer.over.wait(delay) or observer.failing.is_set():
                return
            struck = act(case)
            while act in WAITING and not struck and not observer.over.wait(0.0005):
                struck = act(case)
            observer.struck_meanwhile = struck > 0 and observer.failing.is_set()

        striker = threading.Thread(target=strike)
        striker.start()
        try:
            case.event(lambda _: observer.begun.set()).run()
        except NearmetalError as e:
            said = e.what
        finally:
            observer.over.set()
            observer.begun.set()
            striker.join()
    return said, struck, [*observer.wrong, *wrongs(case, said)]


def wrongs(case: Case, said: str) -> list[str]:
    """What is wrong after an event: with its copies, with what was said of them, with what is left."""
    found = []
    until(lambda: not case.processes(), f"the end of the processes of {case.label}")
    before = read_progress(case.record)
    time.sleep(0.02)
    after = read_progress(case.record)
    if after != before:
        found.append("an unknown copy of the program runs")
    if after.strange:
        found.append("two copies ran")
    if said and not any(fate in said for fate in (HERE, LOST, "is ended", "has ended")):
        found.append("the error does not say where the program runs")
    left = [item for item in find(case.label) if not Path(item.detail).is_relative_to(case.root)]
    return [*found, *(f"left: {item.kind} {item.detail}" for item in left)]


def with_tool_killed(case: Case, delay: float) -> tuple[bool, list[str]]:
    """Kill the tool some seconds after the program runs, and clean. Return whether it still ran, and what is
    wrong."""
    argv = [sys.executable, "-m", "tests.system.checkpoint_case", case.name, case.method.value, case.label]
    argv += [str(case.directory), "never", json.dumps(case.criu.argv)]
    errors = case.directory / "tool.err"
    with errors.open("w") as stderr, subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=stderr) as tool:
        until(lambda: read_progress(case.record).passes or tool.poll() is not None, "the begin of the work")
        time.sleep(delay)
        alive = tool.poll() is None
        tool.kill()
        tool.wait()
    assert alive or tool.returncode == 0, errors.read_text()
    case.clean()
    until(lambda: not case.processes(), f"the end of the processes of {case.label}")
    case.clean()
    steps = read_progress(case.record)
    time.sleep(0.02)
    found = [] if read_progress(case.record) == steps else ["an unknown copy of the program runs"]
    found += ["two copies ran"] if steps.strange else []
    return alive, [*found, *(f"left: {item.kind} {item.detail}" for item in find(case.label))]


def fault(kind: str, rng: Random, criu: Criu, directory: Path) -> Fault:
    """Make one event with a fault of a kind."""
    name = rng.choice(BACKENDS)
    able = [m for m in checkpointing_backends()[name] if m not in criu.unable]
    method = rng.choice(able)
    delay, size, there = rng.uniform(0.0, SPAN), rng.randrange(4, 6 << 10), rng.random() < 0.5
    words = f"{name} {method.value} after {delay:.3f} s, "
    label = f"nearmetal-test{os.getpid()}-f{next(numbers)}"
    directory.mkdir()
    with ExitStack() as stack:
        root = stack.enter_context(scratch_directory(f"{label}-images"))
        case = Case(name=name, method=method, criu=criu, label=label, directory=directory, root=root)
        case.make()
        if kind == TOOL:
            case = Case(
                name=name, method=method, criu=criu, label=f"{label}-tool", directory=directory, root=root
            )
            alive, wrong = with_tool_killed(case, delay)
            return f"{words}{TOOL} {int(alive)}", alive, wrong
        if kind == FULL:
            full = case.there if there else case.here
            namespaces.mount("nearmetal-test", full, "tmpfs", options=f"size={size}k")
            stack.callback(namespaces.detach, full)
            said, _, wrong = run_with(case, lambda _: 0, 0.0)
            words += f"{size} KiB {'there' if there else 'here'}: {said or 'no error'}"
            return words, bool(said), wrong
        said, struck, wrong = run_with(case, KILLS[kind], delay)
        return f"{words}{kind} {struck}: {said or 'no error'}", struck > 0, wrong


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_random_fault_ends_wrongly(seed: int, criu: Criu, tmp_path: Path) -> None:
    rng = Random(seed)
    judge(seed, KINDS, faults(rng, KINDS, lambda kind: fault(kind, rng, criu, tmp_path / f"{next(numbers)}")))
