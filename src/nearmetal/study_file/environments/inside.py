"""Check environments whose instances run in the guests of another environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...model.keys import alternatives, did_you_mean
from ...model.study import Attachment, Design, Environment, Limits, Reach, StorageKind
from ..tree import Located
from .backends import backends_that, capabilities_of

_NOT_BUILT = {"rate", "devices", "mode"}
"""Keys of `network` that are refused inside guests, since nearmetal does not build such networks there."""


def check_inside(top: Located, environments: Mapping[str, Environment | None]) -> None:
    """Check every environment of a study file that runs inside another environment (key `inside`)."""
    for name, entry in top.each("environments"):
        section = environments[name]
        if section is None or section.inside is None:
            continue
        has_image = "image" in entry.entries and not entry.unread("image")
        found = _misfits(name, section, environments)
        around = environments.get(section.inside)
        if not found and around is not None:
            found = dict(_not_inside(section, around, has_image=has_image))
        for key, what in found.items():
            if not entry.unread(key):
                entry.mistake((key,), what)


def check_reach(design: Design, top: Located, environments: Mapping[str, Environment | None]) -> None:
    """Check that mpirun can reach the instances inside guests."""
    read = [e for e in environments.values() if e is not None]
    several = any(e.inside is not None and e.attachment.seated for e in read)
    if design.reach is Reach.SSH and several:
        top.mistake(("design", "reach"), "the containers in a guest are reached by an agent only")


def _misfits(
    name: str, section: Environment, environments: Mapping[str, Environment | None]
) -> dict[str, str]:
    """Return why the environment cannot run in the one that it names, by key; empty if it can."""
    other, others = section.inside, [n for n in environments if n != name]
    if other is None or other not in others:
        return {"inside": f'unknown environment "{other}"{did_you_mean(str(other), others)}'}
    around = environments[other]
    if around is None:
        return {}  # the mistakes of the other environment are reported at their own place
    outer, inner = capabilities_of(around.backend), capabilities_of(section.backend)
    if outer is not None and not outer.virtual:
        takers = alternatives(backends_that(lambda c: c.virtual))
        return {"inside": f'"{other}" has no virtual machines; write one of backend {takers}'}
    if inner is not None and not inner.stands_inside:
        takers = alternatives(backends_that(lambda c: c.stands_inside))
        return {"backend": f"{section.backend} cannot run inside a guest; write {takers}"}
    return {}


def _not_inside(section: Environment, around: Environment, *, has_image: bool) -> Iterator[tuple[str, str]]:
    """Yield the keys that an instance in a guest cannot have, with the reason."""
    if section.attachment.seated and section.attachment is not Attachment.VETH_BRIDGE:
        lone = (Attachment.VETH_BRIDGE, Attachment.HOST, Attachment.LOOPBACK, Attachment.NONE)
        yield "attachment", f"inside a guest, write one of {', '.join(lone)}"
    if unable := sorted(set(section.network.requested()) & _NOT_BUILT):
        yield "network", f"inside a guest, a network has no {' and no '.join(unable)}"
    if has_image and section.image != around.image:
        yield "image", f'its image is that of the guest, "{around.image}"; leave it out'
    if section.limits != Limits():
        yield "limits", "a guest has no control groups; write limits for the guest"
    if section.share:
        yield "share", "it shares no namespace with its guest"
    if section.beside is not None:
        yield "beside", "a companion runs beside the guest; write it there"
    if section.storage is not None and section.storage.kind is not StorageKind.OVERLAY:
        yield "storage", f"no storage {section.storage.kind} inside a guest; write overlay"
