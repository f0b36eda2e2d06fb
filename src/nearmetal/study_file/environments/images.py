"""Read definitions of images from the section `images` of a study file, or from a file with one
definition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ...model.environments.environment import Environment
from ...model.environments.image import HOST, ImageDefinition
from ...model.keys import did_you_mean
from ..problems import Path, Problems, read_text
from ..tree import Located, mark_of, read_tree
from ..validate import validate

if TYPE_CHECKING:
    from ..catalog import Catalog

SECTION = "images"


def _read(found: Located, name: str) -> tuple[ImageDefinition | None, str | None]:
    from ..sections import made, section_of

    section = validate(section_of(ImageDefinition), found)
    return (None, None) if section is None else (made(section, name=name), vars(section)["name"])


def read_images(top: Located) -> dict[str, ImageDefinition]:
    """Return the definitions in the section `images` of a study file, by name. Definitions with mistakes are
    left out."""
    found = {}
    for key, entry in top.each(SECTION):
        image, called = _read(entry, key)
        if called not in (None, key):
            top.mistake((SECTION, key), f'the image is called "{called}" below', key=True)
        elif image is not None:
            found[key] = image
    return found


def check_images(
    top: Located,
    environments: Mapping[str, Environment | None],
    images: Mapping[str, ImageDefinition],
    catalog: Catalog | None,
) -> None:
    """Check that the image of every environment, and the image with the kernel of its guests, exists."""
    entries = dict(top.each(SECTION))
    if HOST in entries:
        own_root = f"{HOST} is the machine's own root; call it something else"
        top.mistake((SECTION, HOST), own_root, key=True)
    for name, section in environments.items():
        if section is None or catalog is None:
            continue
        kernel = None if section.guest is None else section.guest.kernel_image
        own = None if section.image == HOST else section.image
        wanted: dict[Path, str | None] = {("image",): own, ("guest", "kernel"): kernel}
        for key, image in wanted.items():
            if image is None or (image in entries and image not in images):
                continue  # the mistakes of an image are reported at its definition
            if what := catalog.no_image(image, images, top.problems.file):
                top.mistake(("environments", name, *key), what)


def load_definition(path: FilePath, name: str) -> ImageDefinition:
    """Return the definition of the image `name` from a file with one definition, or from a study file with a
    section `images`.

    Raises StudyError if the file has mistakes or does not define the image.
    Raises UsageError if the file cannot be read.
    """
    remedy = "name a file with a definition, or a study file with a section images"
    text = read_text(path, Problems(str(path)), what="the definition", remedy=remedy)
    return read_definition(text, str(path), name)


def read_definition(text: str, file: str, name: str) -> ImageDefinition:
    """Return the definition of the image `name` from the text of a file. See load_definition().

    file: name of the file in messages.
    """
    problems = Problems(file)
    root = read_tree(text, problems)
    top = Located(node=root, path=(), problems=problems)
    if SECTION in root.entries:
        found: Mapping[str, ImageDefinition] = read_images(top)
        if name not in found and not problems.found:
            what = f'no image is called "{name}"{did_you_mean(name, found)}'
            problems.add(mark_of(root, (SECTION,), key=True), (), what)
    else:
        image, called = _read(top, name)
        if called not in (None, name):
            top.mistake(("name",), f'the image here is called "{called}", not "{name}"')
        found = {name: image} if image is not None else {}
    problems.check()
    return found[name]
