"""Finds extensions of other packages: the entry points of a group, by name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import NearmetalError


@lru_cache
def points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in alphabetical order, without loading them."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda p: p.name)}


SUBJECTS = "nearmetal.subjects"
"""The entry-point group of the subjects: those that study files name, and those that measure kernels and
programs."""


def require(group: str, name: str, kind: str, failure: Callable[..., NearmetalError]) -> EntryPoint:
    """Return the entry point of this name, without loading it.

    The arguments are those of load(). Raises `failure` if there is no such entry point.
    """
    known = points(group)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise failure(
            f"no {kind} {name!r}",
            remedy=f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}",
        )
    return known[name]


def load(group: str, name: str, kind: str, failure: Callable[..., NearmetalError]) -> Any:
    """Load an entry point, call it without arguments, and return the result.

    kind: what the entry point provides, for messages, such as 'engine'.
    failure: class of the error that is raised if there is no entry point of this name, or if it cannot be
        loaded or called.
    """
    return _loaded(group, name, kind, failure, lambda found: found())


def load_class(group: str, name: str, kind: str, failure: Callable[..., NearmetalError]) -> Any:
    """Load an entry point and return its class. Arguments and errors are those of load()."""
    return _loaded(group, name, kind, failure, lambda found: found)


def _loaded(
    group: str, name: str, kind: str, failure: Callable[..., NearmetalError], made: Callable[[Any], Any]
) -> Any:
    point = require(group, name, kind, failure)
    try:
        return made(point.load())
    except Exception as e:  # another package's code: anything may be wrong in it
        raise failure(f"{kind} {name!r} of {point.value} does not load: {e}") from e
