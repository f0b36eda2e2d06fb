"""The built-in studies, as the texts of their study files. This package does not interpret their keys."""

from __future__ import annotations

from importlib import resources

from ..errors import UsageError

SERIES = ("containers-2015", "two-vm-scenarios-2009")
"""Names of the studies in parts, which are made for the machine (one module each)."""


def names() -> tuple[str, ...]:
    """Return the names of the built-in studies, sorted."""
    files = (p.name for p in resources.files(__name__).iterdir())
    return tuple(sorted(f.removesuffix(".yaml") for f in files if f.endswith(".yaml")))


def builtin(name: str) -> str:
    """Return the text of a built-in study. Raises UsageError if there is none of this name."""
    if name not in names():
        raise UsageError(f'no built-in study is called "{name}"', remedy=f"one of: {', '.join(names())}")
    return resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
