"""Finds and removes what killed runs have left on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..environments.leftovers import find_all, remove_any
from ..errors import NearmetalError
from ..host import LocalHost
from ..host.leftovers import Leftover


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """The leftovers of killed runs.

    found: those that were found.
    left: those that still exist.
    failures: why some of them could not be removed, one text for each.
    """

    found: tuple[Leftover, ...]
    left: tuple[Leftover, ...]
    failures: tuple[str, ...] = ()


def find_leftovers(spare: Sequence[str] = ()) -> Cleaned:
    """Return the leftovers on this machine, and remove nothing.

    spare: labels of running runs on other machines that also use this one; what they made is not a leftover.
    """
    found = find_all(LocalHost(), spare=spare)
    return Cleaned(found=found, left=found)


def clean(spare: Sequence[str] = ()) -> Cleaned:
    """Remove the leftovers on this machine. A failure is returned in the result and does not stop the removal
    of others.

    spare: as in find_leftovers().
    """
    host = LocalHost()
    found = find_all(host, spare=spare)
    failures = []
    for leftover in found:
        try:
            remove_any(host, leftover)
        except NearmetalError as e:
            failures.append(str(e))
    return Cleaned(found=found, left=find_all(host, spare=spare), failures=tuple(failures))
