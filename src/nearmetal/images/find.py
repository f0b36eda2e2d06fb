"""Finds the image for a name in a study. The definitions of the built-in images are the YAML files in this
directory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

from ..errors import UnavailableError
from ..host import Host
from ..model.environments.image import ImageDefinition
from ..model.keys import did_you_mean
from ..study_file.environments.images import read_definition
from .sources import resolved_suite
from .store import Image, ImageStore, definition_key


@lru_cache(maxsize=1)
def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in images, sorted."""
    files = (p.name for p in resources.files(__package__).iterdir())  # trusted: of nearmetal
    return tuple(sorted(f.removesuffix(".yaml") for f in files if f.endswith(".yaml")))


def builtin_definition(name: str) -> ImageDefinition | None:
    """Return the definition of a built-in image; None if there is no such image."""
    if name not in builtin_names():
        return None
    file = resources.files(__package__) / f"{name}.yaml"
    text = file.read_text(encoding="utf-8")  # trusted: of nearmetal
    return read_definition(text, f"{name}.yaml", name)


def known_definition(name: str, own: Mapping[str, ImageDefinition]) -> ImageDefinition | None:
    """Return the definition of an image: from the study or, if it has none, a built-in one. None if there is
    none.

    own: definitions in the study, by name.
    """
    return own[name] if name in own else builtin_definition(name)


def known_names(store: ImageStore, own: Mapping[str, ImageDefinition]) -> tuple[str, ...]:
    """Return the names of all images that a study can use: defined in it, built-in, or in the store.

    own: definitions in the study, by name.
    """
    return tuple(dict.fromkeys([*own, *builtin_names(), *(i.name for i in store.all())]))


def find_image(host: Host, store: ImageStore, name: str, own: Mapping[str, ImageDefinition]) -> Image | None:
    """Return the image with a name from the store; None if there is none.

    If the name has a definition, only an image that was built from this definition is returned.
    own: definitions in the study, by name.
    """
    definition = known_definition(name, own)
    key = None if definition is None else definition_key(definition, resolved_suite(host, definition))
    return store.find(name, key)


def require_image(host: Host, store: ImageStore, name: str, own: Mapping[str, ImageDefinition]) -> Image:
    """Return the image with a name, as find_image() does.

    Raises UnavailableError if there is none.
    """
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
    """Return an error message of one line if there is no image with a name; None if there is one.

    own: definitions in the study, by name.
    file: path of the study, for a command in the message.
    """
    if find_image(host, store, name, own) is not None:
        return None
    names = known_names(store, own)
    if name not in names:
        return f'unknown image "{name}"{did_you_mean(name, ("host", *names))}'
    where = f" --file {file}" if name in own else ""
    return f'image "{name}" is not built; next: nearmetal image build {name}{where}'
