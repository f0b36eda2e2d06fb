"""Which backends there are: the entry points of the group nearmetal.environments, ours and those of other
packages."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from ..errors import UnavailableError
from .contract import Backend

GROUP = "nearmetal.environments"


@lru_cache(maxsize=1)
def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def backend_names() -> tuple[str, ...]:
    """Names in order of the alphabet; loads none."""
    return tuple(sorted(_points()))


def get_backend(name: str) -> Backend:
    """A backend by name.

    Raises UnavailableError when there is none, or it does not load.
    """
    point = _points().get(name)
    if point is None:
        near = get_close_matches(name, backend_names(), n=1)
        raise UnavailableError(
            f"no backend {name!r}",
            remedy=f"did you mean {near[0]!r}?" if near else f"there are {', '.join(backend_names())}",
        )
    try:
        backend: Backend = point.load()()
    except Exception as e:  # another package's code: anything may be wrong in it
        raise UnavailableError(f"backend {name!r} of {point.value} does not load: {e}") from e
    return backend


def backends() -> dict[str, Backend]:
    """Every backend by name.

    Raises UnavailableError when one does not load.
    """
    return {name: get_backend(name) for name in backend_names()}
