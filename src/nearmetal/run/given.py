"""The standard input that the user's programs of a run read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import UsageError
from ..host.caller import NO_INPUT, StandardInput, caller_input
from ..model.study import Study
from ..node.progress import Progress
from ..records import ResultsDirectory


@contextmanager
def given_input(study: Study, progress: Progress) -> Iterator[StandardInput]:
    """Take the caller's standard input for the study's programs, and say what is not as by hand."""
    if not study.commands:
        yield NO_INPUT
        return
    with caller_input() as found:
        if found.note:
            progress.note(found.note)
        yield found


def require_same_input(given: StandardInput, study: Study, directory: ResultsDirectory) -> None:
    """Check that programs read what they have read until now in a run that continues.

    Raises UsageError if they do not.
    """
    then = directory.provenance.get("standard_input", given.what)
    if study.commands and then != given.what:
        raise UsageError(
            f"the programs of this run read {then} as standard input; now it is {given.what}",
            where=str(directory.path),
            remedy="resume it with the same < FILE"
            if then != NO_INPUT.what
            else "resume it with < /dev/null",
        )
