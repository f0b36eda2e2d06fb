"""Parts of a study in parts, by key."""

from __future__ import annotations

from nearmetal.model.series import Part, Series
from nearmetal.model.study import Study


def part(of: Series, key: str) -> Part:
    return next(p for p in of.parts if p.key == key)


def study(of: Series, key: str) -> Study:
    found = part(of, key).study
    assert found is not None, part(of, key).absent
    return found
