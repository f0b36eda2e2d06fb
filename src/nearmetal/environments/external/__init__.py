"""Finds, checkpoints, restores and moves instances that nearmetal has not started.

They belong to the user. They have no label of nearmetal, so `nearmetal clean` never touches them.
"""

from .contract import (
    DestinationKind,
    Dumps,
    External,
    Facts,
    MovedAway,
    Moves,
    RestoredError,
    Saved,
    Target,
    Work,
    WrittenError,
    restore_line,
)
from .disk import sync_command, sync_images
from .dumping import require_way, write_images
from .machine import describe, read_by_command, read_here
from .names import FORMS, KINDS, find_external, named
from .saved import (
    MANIFEST,
    again_line,
    distrust,
    forget_restored,
    read_interrupted,
    read_saved,
    remove_images,
    require_kept,
    require_new,
    require_room,
    sizes_by_file,
    sizes_of,
    take_back,
    write_begun,
    write_handed_over,
    write_restored,
    write_saved,
)
from .surroundings import CheckOutcome, HostCheck, MachineProperties, compare
