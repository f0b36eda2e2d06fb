"""Counters over windows of time, and the samples of guests on clocks of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host.counters.procfiles import SCHEDSTAT, CounterUnits, instance_counters
from nearmetal.model.scope import GUEST, NODE, Scope
from nearmetal.samplers import Sample, Stream, in_windows
from nearmetal.samplers.reading import parse_lines

GUEST_A = Scope(kind=GUEST, name="a")
SCALE = CounterUnits(tick=100, page=4096)


def sample(at: float, **counters: float | None) -> Sample:
    return Sample(time=0.0, monotonic=at, scopes={GUEST_A: counters})


def test_growing_counters_are_interpolated_at_both_ends() -> None:
    samples = [sample(0, user=0.0), sample(1, user=1.0), sample(2, user=3.0), sample(3, user=3.0)]
    found = in_windows(samples, GUEST_A, [(0.5, 1.5)])
    assert found == {"seconds": 1.0, "user": 1.5}
    assert in_windows(samples, GUEST_A, [(0.0, 1.0), (2.5, 3.0)]) == {"seconds": 1.5, "user": 1.0}
    assert in_windows(samples, Scope(kind=GUEST, name="b"), [(0.0, 1.0)]) == {"seconds": 1.0}


def test_a_height_is_averaged_over_the_time() -> None:
    samples = [sample(0, memory_free=0.0), sample(1, memory_free=10.0), sample(3, memory_free=10.0)]
    assert in_windows(samples, GUEST_A, [(0.0, 2.0)])["memory_free"] == 7.5
    assert in_windows(samples, GUEST_A, [(0.0, 1.0), (1.0, 3.0)])["memory_free"] == pytest.approx(25 / 3)


def test_a_clock_that_is_ahead_is_put_right() -> None:
    samples = [sample(100 + t, user=float(t * t)) for t in range(5)]
    assert in_windows(samples, GUEST_A, [(1.0, 3.0)], 100.0)["user"] == 8.0


@pytest.mark.parametrize(
    "samples",
    [
        [sample(1, user=1.0), sample(2, user=2.0)],  # begins too late
        [sample(0, user=0.0), sample(1.4, user=2.0)],  # ends too early
        [sample(0, user=5.0), sample(2, user=2.0)],  # ran backwards
        [sample(0, user=None), sample(2, user=2.0)],
        [sample(0, user=1.0)],
    ],
)
def test_unknown_counters_stay_unknown(samples: list[Sample]) -> None:
    assert in_windows(samples, GUEST_A, [(0.5, 1.5)]).get("user") is None


def test_idle_times_that_the_kernel_corrects_downwards_have_not_grown() -> None:
    samples = [sample(0, idle=5.0, iowait=1.0, user=5.0), sample(2, idle=4.9, iowait=2.0, user=4.9)]
    found = in_windows(samples, GUEST_A, [(0.0, 2.0)])
    assert found == {"seconds": 2.0, "idle": 0.0, "iowait": 1.0, "user": None}


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_windows_beside_each_other_add_up(steps: list[float], first: float, second: float) -> None:
    total, samples = 0.0, []
    for at, step in enumerate(steps):
        total += step
        samples.append(sample(at, user=total))
    last = float(len(steps) - 1)
    a, b = sorted((first * last, second * last))
    parts = [in_windows(samples, GUEST_A, [w])["user"] for w in ((0.0, a), (a, b), (b, last))]
    assert sum(p for p in parts if p is not None) == pytest.approx(total - steps[0])


def test_run_delay_of_a_guests_cpus() -> None:
    files = {f"{SCHEDSTAT}0": b"1000000000 500000000 7\n", f"{SCHEDSTAT}1": b"2000000000 250000000 9\n"}
    found = instance_counters(files, SCALE)
    assert (found["vcpu"], found["vcpu_delay"]) == (3.0, 0.75)
    broken = instance_counters({**files, f"{SCHEDSTAT}1": b""}, SCALE)
    assert broken["vcpu"] is None and broken["vcpu_delay"] is None
    assert "vcpu" not in instance_counters({}, SCALE), "no guest, no such counter"


def test_a_stream_gives_what_came_since_it_was_made(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    old, new = (b'{"time":%d.0,"monotonic":%d.0,"scopes":{"node":{}}}\n' % (t, t) for t in (1, 2))
    path.write_bytes(old)
    stream = Stream(path, SCALE)
    assert stream.until(NODE, 1.0, 0.0) == []
    with path.open("ab") as file:
        os.write(file.fileno(), new + new[:20])
    assert [s.time for s in stream.until(NODE, 2.0, 1.0)] == [2.0]
    assert [s.time for s in parse_lines(old + new, SCALE, path)] == [1.0, 2.0]
    assert Stream(tmp_path / "none", SCALE).lines() == b""
