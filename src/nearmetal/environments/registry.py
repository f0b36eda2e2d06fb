"""The registered backends: the entry points of the group nearmetal.environments in all installed packages."""

from __future__ import annotations

from .. import plugins
from ..errors import UnavailableError, UsageError
from ..model.capabilities import ENTRY_POINTS
from .contract import Backend

GROUP = ENTRY_POINTS


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends in alphabetical order, without loading them."""
    return tuple(plugins.points(GROUP))


def get_backend(name: str) -> Backend:
    """Return the backend with a name.

    Raises UnavailableError if there is none, or if it does not load.
    """
    backend: Backend = plugins.load(GROUP, name, "backend", UnavailableError)
    return backend


def named_backend(name: str) -> Backend:
    """Return the backend that a user names.

    Raises UsageError if there is none of that name, UnavailableError if it does not load.
    """
    plugins.require(GROUP, name, "backend", UsageError)
    return get_backend(name)


def backends() -> dict[str, Backend]:
    """Return all backends by name.

    Raises UnavailableError if one does not load.
    """
    return {name: get_backend(name) for name in backend_names()}
