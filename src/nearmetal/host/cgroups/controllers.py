"""Turns on controllers of version 2 for the children of a control group, and off again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from ...errors import RunError
from ..notes import (
    Controllers,
    Note,
    boot_id,
    note_error,
    note_until_exit,
    notes_locked,
    read_notes,
    undo_after,
)
from .processes import write_control

_LEAF = "nearmetal-worker-"


def enable(group: Path, wanted: Set[str]) -> frozenset[str]:
    """Turn on controllers for the children of a group until this process exits. Return those of `wanted` that
    are on.

    Raises OSError if the group cannot be read, RunError if no undo note can be written.
    """
    if not _present(group) & wanted - _on(group) and not _others(group):
        return frozenset(_on(group) & wanted)
    with notes_locked():
        off = _present(group) & wanted - _on(group)
        # Another run has turned them on, and will turn them off unless this run has a note too.
        shared = {name for other in _others(group) for name in other.names} & wanted - off
        if off | shared:
            change = Controllers(group=str(group), names=tuple(sorted(off | shared)))
            note_until_exit(_label(), change, restore_controllers)
        return frozenset((_on(group) | _turn_on(group, off)) & wanted)


@contextmanager
def divide_group(group: Path, wanted: Set[str]) -> Iterator[frozenset[str]]:
    """Move the processes of a group to a child, turn on controllers for its children, and undo both on exit.
    Yields those of `wanted` that are on.

    Raises OSError, RunError.
    """
    leaf = group / f"{_LEAF}{os.getpid()}"
    names = tuple(sorted(_present(group) & wanted))
    with undo_after(
        _label(), Controllers(group=str(group), names=names, leaf=leaf.name), restore_controllers
    ):
        leaf.mkdir()
        _move_all(group, leaf)
        yield frozenset((_on(group) | _turn_on(group, names)) & wanted)


def restore_controllers(note: Note) -> None:
    """Turn controllers off again, and move processes back to their group. Controllers that another run has
    turned on too stay on.

    Raises RunError if a controller stays on although no other run uses it, or OSError.
    """
    change = note.change
    assert isinstance(change, Controllers)
    group = Path(change.group)
    if (why := _refused(change)) is not None:
        raise note_error(note.file, why)
    with notes_locked():
        if not group.exists():
            return
        used = {name for other in _others(group, besides=note) for name in other.names}
        for name in _on(group) & set(change.names) - used:
            with contextlib.suppress(OSError):
                write_control(group / "cgroup.subtree_control", f"-{name}")
        if left := _on(group) & set(change.names) - used:
            raise RunError(
                f"controllers {', '.join(sorted(left))} of {group} are still on: a group below it uses them",
                remedy=f"find cgroup.subtree_control below {group}",
            )
    leaf = group / change.leaf
    if change.leaf and leaf.exists():
        _move_all(leaf, group)
        leaf.rmdir()


def _refused(change: Controllers) -> str | None:
    """Return why a note is not acted upon; None if it is."""
    group = Path(change.group)
    if not (group / "cgroup.subtree_control").is_file() and group.exists():
        return f"{group} is not a control group"
    if any(not name.isidentifier() for name in change.names):
        return f"{change.names} are not controllers"
    if change.leaf and (not change.leaf.startswith(_LEAF) or "/" in change.leaf):
        return f"{change.leaf!r} is not a group of nearmetal"
    return None


def _label() -> str:
    return f"nearmetal-check-{os.getpid()}"


def _others(group: Path, besides: Note | None = None) -> list[Controllers]:
    notes, _ = read_notes()
    return [
        note.change
        for note in notes
        if isinstance(note.change, Controllers)
        and (note.change.group, note.boot) == (str(group), boot_id())
        and note != besides
    ]


def _present(group: Path) -> set[str]:
    return set((group / "cgroup.controllers").read_text().split())


def _on(group: Path) -> set[str]:
    return set((group / "cgroup.subtree_control").read_text().split())


def _turn_on(group: Path, names: Iterable[str]) -> set[str]:
    """Turn controllers on. Return those that the kernel has accepted."""
    accepted = set()
    for name in names:
        with contextlib.suppress(OSError):
            write_control(group / "cgroup.subtree_control", f"+{name}")
            accepted.add(name)
    return accepted


def _move_all(source: Path, target: Path) -> None:
    """Move all processes of a group. A process that starts meanwhile is found by the next reading."""
    while pids := (source / "cgroup.procs").read_text().split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                write_control(target / "cgroup.procs", pid)
