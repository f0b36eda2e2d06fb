"""Finds and removes what killed runs have left on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..environments.leftovers import Cleaned, clean_up, find_all, not_searched
from ..errors import NearmetalError
from ..host import LocalHost
from ..host.leftovers import Leftover, LeftoverKind
from ..node.machine import image_store

__all__ = ["Cleaned", "clean", "find_leftovers"]


def find_leftovers(spare: Sequence[str] = ()) -> Cleaned:
    """Return the leftovers on this machine, and remove nothing.

    spare: labels of running runs on other machines that also use this one; what they made is not a leftover.
    """
    host = LocalHost()
    found = (*find_all(host, spare=spare), *_images())
    return Cleaned(found=found, left=found, not_searched=not_searched(host))


def clean(spare: Sequence[str] = ()) -> Cleaned:
    """Remove the leftovers on this machine. A failure is returned in the result and does not stop the removal
    of others.

    spare: as in find_leftovers().
    """
    host = LocalHost()
    cleaned = clean_up(host, spare=spare)
    # After the processes that make images have ended.
    images, failures = _images(), list(cleaned.failures)
    for image in images:
        try:
            image_store().remove_unfinished(image.name)
        except NearmetalError as e:
            failures.append(str(e))
    return replace(
        cleaned,
        found=(*cleaned.found, *images),
        left=(*cleaned.left, *_images()),
        failures=tuple(failures),
        not_searched=not_searched(host),
    )


def _images() -> tuple[Leftover, ...]:
    """Return the images that killed processes have not finished, or not removed entirely."""
    return tuple(
        Leftover(kind=LeftoverKind.IMAGE, name=path.name, detail=str(path))
        for path in image_store().unfinished()
    )
