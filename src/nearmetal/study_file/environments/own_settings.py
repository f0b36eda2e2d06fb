"""Read keys in a study file that only one backend has, and apply the backend's own rules for all other
keys."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.capabilities import KeyPath
from ...model.environments.environment import BackendSettings, Environment
from ...model.keys import alternatives, keys_of
from ..tree import Located, MapNode, Node, Scalar
from .backends import backends_that, capabilities_of, every_settings


def _own_settings(node: Node) -> tuple[type[BackendSettings], ...]:
    """Return the settings class of an environment's backend; empty for a backend without settings."""
    backend = node.get("backend") if isinstance(node, MapNode) else None
    can = capabilities_of(backend.text) if isinstance(backend, Scalar) else None
    return () if can is None or can.settings is None else (can.settings,)


def settings_for(node: Node) -> tuple[type[BackendSettings], ...]:
    """Return the settings class of an environment's backend, if it has one. If the environment has an unknown
    key, return the settings classes of all backends, since the key may belong to another one."""
    entries = node.entries if isinstance(node, MapNode) else {}
    own = _own_settings(node)
    known = {k.name for _, k in keys_of(Environment) if k.kind is not BackendSettings}
    known |= {s.section for s in own}
    return own if entries.keys() <= known else every_settings()


def move_keys(top: Located) -> None:
    """Move keys of backends' settings to their current place. In older files they are elsewhere
    (BackendSettings.earlier)."""
    for _, entry in top.each("environments"):
        node = entry.node
        if not isinstance(node, MapNode):
            continue
        for settings in _own_settings(node):
            for (parent, key), name in settings.earlier.items():
                above = node.get(parent)
                if isinstance(above, MapNode) and key in above.entries and not node.get(settings.section):
                    own = MapNode(mark=above.mark, entries={name: above.entries.pop(key)})
                    node.entries[settings.section] = (own.mark, own)


def check_own(section: Environment, found: Located) -> None:
    """Check that an environment has no settings of another backend, and that its backend accepts its keys."""
    can = capabilities_of(section.backend)
    if can is None:
        return
    for settings in settings_for(found.node):
        _, given = found.entries.get(settings.section, (None, None))
        read = isinstance(given, MapNode) and not found.unread(settings.section)
        if read and settings is not can.settings:
            what = f"backend {section.backend} is not {settings.title}; write backend: {_owners(settings)}, "
            found.mistake((settings.section,), f"{what}or take this out", key=True)
    for at, what in can.misfits(section, frozenset(_paths(found.node))):
        if not found.unread(at[0]):
            found.mistake(at, what)


def _owners(settings: type[BackendSettings]) -> str:
    return alternatives(backends_that(lambda c: c.settings is settings))


def _paths(node: Node | None) -> Iterator[KeyPath]:
    for key, (_, inner) in (node.entries if isinstance(node, MapNode) else {}).items():
        yield (key,)
        yield from ((key, *path) for path in _paths(inner))
