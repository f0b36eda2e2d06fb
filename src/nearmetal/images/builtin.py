"""The images that come with nearmetal, as definitions in YAML beside this file."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from ..model.environments.image import ImageDefinition
from ..study_file.environments.images import read_definition


@lru_cache(maxsize=1)
def builtin_names() -> tuple[str, ...]:
    """Return the names of these images, sorted."""
    files = (p.name for p in resources.files(__package__).iterdir())
    return tuple(sorted(f.removesuffix(".yaml") for f in files if f.endswith(".yaml")))


def builtin_definition(name: str) -> ImageDefinition | None:
    """Return the definition of a built-in image; None if there is no such image."""
    if name not in builtin_names():
        return None
    text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return read_definition(text, f"{name}.yaml", name)
