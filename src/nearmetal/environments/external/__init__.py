"""Instances that nearmetal has not started: how they are found, checkpointed, restored and moved.

They belong to the user. Nothing of them carries a label, so the command clean never touches them.
"""

from .contract import (
    External,
    Facts,
    MovedAway,
    Moves,
    RestoredError,
    Saved,
    Target,
    Way,
    Work,
    WrittenError,
)
from .names import KINDS, find_external, named
from .saved import MANIFEST, read_saved, require_new, require_room, write_saved

__all__ = [
    "KINDS",
    "MANIFEST",
    "External",
    "Facts",
    "MovedAway",
    "Moves",
    "RestoredError",
    "Saved",
    "Target",
    "Way",
    "Work",
    "WrittenError",
    "find_external",
    "named",
    "read_saved",
    "require_new",
    "require_room",
    "write_saved",
]
