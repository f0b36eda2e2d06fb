"""Reads the entries of users' own programs, and checks combinations of keys."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path as FilePath

from ...model.expression import mistake
from ...model.study import Bounds, CommandWorkload, MetricSpec, Stream, VerifySpec
from ...model.workloads.script import SCRIPT, interpreter_of, meets
from ..catalog import Catalog
from ..problems import Path
from ..validate import validate
from .sweep import ExpandedWorkload


def read_program(piece: ExpandedWorkload, catalog: Catalog | None) -> CommandWorkload | None:
    """Return the workload of an entry; None if the entry has mistakes.

    Paths are relative to the current directory and are made absolute, since a run may be resumed from another
    directory.

    catalog: names that the study may use; None for a frozen study, for which the existence of files is not
        checked.
    """
    from ..sections import CommandSection, made

    before = piece.problems.added
    section = validate(CommandSection, piece)
    if section is None or piece.problems.added > before:
        return None
    written: CommandWorkload = made(section, name=piece.name)
    checks = _Checks(written, piece)
    checks.start()
    checks.files(look=catalog is not None)
    for metric in written.metrics:
        checks.metric(metric, ("metrics", metric.name))
    if written.verify is not None:
        checks.verify(written.verify, look=catalog is not None)
    if piece.problems.added > before:
        return None
    return replace(
        written,
        argv=_argv(written),
        files={_absolute(path): name for path, name in written.files.items()},
        verify=None if written.verify is None else _with_absolute_reference(written.verify),
    )


def _argv(written: CommandWorkload) -> tuple[str, ...]:
    """Return the command line.

    If the program runs in a directory of its own, its relative path is made absolute, unless the program is
    one of the files that are copied into that directory.
    """
    if not written.argv:
        return ()
    program, *arguments = written.argv
    elsewhere = bool(written.files or written.outputs)
    if elsewhere and "/" in program and not meets(program, written.files.values()):
        program = _absolute(program)
    return (program, *arguments)


def _with_absolute_reference(verify: VerifySpec) -> VerifySpec:
    reference = verify.reference
    if reference is None:
        return verify
    return replace(verify, reference=replace(reference, path=_absolute(reference.path)))


def _absolute(path: str) -> str:
    return str(FilePath(path).absolute())


class _Checks:
    """The checks of one program."""

    def __init__(self, written: CommandWorkload, piece: ExpandedWorkload) -> None:
        self._written, self._piece = written, piece
        self._brought = [*written.files.values(), *([SCRIPT] if written.script is not None else [])]

    def start(self) -> None:
        """Check the command, or the interpreter of the script."""
        command, script = self._written.argv, self._written.script
        if command and not command[0].strip():
            self._piece.mistake(("command", 0), "an empty text is not a program")
        elif command and "/" not in command[0] and meets(command[0], self._written.files.values()):
            what = f"without a / it is looked for on PATH; write ./{command[0]} for the one among files"
            self._piece.mistake(("command", 0), what)
        if script is not None and interpreter_of(script) is None:
            self._piece.mistake(("script",), "its first line names no interpreter, such as #!/bin/sh")
        if self._written.mpi and self._written.per_task:
            what = "mpi starts a process for each task already; one of mpi and per_task"
            self._piece.mistake(("per_task",), what, key=True)

    def files(self, *, look: bool) -> None:
        """Check that every file exists, and that no two files are copied to the same place.

        look: whether to check that the files exist.
        """
        seen = [SCRIPT] if self._written.script is not None else []
        for path, name in self._written.files.items():
            at: Path = ("files", path)
            other = meets(name, seen)
            if other is not None:
                self._piece.mistake(at, f'"{name}" meets "{other}", which is put there too')
            seen.append(name)
            why = _unreadable(path, directory=True) if look else ""
            if why:
                self._piece.mistake(at, why, key=True)

    def metric(self, metric: MetricSpec, at: Path) -> None:
        """Check that a metric has exactly one way to find its number."""
        if (metric.regex is None) == (metric.json_path is None):
            many = "both are given" if metric.regex is not None else "neither is given"
            self._piece.mistake(at, f"one of regex and json_path finds the number; {many}", key=True)
        if metric.regex is not None:
            self._regex(metric.regex, "the number", (*at, "regex"))
        self._bounds(metric.bounds, at)
        self._output(metric, at)

    def verify(self, verify: VerifySpec, *, look: bool) -> None:
        """Check the search text and the reference of a verification.

        look: whether to check that the reference file exists.
        """
        at: Path = ("verify",)
        bounded, reference = bool(verify.bounds), verify.reference
        if verify.regex is None and (bounded or verify.expected is not None):
            self._piece.mistake(
                at, "expected, min and max apply to the match of a regex; write regex: ^error (.*)$"
            )
        elif verify.regex is None and reference is None:
            self._piece.mistake(
                at, "nothing to compare the output with; write regex: ^converged after, or reference: a file"
            )
        if bounded and verify.expected is not None:
            self._piece.mistake((*at, "expected"), "give either expected, or min and max", key=True)
        if verify.regex is not None:
            one = "what is expected" if verify.expected is not None else "the number" if bounded else None
            self._regex(verify.regex, one, (*at, "regex"))
        self._bounds(verify.bounds, at)
        self._output(verify, at)
        if reference is None:
            given = self._piece.get("verify")
            for key in ("tolerance", "absolute"):
                if given is not None and key in given.entries:
                    what = "applies only to a reference, and none is given"
                    self._piece.mistake((*at, key), what, key=True)
            return
        if reference.absolute is not None and reference.absolute < 0:
            self._piece.mistake((*at, "absolute"), "a difference is not below 0")
        why = _unreadable(reference.path, directory=False) if look else ""
        if why:
            self._piece.mistake((*at, "reference"), why)

    def _regex(self, expression: str, held: str | None, at: Path) -> None:
        what = mistake(expression, held)
        if what:
            self._piece.mistake(at, what)

    def _bounds(self, bounds: Bounds, at: Path) -> None:
        if bounds.least is not None and bounds.most is not None and bounds.least > bounds.most:
            self._piece.mistake((*at, "min"), f"{bounds.least:g} is more than max, {bounds.most:g}")

    def _output(self, spec: MetricSpec | VerifySpec, at: Path) -> None:
        """Check that an output file of the program is not one of the files that are copied into its
        directory, and that a file and a stream are not both searched."""
        if spec.file is not None and meets(spec.file, self._brought):
            what = f'"{spec.file}" is put there by nearmetal; name a file that the program writes'
            self._piece.mistake((*at, "file"), what)
        if spec.file is not None and spec.stream is not Stream.STDOUT:
            self._piece.mistake((*at, "stream"), "a file is searched; give either file or stream", key=True)


def _unreadable(path: str, *, directory: bool) -> str:
    """Return why a file cannot be read; '' if it can.

    directory: whether a directory is accepted too.
    """
    file = FilePath(path)
    try:
        if not (file.is_file() or (directory and file.is_dir())):
            return f"{file.absolute()} {'is not a file' if file.exists() else 'does not exist'}"
        # Not opened, because a study of somebody else may name any file.
        if not os.access(file, os.R_OK):
            return f"{file.absolute()} cannot be read: {os.strerror(errno.EACCES)}"
    except (OSError, ValueError) as e:
        return f"{file.absolute()} cannot be read: {getattr(e, 'strerror', None) or e}"
    return ""
