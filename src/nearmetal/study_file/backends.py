"""The backends that a study names, asked for what they can do: found by their entry points, loaded only where
a study names them."""

from __future__ import annotations

from collections.abc import Callable

from .. import plugins
from ..errors import UnavailableError
from ..model.capabilities import ENTRY_POINTS, Capabilities
from ..model.environments.environment import BackendSettings


def capabilities_of(backend: str) -> Capabilities | None:
    """None where no such backend is installed, or it does not load."""
    try:
        found: Capabilities = plugins.load(ENTRY_POINTS, backend, "backend", UnavailableError).capabilities
    except UnavailableError:
        return None
    return found


def is_bare(backend: str) -> bool:
    """Whether an instance of it is the machine itself."""
    can = capabilities_of(backend)
    return can is not None and can.bare


def backends_that(have: Callable[[Capabilities], object]) -> tuple[str, ...]:
    """Names of the installed backends that have something, in order of the alphabet; loads all."""
    found = {name: capabilities_of(name) for name in plugins.points(ENTRY_POINTS)}
    return tuple(name for name, can in found.items() if can is not None and have(can))


def every_settings() -> tuple[type[BackendSettings], ...]:
    """The settings of all installed backends that have some of their own; loads all."""
    found = [capabilities_of(name) for name in plugins.points(ENTRY_POINTS)]
    return tuple(dict.fromkeys(can.settings for can in found if can is not None and can.settings is not None))
