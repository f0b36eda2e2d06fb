"""From the name in a study to the image that stands, or to what is said where none does."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import UnavailableError
from ..host import Host
from ..model.environments.image import ImageDefinition
from ..model.keys import did_you_mean
from .builtin import builtin_definition, builtin_names
from .sources import resolved_suite
from .store import Image, ImageStore, definition_key


def known_definition(name: str, own: Mapping[str, ImageDefinition]) -> ImageDefinition | None:
    """What a name is built from: a definition of the study's own, else one that comes with nearmetal."""
    return own[name] if name in own else builtin_definition(name)


def known_names(store: ImageStore, own: Mapping[str, ImageDefinition]) -> tuple[str, ...]:
    """Every image that can be named."""
    return tuple(dict.fromkeys([*own, *builtin_names(), *(i.name for i in store.all())]))


def find_image(host: Host, store: ImageStore, name: str, own: Mapping[str, ImageDefinition]) -> Image | None:
    """The image that stands under a name; built of the definition that the name means now, or imported."""
    definition = known_definition(name, own)
    key = None if definition is None else definition_key(definition, resolved_suite(host, definition))
    return store.find(name, key)


def require_image(host: Host, store: ImageStore, name: str, own: Mapping[str, ImageDefinition]) -> Image:
    """find_image. Raises UnavailableError where there is none."""
    found = find_image(host, store, name, own)
    if found is not None:
        return found
    names = known_names(store, own)
    if name in names:
        raise UnavailableError(f"image {name} is not built", remedy=f"nearmetal image build {name}")
    raise UnavailableError(
        f'unknown image "{name}"{did_you_mean(name, names)}', remedy="nearmetal image list"
    )


def no_image(
    host: Host, store: ImageStore, name: str, own: Mapping[str, ImageDefinition], file: str
) -> str | None:
    """Why no instance can have this image, in one line; None where it can. file: of the study."""
    if find_image(host, store, name, own) is not None:
        return None
    names = known_names(store, own)
    if name not in names:
        return f'unknown image "{name}"{did_you_mean(name, ("host", *names))}'
    where = f" --file {file}" if name in own else ""
    return f'image "{name}" is not built; next: nearmetal image build {name}{where}'
