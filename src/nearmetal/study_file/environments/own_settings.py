"""Keys in a study file that only one backend has, and the backend's own rules for all other keys."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.capabilities import KeyPath
from ...model.environments.environment import BackendSettings, Environment
from ...model.keys import keys_of
from ..problems import Path, Problems
from ..tree import MapNode, Node, Scalar, entries_of, mark_of
from .backends import backends_that, capabilities_of, every_settings


def _own_settings(node: Node) -> tuple[type[BackendSettings], ...]:
    """Return the settings class of an environment's backend; empty for a backend without settings."""
    backend = node.get("backend") if isinstance(node, MapNode) else None
    can = capabilities_of(backend.text) if isinstance(backend, Scalar) else None
    return () if can is None or can.settings is None else (can.settings,)


def settings_for(node: Node) -> tuple[type[BackendSettings], ...]:
    """Return the settings class of an environment's backend, if it has one. If the environment has a key that
    it does not know, return those of all backends."""
    entries = node.entries if isinstance(node, MapNode) else {}
    own = _own_settings(node)
    known = {k.name for _, k in keys_of(Environment) if k.kind is not BackendSettings}
    known |= {s.section for s in own}
    return own if entries.keys() <= known else every_settings()


def move_keys(root: MapNode) -> None:
    """Move keys of backends' settings to their current place. In older files they are elsewhere
    (BackendSettings.earlier)."""
    for _, node in entries_of(root, "environments").values():
        if not isinstance(node, MapNode):
            continue
        for settings in _own_settings(node):
            for (parent, key), name in settings.earlier.items():
                above = node.get(parent)
                if isinstance(above, MapNode) and key in above.entries and not node.get(settings.section):
                    own = MapNode(mark=above.mark, entries={name: above.entries.pop(key)})
                    node.entries[settings.section] = (own.mark, own)


def check_own(section: Environment, node: Node, path: Path, problems: Problems) -> None:
    """Check that an environment has no settings of another backend, and that its backend accepts its keys."""
    can = capabilities_of(section.backend)
    if can is None:
        return
    entries = node.entries if isinstance(node, MapNode) else {}
    for settings in settings_for(node):
        _, given = entries.get(settings.section, (None, None))
        read = isinstance(given, MapNode) and (*path, settings.section) not in problems.unread
        if read and settings is not can.settings:
            _tell_owner(settings, section, node, path, problems)
    for at, what in can.misfits(section, frozenset(_paths(node))):
        if (*path, at[0]) not in problems.unread:
            problems.add(mark_of(node, at), path + at, what)


def _tell_owner(
    settings: type[BackendSettings], section: Environment, node: Node, path: Path, problems: Problems
) -> None:
    owners = " or ".join(backends_that(lambda c: c.settings is settings))
    what = f"backend {section.backend} is not {settings.title}; write backend: {owners}, or take this out"
    at: Path = (settings.section,)
    problems.add(mark_of(node, at, key=True), path + at, what)


def _paths(node: Node | None) -> Iterator[KeyPath]:
    """Yield the path of every key below a node."""
    for key, (_, inner) in (node.entries if isinstance(node, MapNode) else {}).items():
        yield (key,)
        yield from ((key, *path) for path in _paths(inner))
