"""The CPUs of ranks and instances by pinning, and with more ranks than CPUs."""

from __future__ import annotations

from typing import Any

import pytest

from nearmetal.model.study import Pinning, Placement
from nearmetal.node.cpus import cpus_of_instance, cpus_of_ranks
from nearmetal.subjects.launches.rank_argv import cpu_list

ORDER = (0, 2, 1, 3)
"""As the topology gives it: cores 0 and 2 before their second threads."""


HALVES = {"instances": 2, "tasks": 2, "pinning": Pinning.INSTANCE}


@pytest.mark.parametrize(
    ("more", "ranks", "instances"),
    [
        ({"instances": 2, "tasks": 1}, ((0,), (2,)), ((0,), (2,))),
        ({"instances": 1, "tasks": 2}, ((0,), (2,)), ((0, 2),)),
        ({"instances": 2, "tasks": 1, "cpus": (3, 1)}, ((3,), (1,)), ((3,), (1,))),
        (HALVES, ((0, 2),) * 2 + ((1, 3),) * 2, ((0, 2), (1, 3))),
        ({"instances": 2, "tasks": 1, "pinning": Pinning.NONE}, ((0, 1, 2, 3),) * 2, ((0, 1, 2, 3),) * 2),
        (
            {"instances": 2, "tasks": 3, "oversubscribe": True},
            ((0,), (2,), (1,), (3,), (0,), (2,)),
            ((0, 1, 2), (0, 2, 3)),
        ),
    ],
)  # fmt: skip
def test_cpus_of_ranks_and_instances(
    more: dict[str, Any], ranks: tuple[Any, ...], instances: tuple[Any, ...]
) -> None:
    place = Placement(name="p", **more)
    assert cpus_of_ranks(place, ORDER) == ranks
    assert tuple(cpus_of_instance(place, ranks, n) for n in range(place.instances)) == instances


def test_the_list_for_nm_rank() -> None:
    assert cpu_list(((0,), (2, 3))) == "0,2+3"
