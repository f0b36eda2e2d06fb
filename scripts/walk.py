"""Count calls between the packages of nearmetal, and follow the data of one trial, while a command runs.

python scripts/walk.py [-o FILE] WORD...
    Print how often each package calls each other one, most calls first. The words are a nearmetal command.
python scripts/walk.py --trial 2.podman/1x1 [-o FILE] WORD...
    Print each hand-over of this trial's data from one package to another, in order, and how often the data
    enter each package.

-o writes the same as a flow chart in Mermaid. All threads of the process are traced, by sys.setprofile.

Rules of --trial:
- An object carries the trial if it is or contains the trial's ID, or the line of its record.
- A hand-over is a call with an argument that carries the trial, or the return of such an object from a call
  without one. A method called on an object that carries the trial is none, nor is the constructor of a
  dataclass.
- model, units and errors are left out: they define the data, and every package uses them.
- A return is an entry into a package that the data were in before, and had left.
"""

from __future__ import annotations

import argparse
import dataclasses
import dis
import inspect
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

ROOT = "nearmetal"
DEFINITIONS = {"model", "units", "errors"}
_names: dict[str, str | None] = {}


def module(frame: FrameType) -> str | None:
    """Return the module of a frame's code below nearmetal; None for code outside of it."""
    name = frame.f_globals.get("__name__", "")
    if name not in _names:
        inside = name.removeprefix(f"{ROOT}.")
        _names[name] = inside if inside != name else None
    return _names[name]


def package(name: str) -> str:
    """Return the package of nearmetal that a module belongs to."""
    return name.partition(".")[0]


def caller(frame: FrameType) -> str | None:
    """Return the module that called a frame. Libraries between the two are skipped."""
    back = frame.f_back
    while back is not None and module(back) is None:
        back = back.f_back
    return None if back is None else module(back)


class Trace(ABC):
    """A function for sys.setprofile, and what it found."""

    @abstractmethod
    def __call__(self, frame: FrameType, event: str, value: object) -> None: ...

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Return the table to print."""

    @abstractmethod
    def arrows(self) -> Iterator[str]:
        """Return the arrows of the flow chart."""


class Calls(Trace):
    """Calls by package of the caller and package of the callee."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        if event != "call" or (into := module(frame)) is None or (out := caller(frame)) is None:
            return
        if package(out) != package(into):
            self.calls[package(out), package(into)] += 1

    def lines(self) -> Iterator[str]:
        for (out, into), n in self.calls.most_common():
            yield f"{out:<14}{into:<14}{n:>10,}"

    def arrows(self) -> Iterator[str]:
        for (out, into), n in self.calls.most_common():
            yield f"{out} -->|{n:,}| {into}"


class Step(NamedTuple):
    """One hand-over.

    out, into: modules that hand over and receive.
    function: the function that was called.
    fetched: whether the data were returned, not passed as an argument.
    """

    out: str
    into: str
    function: str
    fetched: bool


class TrialPath(Trace):
    """The hand-overs of one trial's data, in order."""

    def __init__(self, trial: str) -> None:
        self._trial, self._line = trial, f'"trial":"{trial}"'
        self._given: set[int] = set()  # frames whose arguments carry the trial
        self.steps: list[Step] = []

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        if event not in ("call", "return") or (inner := module(frame)) is None:
            return
        if event == "call":
            if not _resumed(frame):
                self._called(frame, inner)
        elif id(frame) not in self._given:
            if self._carries(value):
                self._step(inner, caller(frame), frame, fetched=True)
        elif not _is_generator(frame):
            self._given.discard(id(frame))

    def _called(self, frame: FrameType, inner: str) -> None:
        code, local = frame.f_code, frame.f_locals
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        carrying = [name for name in names if self._carries(local.get(name))]
        if not carrying:
            self._given.discard(id(frame))  # of an earlier frame at the same address
            return
        self._given.add(id(frame))
        if carrying != ["self"] and code.co_filename != "<string>":  # the constructor of a dataclass
            self._step(caller(frame), inner, frame, fetched=False)

    def _step(self, out: str | None, into: str | None, frame: FrameType, *, fetched: bool) -> None:
        if out is None or into is None or out == into or {package(out), package(into)} & DEFINITIONS:
            return
        step = Step(out, into, frame.f_code.co_name, fetched)
        if self.steps[-1:] != [step]:
            self.steps.append(step)

    def _carries(self, value: object, depth: int = 4) -> bool:
        """Return whether a value is the trial's, or contains something of the trial's."""
        if isinstance(value, str):
            return value == self._trial or self._line in value
        if isinstance(value, bytes):
            return self._line.encode() in value
        return depth > 0 and any(self._carries(part, depth - 1) for part in _parts(value))

    def _between_packages(self) -> list[Step]:
        return [step for step in self.steps if package(step.out) != package(step.into)]

    def lines(self) -> Iterator[str]:
        between = self._between_packages()
        for at, step in enumerate(between, 1):
            how = f"returned by {step.out}" if step.fetched else f"passed to {step.into}"
            yield f"{at:>4}  {package(step.out):<14}{package(step.into):<14}{how}.{step.function}"
        packages = entries((package(s.out), package(s.into), s.fetched) for s in between)
        yield ""
        for name, n in packages.most_common():
            yield f"{name:<14}{n:>4}"
        files = entries((s.out, s.into, s.fetched) for s in self.steps)
        for what, found in (("packages", packages), ("files", files)):
            yield f"{what}: {len(found)}, entries: {found.total()}, returns: {found.total() - len(found)}"

    def arrows(self) -> Iterator[str]:
        numbers: dict[tuple[str, str], list[str]] = {}
        for at, step in enumerate(self._between_packages(), 1):
            numbers.setdefault((package(step.out), package(step.into)), []).append(str(at))
        for (out, into), found in numbers.items():
            yield f"{out} -->|{', '.join(found)}| {into}"


def entries(steps: Iterable[tuple[str, str, bool]]) -> Counter[str]:
    """Return how often the data enter each place. Data that are fetched enter the place that has them first,
    unless they are there already."""
    found: Counter[str] = Counter()
    here = None
    for out, into, fetched in steps:
        if fetched and out != here:
            found[out] += 1
            here = out
        if into != here:
            found[into] += 1
        here = into
    return found


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(value)
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    if not type(value).__module__.startswith(ROOT):
        return ()
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = [*getattr(value, "__struct_fields__", ()), *getattr(value, "__dict__", ())]
    return [getattr(value, name, None) for name in names]


def _is_generator(frame: FrameType) -> bool:
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR)


def _resumed(frame: FrameType) -> bool:
    """Return whether a call event continues a generator that was started before."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return _is_generator(frame) and dis.opname[code[at]] == "RESUME" and code[at + 1] != 0


def main() -> None:
    """Run the command, print what was found, and exit with the command's exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trial", help="ID of the trial to follow: <block>.<arm>")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    sys.argv = [ROOT, *given.words]
    from nearmetal.cli.app import main as nearmetal

    trace: Trace = Calls() if given.trial is None else TrialPath(given.trial)
    code = 0
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        nearmetal()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    print("\n".join(trace.lines()), file=sys.stderr)
    if given.output is not None:
        arrows = "".join(f"  {arrow}\n" for arrow in trace.arrows())
        given.output.write_text(f"flowchart TD\n{arrows}")
    sys.exit(code)


if __name__ == "__main__":
    main()
