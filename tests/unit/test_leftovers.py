"""What `nearmetal clean` may touch: labels that we give, and nothing that only looks alike."""

import pytest

from nearmetal.host.labels import OURS
from nearmetal.host.leftovers import wanted_names


@pytest.mark.parametrize(
    "name", ["nearmetal-0a1b2c", "nearmetal-0a1b2c-0-1", "nearmetal-0a1b2c-hub", "nearmetal-check-812-native"]
)
def test_labels_of_ours(name: str) -> None:
    assert OURS.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["nearmetal-data", "nearmetal-lab", "nearmetal-foo.service", "nearmetal-0a1b2", "nearmetal-", "x"]
)
def test_names_that_only_look_alike(name: str) -> None:
    assert not OURS.fullmatch(name)


def test_a_run_that_is_spared_keeps_all_its_parts() -> None:
    wanted = wanted_names(spare=["nearmetal-0a1b2c"])
    assert not wanted("nearmetal-0a1b2c") and not wanted("nearmetal-0a1b2c-0-1")
    assert wanted("nearmetal-0a1b2d") and wanted_names()("nearmetal-0a1b2c")
