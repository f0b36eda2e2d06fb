"""Which backends there are: the entry points of the group nearmetal.environments, ours and those of other
packages."""

from __future__ import annotations

from .. import plugins
from ..errors import UnavailableError
from ..model.capabilities import ENTRY_POINTS
from .contract import Backend

GROUP = ENTRY_POINTS


def backend_names() -> tuple[str, ...]:
    """Names in order of the alphabet; loads none."""
    return tuple(plugins.points(GROUP))


def get_backend(name: str) -> Backend:
    """A backend by name.

    Raises UnavailableError when there is none, or it does not load.
    """
    backend: Backend = plugins.load(GROUP, name, "backend", UnavailableError)
    return backend


def backends() -> dict[str, Backend]:
    """Every backend by name.

    Raises UnavailableError when one does not load.
    """
    return {name: get_backend(name) for name in backend_names()}
