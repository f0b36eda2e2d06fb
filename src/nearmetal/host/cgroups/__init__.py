"""Control groups of version 1 and 2: directories, limits and member processes. This package must not depend
on backends.

Every instance has a directory below the tool's own group; with version 2, below the nearest ancestor that can
have children. Version 1 is used if cpu, cpuacct, cpuset and memory have hierarchies of their own, and version
2 if they are in the unified hierarchy.
"""

from .caller import caller_limits, effective_limits, escaped_limits
from .effective import NO_LIMITS, EffectiveLimits, limits_of, tightest
from .limits import (
    DEFAULT_PERIOD_US,
    GroupLimits,
    create,
    read_back,
)
from .parents import (
    PIDS,
    Parents,
    at_the_top,
    directories,
    freezer,
    inside_own_group,
    machine_parents,
    of_every_hierarchy,
    of_process,
    own_everywhere,
    path_for_runtime,
    path_from_top,
    thaw,
    unified_beside_version1,
    with_limits,
)
from .processes import kill_members, members, remove, remove_empty, take, take_all, unique, with_children
