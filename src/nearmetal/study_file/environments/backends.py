"""Find out what the backends that a study names can do. Backends are found by their entry points, and loaded
only if they are needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter

from ... import plugins
from ...errors import UnavailableError
from ...model.capabilities import ENTRY_POINTS, Capabilities
from ...model.environments.environment import BackendSettings
from ...model.keys import alternatives


def capabilities_of(backend: str) -> Capabilities | None:
    """Return the capabilities of a backend; None if it is not installed or does not load."""
    try:
        found: Capabilities = plugins.load(ENTRY_POINTS, backend, "backend", UnavailableError).capabilities
    except UnavailableError:
        return None
    return found


def is_bare(backend: str) -> bool:
    """Return whether an instance of the backend is the machine itself."""
    can = capabilities_of(backend)
    return can is not None and can.bare


def backends_that(have: Callable[[Capabilities], object]) -> tuple[str, ...]:
    """Return the names of the installed backends that meet a condition, in alphabetical order. Loads all
    backends."""
    found = {name: capabilities_of(name) for name in plugins.points(ENTRY_POINTS)}
    return tuple(name for name, can in found.items() if can is not None and have(can))


def with_backends(text: str) -> str:
    """Return the description of a key with the names of the installed backends in place of '{virtual}' and
    other capabilities in braces. Loads all backends if there is one."""
    asked = r"\{(virtual|stands_inside|plants_work)\}"
    return re.sub(asked, lambda found: alternatives(backends_that(attrgetter(found[1]))), text)


def every_settings() -> tuple[type[BackendSettings], ...]:
    """Return the settings classes of all installed backends that have settings of their own. Loads all
    backends."""
    found = [capabilities_of(name) for name in plugins.points(ENTRY_POINTS)]
    return tuple(dict.fromkeys(can.settings for can in found if can is not None and can.settings is not None))
