"""The arithmetic of the 2009 paper on two virtual machine scenarios, with the numbers that it prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.analysis.guests import GuestCpu, GuestMemory, mean_memory, node_cpu

MB = 1e6


def guest(user: float, system: float, wait: float, idle: float, steal: float, cpus: int = 1) -> GuestCpu:
    parts = {"user": user, "system": system, "wait": wait, "idle": idle, "steal": steal}
    return GuestCpu(**{name: percent / 100 for name, percent in parts.items()}, cpus=cpus)


FIRST, SECOND = guest(27.4, 1.0, 4.1, 39.2, 28.3), guest(26.4, 1.2, 4.5, 39.5, 28.4)
BOTH_TASKS = guest(63.9, 9.0, 0.7, 20.4, 6.0)


def test_two_virtual_machines_make_the_papers_node() -> None:
    node = node_cpu([FIRST, SECOND])
    shown = [round(100 * v, 1) for v in (node.user, node.system, node.wait, node.idle)]
    assert shown == [53.8, 2.2, 2.6, 41.4]
    assert node.excess == 0


def test_one_virtual_machine_with_both_tasks_is_its_node() -> None:
    node = node_cpu([BOTH_TASKS])
    shown = [round(100 * v, 1) for v in (node.user, node.system, node.wait, node.idle)]
    assert shown == [63.9, 9.0, 0.7, 26.4], "idle and stolen time together"


def test_the_wait_printed_does_not_follow_against_idle_alone() -> None:
    """The paper says 'with respect to the idle time'; its 2.6 needs the stolen time in the denominator."""
    assert round(44 * FIRST.wait / FIRST.idle, 1) == 4.6
    wait, idle = FIRST.wait + SECOND.wait, FIRST.idle + SECOND.idle
    assert round(44 * wait / idle, 1) == 4.8
    assert round(44 * wait / (wait + idle), 1) == 4.3


@pytest.mark.parametrize(
    ("printed", "swap", "free", "nominal", "implied", "by_formula"),
    [(285.57, 20.15, 3.05, 256, 236.7, 304.8), (509.68, 8.09, 3.93, 512, 488.5, 533.2)],
)
def test_committed_memory_needs_less_than_the_nominal_size(
    printed: float, swap: float, free: float, nominal: float, implied: float, by_formula: float
) -> None:
    """With formula (1) the printed sizes come out of what a kernel of that time manages of 256 and 512 MB,
    not of 256 and 512 themselves."""
    parts = {"swap": printed * swap / 100 * MB, "free": printed * free / 100 * MB}
    own = GuestMemory(total=implied * MB, **parts, inactive=0.0, active=0.0)
    assert own.committed / MB == pytest.approx(printed, abs=0.05)
    assert own.shares()["swap"] == pytest.approx(swap / 100, abs=1e-4)
    assert own.shares()["free"] == pytest.approx(free / 100, abs=1e-4)
    whole = GuestMemory(total=nominal * MB, **parts, inactive=0.0, active=0.0)
    assert whole.committed / MB == pytest.approx(by_formula, abs=0.1)


def test_memory_of_guests_is_averaged() -> None:
    one = GuestMemory(total=100.0, free=10.0, inactive=20.0, active=30.0, swap=0.0)
    two = GuestMemory(total=300.0, free=30.0, inactive=40.0, active=50.0, swap=20.0)
    both = mean_memory([one, two])
    assert both == GuestMemory(total=200.0, free=20.0, inactive=30.0, active=40.0, swap=10.0)
    assert both.committed == 190.0


def test_guests_of_several_cpus_on_a_node_of_several() -> None:
    """Two guests of one CPU each, on a node of two, each busy all the time: the node is."""
    busy = guest(90, 10, 0, 0, 0)
    node = node_cpu([busy, busy], cpus=2)
    assert (node.user, node.system, node.idle) == pytest.approx((0.9, 0.1, 0.0))
    wide = node_cpu([guest(50, 0, 0, 50, 0, cpus=2)], cpus=2)
    assert (wide.user, wide.idle) == pytest.approx((0.5, 0.5))


def test_guests_that_see_no_steal_count_more_than_there_is() -> None:
    node = node_cpu([guest(80, 10, 0, 10, 0)] * 2)
    assert node.excess == pytest.approx(0.8)
    assert (node.wait, node.idle) == (0.0, 0.0)


def test_figures_of_no_guest_are_refused() -> None:
    for what in (node_cpu, mean_memory):
        with pytest.raises(ValueError, match="no guest"):
            what([])


SHARES = st.lists(st.integers(0, 100), min_size=5, max_size=5).filter(any)


@given(st.lists(SHARES, min_size=1, max_size=4))
def test_the_node_always_adds_up(rows: list[list[int]]) -> None:
    guests = []
    for row in rows:
        user, system, wait, idle, steal = (100 * v / sum(row) for v in row)
        guests.append(guest(user, system, wait, idle, steal))
    node = node_cpu(guests)
    assert node.user + node.system + node.wait + node.idle - node.excess == pytest.approx(1)
    assert min(node.wait, node.idle) >= -1e-12
