"""The registered backends: the entry points of the group nearmetal.environments in all installed packages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from .. import plugins
from ..errors import UnavailableError, UsageError
from ..model.capabilities import ENTRY_POINTS
from ..model.keys import alternatives
from .contract import Backend


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends in alphabetical order, without loading them."""
    return tuple(plugins.points(ENTRY_POINTS))


def backends_with(can: Callable[[Backend], object]) -> str:
    """Return the names of the installed backends that meet a condition, as text: 'a, b or c'. Loads all
    backends; one that cannot be loaded is left out."""
    found = []
    for name in backend_names():
        with suppress(UnavailableError):
            if can(get_backend(name)):
                found.append(name)
    return alternatives(found)


def get_backend(name: str) -> Backend:
    """Return the backend with a name.

    Raises UnavailableError if it does not exist, or cannot be loaded.
    """
    backend: Backend = plugins.load(ENTRY_POINTS, name, "backend", UnavailableError)
    return backend


def named_backend(name: str) -> Backend:
    """Return the backend with a name given by the user.

    Raises UsageError if it does not exist, UnavailableError if it cannot be loaded.
    """
    plugins.require(ENTRY_POINTS, name, "backend", UsageError)
    return get_backend(name)
