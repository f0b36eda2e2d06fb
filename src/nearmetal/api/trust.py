"""Decides whether the commands of a results directory may be executed: those of directories that this user
has made may, all others only if the user says so."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import UsageError
from ..host.removal import remove_tree
from ..model.study import Study
from ..records import ResultsDirectory, SeriesDirectory
from ..records.own_runs import newest_own_run, note_run, own_run, studies_digest
from ..study_file import load_study

PLAN, SERIES = "plan.json", "series.json"
"""Files of a run that can be resumed, and of a study in parts."""
Ask = Callable[[Path, Sequence[str]], bool]
"""A function that shows a directory and the commands of its studies, and returns whether the user trusts
them."""


def directory_to_run(
    directory: Path | None,
    parent: Path,
    *,
    holding: Sequence[str] = (PLAN, SERIES),
    trust: bool = False,
    ask: Ask | None = None,
    dry_run: bool = False,
) -> Path:
    """Return a directory whose commands may be executed: the given one, or the newest one below it or below
    `parent` that this user has made.

    holding: names of files; the newest directory must contain at least one of them.
    trust, ask, dry_run: see require_trust().

    Raises UsageError if there is none, and the errors of require_trust().
    """
    if directory is not None and not _below(directory):
        directory = ResultsDirectory.open(directory).path if not _is_series(directory) else directory
        require_trust(directory, trust=trust, ask=ask, dry_run=dry_run)
        return directory
    place = directory or parent
    found = newest_own_run(place, lambda path: any((path / name).is_file() for name in holding))
    if found is None:
        raise UsageError(
            f"no results below {place}/ that you have measured with this home directory",
            remedy="name a results directory, or nearmetal quick",
        )
    require_trust(found, trust=trust, ask=ask, dry_run=dry_run)
    return found


def require_trust(
    directory: Path, *, trust: bool = False, ask: Ask | None = None, dry_run: bool = False
) -> None:
    """Check that this user has made a directory, or trusts it. Trust is noted, so that it is asked for once.

    The compiled programs in a directory that is trusted now are removed, because nobody can see what they do.

    trust: whether the user has said that the directory is trusted.
    ask: asks the user; None if nobody can answer.
    dry_run: note and remove nothing.

    Raises UsageError if the directory is not trusted, and RecordsError.
    """
    directories = (directory, *_parts(directory))
    if all(own_run(path) is not None for path in directories):
        return
    shown = [studies_digest(path) for path in directories]
    if not trust and (ask is None or not ask(directory, list(_commands(directories)))):
        raise UsageError(
            "this run was not started by you with this home directory, or it was moved, changed, or started"
            " by an earlier version; its commands may be those of somebody else",
            where=str(directory),
            remedy="read its study, then add --trust (in Python: trust=True)",
        )
    if [studies_digest(path) for path in directories] != shown:  # a question takes as long as the user likes
        raise UsageError(
            "its study was changed while you were asked", where=str(directory), remedy="look who changes it"
        )
    if dry_run:
        return
    from ..run.workers.serving import TOOLS

    for path in directories:
        _remove(path / TOOLS)
        with suppress(OSError):  # it is asked for again
            note_run(path)


def require_study(directory: Path, digest: str) -> None:
    """Check that a directory still has the study for which a worker was submitted.

    digest: result of studies_digest() where it was submitted.

    Raises UsageError if not.
    """
    if studies_digest(directory) != digest:
        raise UsageError(
            "its study is not the one for which this worker was submitted",
            where=str(directory),
            remedy="look who has changed it",
        )


def _is_series(directory: Path) -> bool:
    return SeriesDirectory.at(directory) is not None


def _below(directory: Path) -> bool:
    """Return whether results are looked for below a directory, because it is not one of them itself."""
    itself = _is_series(directory) or (directory / "study.yaml").exists()
    return not itself and any(directory.glob(f"*/{PLAN}"))


def _parts(directory: Path) -> list[Path]:
    if not _is_series(directory):
        return []
    return sorted(file.parent for file in directory.glob("*/study.yaml"))


def _commands(directories: Sequence[Path]) -> Iterator[str]:
    """Yield the user's programs in the studies of directories, and the path of each study, which says what
    else is started."""
    patterns = ("study.yaml", "studies/*.yaml")
    for file in (file for path in directories for name in patterns for file in sorted(path.glob(name))):
        yield from _programs(load_study(file, None, seed=0))
        yield f"and what else is in {file}"


def _programs(study: Study) -> Iterator[str]:
    for work in study.commands:
        given = [f"{name}={shlex.quote(value)}" for name, value in work.env.items()]
        yield " ".join([*given, shlex.join(work.argv) if work.script is None else "a script:"])
        yield from (f"    {line}" for line in (work.script or "").splitlines())
    for environment in study.environments:
        if environment.beside is not None:
            yield shlex.join(environment.beside.argv)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        remove_tree(path)
