"""Undoes the changes to this machine that killed runs have noted (notes.py)."""

from __future__ import annotations

from .cards import give_back
from .cgroups.controllers import restore_controllers
from .facts.devices import restore_functions
from .notes import Card, Controllers, Directories, Functions, Note, boot_id, drop_note, settle
from .outside import find_directories, remove_directories


def undo_note(note: Note) -> None:
    """Undo the change that a note is about, and remove the note.

    Raises RunError if the change is not undone. The note stays then.
    """
    if survives(note):
        settle(note, _undo)
    else:
        drop_note(note)


def survives(note: Note) -> bool:
    """Return whether the change that a note is about can still exist: after a reboot only files do."""
    return isinstance(note.change, Directories) or note.boot == boot_id()


def has_effect(note: Note) -> bool:
    """Return whether undoing a note would change anything."""
    if isinstance(note.change, Directories):
        return bool(find_directories(note))
    return survives(note)


def _undo(note: Note) -> None:
    match note.change:
        case Functions():
            restore_functions(note)
        case Card():
            give_back(note)
        case Controllers():
            restore_controllers(note)
        case Directories():
            remove_directories(note)
