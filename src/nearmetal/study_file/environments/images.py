"""Read definitions of images from the section `images` of a study file, or from a file with one
definition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...model.environments.environment import Environment
from ...model.environments.image import HOST, ImageDefinition
from ...model.keys import NAME, Key, did_you_mean
from ..problems import Path, Problems
from ..tree import MapNode, Node, mark_of, read_tree
from ..validate import validate

if TYPE_CHECKING:
    from ..catalog import Catalog
    from ..sections.keyed import Section

SECTION = "images"


_NAME = Key(kind=NAME, doc="in a file of its own: its name", examples=("own",), name="name", optional=True)


def image_section() -> type[Section]:
    """Return the section with the keys of an image."""
    from ..sections import section_of

    return section_of(ImageDefinition, first={_NAME.name: _NAME})


def _read(node: Node, path: Path, name: str, problems: Problems) -> tuple[ImageDefinition | None, str | None]:
    """Return the definition of an image, and the name that it contains; None for what is missing."""
    from ..sections import made

    section = validate(image_section(), node, path, problems)
    return (None, None) if section is None else (made(section, name=name), getattr(section, _NAME.name))


def read_images(root: MapNode, problems: Problems) -> dict[str, ImageDefinition]:
    """Return the definitions in the section `images` of a study file, by name. Definitions with mistakes are
    left out."""
    node = root.get(SECTION)
    found = {}
    for key, (mark, entry) in (node.entries if isinstance(node, MapNode) else {}).items():
        image, called = _read(entry, (SECTION, key), key, problems)
        if called not in (None, key):
            problems.add(mark, (SECTION, key), f'the image is called "{called}" below')
        elif image is not None:
            found[key] = image
    return found


def check_images(
    root: MapNode,
    environments: Mapping[str, Environment | None],
    images: Mapping[str, ImageDefinition],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    """Check that the image of every environment, and the image with the kernel of its guests, exists."""
    node = root.get(SECTION)
    entries = node.entries if isinstance(node, MapNode) else {}
    if HOST in entries:
        what = f"{HOST} is the machine's own root; call it something else"
        problems.add(mark_of(root, (SECTION, HOST), key=True), (SECTION, HOST), what)
    for name, section in environments.items():
        if section is None or catalog is None:
            continue
        kernel = section.guest.kernel if section.guest is not None else None
        wanted: dict[Path, str] = {} if section.image == HOST else {("image",): section.image}
        wanted |= {("guest", "kernel"): kernel} if kernel is not None and "/" not in kernel else {}
        for key, image in wanted.items():
            if image in entries and image not in images:
                continue  # its mistakes are reported at its definition
            what = catalog.no_image(image, images, problems.file) or ""
            if what:
                at: Path = ("environments", name, *key)
                problems.add(mark_of(root, at), at, what)


def load_definition(path: FilePath, name: str) -> ImageDefinition:
    """Return the image with a name from a file with one definition, or from a study file with a section
    `images`.

    Raises StudyError if the file has mistakes or does not define the image.
    Raises UsageError if the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"cannot read the definition: {e.strerror or e}", where=str(path)) from e
    except UnicodeDecodeError as e:
        raise UsageError("not UTF-8; save the file as UTF-8", where=str(path)) from e
    return read_definition(text, str(path), name)


def read_definition(text: str, file: str, name: str) -> ImageDefinition:
    """Return the image with a name from the text of a file, as load_definition.

    file: name of the file in messages.
    """
    problems = Problems(file)
    root = read_tree(text, problems)
    if SECTION in root.entries:
        found: Mapping[str, ImageDefinition] = read_images(root, problems)
        if name not in found and not problems.found:
            what = f'no image is called "{name}"{did_you_mean(name, found)}'
            problems.add(mark_of(root, (SECTION,), key=True), (), what)
    else:
        image, called = _read(root, (), name, problems)
        if called not in (None, name):
            what = f'the image here is called "{called}", not "{name}"'
            problems.add(mark_of(root, ("name",)), ("name",), what)
        found = {name: image} if image is not None else {}
    if problems.found:
        raise problems.error()
    return found[name]
