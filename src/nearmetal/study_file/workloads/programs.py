"""Users' own programs: read their entries, and check what concerns several keys."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ...model.expression import mistake
from ...model.program import SCRIPT, interpreter_of, meets
from ...model.study import Bounds, CommandWorkload, MetricSpec, Reference, VerifySpec
from ..catalog import Catalog
from ..problems import Path, Problems
from ..tree import mark_of
from ..validate import validate
from .sweep import Piece

if TYPE_CHECKING:
    from ..sections import CommandSection, MetricSection, VerifySection


def read_program(piece: Piece, catalog: Catalog | None, problems: Problems) -> CommandWorkload | None:
    """Return the workload of an entry; None if the entry has mistakes, which are added to problems.

    Paths are relative to the current directory and are made absolute, since a run may be resumed from another
    directory.
    catalog: names that the study may use. If it is None, the existence of files is not checked either.
    """
    from ..sections import CommandSection

    before = problems.added
    section = validate(CommandSection, piece.node, piece.path, problems)
    if section is None or problems.added > before:
        return None
    checks = _Checks(section, piece, problems)
    checks.start()
    checks.files(look=catalog is not None)
    for name, metric in section.metrics.items():
        checks.metric(metric, ("metrics", name))
    if section.verify is not None:
        checks.verify(section.verify, look=catalog is not None)
    if problems.added > before:
        return None
    files = {str(FilePath(path).absolute()): name for path, name in section.files.items()}
    return CommandWorkload(
        name=piece.name,
        argv=_argv(section),
        script=section.script,
        mpi=section.mpi,
        per_task=section.per_task,
        files=files,
        env=dict(section.env),
        metrics=tuple(
            MetricSpec(
                name=name,
                unit=m.unit,
                better=m.better,
                regex=m.regex,
                json_path=m.json_path,
                file=m.file,
                scale=m.scale,
                bounds=Bounds(least=m.min, most=m.max),
            )
            for name, m in section.metrics.items()
        ),
        verify=None if section.verify is None else _verify_spec(section.verify),
        exit_codes=tuple(section.exit_codes),
        time_limit=section.time_limit,
    )


def _argv(section: CommandSection) -> tuple[str, ...]:
    """Return the command line. If the program has a directory of its own, a relative path to it is made
    absolute, unless the file is one of those that are put into that directory."""
    program, *arguments = section.command or [""]
    elsewhere = bool(section.files) or any(m.file for m in section.metrics.values())
    elsewhere = elsewhere or (section.verify is not None and section.verify.file is not None)
    if elsewhere and "/" in program and not meets(program, section.files.values()):
        program = str(FilePath(program).absolute())
    return (program, *arguments) if section.command else ()


def _verify_spec(section: VerifySection) -> VerifySpec:
    reference = None
    if section.reference is not None:
        path = str(FilePath(section.reference).absolute())
        reference = Reference(path=path, tolerance=section.tolerance, absolute=section.absolute)
    return VerifySpec(
        regex=section.regex,
        expected=section.expected,
        bounds=Bounds(least=section.min, most=section.max),
        file=section.file,
        reference=reference,
    )


class _Checks:
    """The checks of one program. Every mistake is added to problems with its position."""

    def __init__(self, section: CommandSection, piece: Piece, problems: Problems) -> None:
        self._section, self._piece, self._problems = section, piece, problems
        self._brought = [*section.files.values(), *([SCRIPT] if section.script is not None else [])]

    def _add(self, at: Path, what: str, *, key: bool = False) -> None:
        self._problems.add(mark_of(self._piece.node, at, key=key), self._piece.path + at, what)

    def start(self) -> None:
        """Check the command, or the interpreter of the script."""
        command, script = self._section.command, self._section.script
        if command and not command[0].strip():
            self._add(("command", 0), "an empty text is no program")
        elif command and "/" not in command[0] and meets(command[0], self._section.files.values()):
            what = f"without a / it is looked for on PATH; write ./{command[0]} for the one among files"
            self._add(("command", 0), what)
        if script is not None and interpreter_of(script) is None:
            self._add(("script",), "its first line names no interpreter, such as #!/bin/sh")
        if self._section.mpi and self._section.per_task:
            what = "mpi starts a process for each task already; one of mpi and per_task"
            self._add(("per_task",), what, key=True)

    def files(self, *, look: bool) -> None:
        """Check that every file exists, and that no two files have the same place.

        look: whether to check that the files exist.
        """
        seen = [SCRIPT] if self._section.script is not None else []
        for path, name in self._section.files.items():
            at: Path = ("files", path)
            other = meets(name, seen)
            if other is not None:
                self._add(at, f'"{name}" meets "{other}", which is put there too')
            seen.append(name)
            why = _unreadable(path, directory=True) if look else ""
            if why:
                self._add(at, why, key=True)

    def metric(self, metric: MetricSection, at: Path) -> None:
        """Check that a metric has exactly one way to find its number."""
        if (metric.regex is None) == (metric.json_path is None):
            many = "both are given" if metric.regex is not None else "neither is given"
            self._add(at, f"one of regex and json_path finds the number; {many}", key=True)
        if metric.regex is not None:
            self._regex(metric.regex, "the number", (*at, "regex"))
        self._bounds(metric, at)
        self._written(metric.file, (*at, "file"))

    def verify(self, verify: VerifySection, *, look: bool) -> None:
        """Check what a verification searches for, and what it compares it with.

        look: whether to check that the reference file exists.
        """
        at: Path = ("verify",)
        bounded = verify.min is not None or verify.max is not None
        if verify.regex is None and (bounded or verify.expected is not None):
            self._add(at, "expected, min and max are of what a regex finds; write regex: ^error (.*)$")
        elif verify.regex is None and verify.reference is None:
            self._add(at, "nothing to hold it against; write regex: ^converged after, or reference: a file")
        if bounded and verify.expected is not None:
            self._add((*at, "expected"), "one of expected and min or max", key=True)
        if verify.regex is not None:
            one = "what is expected" if verify.expected is not None else "the number" if bounded else None
            self._regex(verify.regex, one, (*at, "regex"))
        self._bounds(verify, at)
        self._written(verify.file, (*at, "file"))
        for key, value in (("tolerance", verify.tolerance), ("absolute", verify.absolute)):
            if value is not None and verify.reference is None:
                self._add((*at, key), "of a reference, and there is none", key=True)
        if verify.absolute is not None and verify.absolute < 0:
            self._add((*at, "absolute"), "a difference is not below 0")
        if verify.reference is not None and look:
            why = _unreadable(verify.reference, directory=False)
            if why:
                self._add((*at, "reference"), why)

    def _regex(self, expression: str, held: str | None, at: Path) -> None:
        what = mistake(expression, held)
        if what:
            self._add(at, what)

    def _bounds(self, section: MetricSection | VerifySection, at: Path) -> None:
        if section.min is not None and section.max is not None and section.min > section.max:
            self._add((*at, "min"), f"{section.min:g} is more than max, {section.max:g}")

    def _written(self, name: str | None, at: Path) -> None:
        """Check that a file the program should write is not one of those that are put there for it."""
        if name is not None and meets(name, self._brought):
            self._add(at, f'"{name}" is put there by us; name a file that the program writes')


def _unreadable(path: str, *, directory: bool) -> str:
    """Return why a file cannot be read; '' if it can.

    directory: whether a directory is accepted too.
    """
    file = FilePath(path)
    try:
        if directory and file.is_dir():
            next(file.iterdir(), None)
        elif not file.is_file():
            return f"{file.absolute()} is no file" if file.exists() else f"{file.absolute()} is not there"
        else:
            file.open("rb").close()
    except (OSError, ValueError) as e:
        return f"{file.absolute()} cannot be read: {getattr(e, 'strerror', None) or e}"
    return ""
