"""What only one backend has in a study file: its own keys, and its own rules about all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..model.capabilities import KeyPath
from ..model.environment import BackendSettings
from .backends import backends_that, capabilities_of, every_settings
from .made import environment_of
from .problems import Path, Problems
from .tree import MapNode, Node, Scalar, mark_of
from .validate import broken, keys_of

if TYPE_CHECKING:
    from .sections import EnvironmentSection


def section_for(node: Node) -> type[EnvironmentSection]:
    """The section of an environment with the own keys of its backend; with those of all backends where it has
    a key that is none of these."""
    from .sections import EnvironmentSection, environment_section

    entries = node.entries if isinstance(node, MapNode) else {}
    _, backend = entries.get("backend", (None, None))
    can = capabilities_of(backend.text) if isinstance(backend, Scalar) else None
    own = () if can is None or can.settings is None else (can.settings,)
    known = keys_of(EnvironmentSection).keys() | {s.section for s in own}
    return environment_section(own if entries.keys() <= known else every_settings())


def check_own(section: EnvironmentSection, node: Node, path: Path, problems: Problems) -> None:
    """The own keys are those of its backend, and all keys are such as it can have."""
    can = capabilities_of(section.backend)
    if can is None:
        return
    for settings in section.own_settings():
        if settings is not can.settings:
            _tell_owner(settings, section, node, path, problems)
    given = frozenset(_paths(node))
    for at, what in can.misfits(environment_of("", section, section, ()), given):
        if not broken(section, node, at[0]):
            problems.add(mark_of(node, at), path + at, what)


def _tell_owner(
    settings: type[BackendSettings], section: EnvironmentSection, node: Node, path: Path, problems: Problems
) -> None:
    owners = " or ".join(backends_that(lambda c: c.settings is settings))
    what = f"backend {section.backend} is not {settings.title}; write backend: {owners}, or take this out"
    at: Path = (settings.section,)
    problems.add(mark_of(node, at, key=True), path + at, what)


def _paths(node: Node | None) -> Iterator[KeyPath]:
    """Every key below a node, with those that lead to it."""
    for key, (_, inner) in (node.entries if isinstance(node, MapNode) else {}).items():
        yield (key,)
        yield from ((key, *path) for path in _paths(inner))
