"""Definitions of images: in the section images of a study file, or in a file of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..model.image import HOST, ImageDefinition
from ..model.keys import did_you_mean
from .problems import Path, Problems
from .tree import MapNode, mark_of, read_tree
from .validate import validate

if TYPE_CHECKING:
    from .catalog import Catalog
    from .sections import EnvironmentSection, ImageSection

SECTION = "images"


def read_images(root: MapNode, problems: Problems) -> dict[str, ImageDefinition]:
    """By name, from the section images of a study file; the mistaken ones are left out."""
    from .sections import ImageSection

    node = root.get(SECTION)
    found = {}
    for key, (mark, entry) in (node.entries if isinstance(node, MapNode) else {}).items():
        section = validate(ImageSection, entry, (SECTION, key), problems)
        if section is not None and section.name not in (None, key):
            problems.add(mark, (SECTION, key), f'the image is called "{section.name}" below')
        elif section is not None:
            found[key] = _definition(key, section)
    return found


def check_images(
    root: MapNode,
    environments: Mapping[str, EnvironmentSection | None],
    images: Mapping[str, ImageDefinition],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    """The image of every environment, and that of the kernel of its guests, is one that stands."""
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
                continue  # its mistakes are told where it is defined
            what = catalog.no_image(image, images, problems.file) or ""
            if what:
                at: Path = ("environments", name, *key)
                problems.add(mark_of(root, at), at, what)


def load_definition(path: FilePath, name: str) -> ImageDefinition:
    """The image of that name, from a file with one definition or from a study file that has a section images.

    Raises StudyError (mistakes in the file), UsageError (no such file, no such image in it).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"cannot read the definition: {e.strerror or e}", where=str(path)) from e
    except UnicodeDecodeError as e:
        raise UsageError("not UTF-8; save the file as UTF-8", where=str(path)) from e
    return read_definition(text, str(path), name)


def read_definition(text: str, file: str, name: str) -> ImageDefinition:
    """As load_definition; file: what messages call it."""
    from .sections import ImageSection

    problems = Problems(file)
    root = read_tree(text, problems)
    if SECTION in root.entries:
        found: Mapping[str, ImageDefinition] = read_images(root, problems)
        if name not in found and not problems.found:
            what = f'no image is called "{name}"{did_you_mean(name, found)}'
            problems.add(mark_of(root, (SECTION,), key=True), (), what)
    else:
        section = validate(ImageSection, root, (), problems)
        if section is not None and section.name not in (None, name):
            what = f'the image here is called "{section.name}", not "{name}"'
            problems.add(mark_of(root, ("name",)), ("name",), what)
        found = {name: _definition(name, section)} if section is not None else {}
    if problems.found:
        raise problems.error()
    return found[name]


def _definition(name: str, section: ImageSection) -> ImageDefinition:
    return ImageDefinition(
        name=name,
        suite=section.suite,
        packages=tuple(section.packages),
        variant=section.variant,
        mirror=section.mirror,
        sources=tuple(section.sources),
    )
