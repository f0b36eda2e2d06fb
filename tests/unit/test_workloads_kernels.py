"""Kernels by name: the words for nm-micro, the rows out of its slices."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.errors import TrialFailedError, UsageError
from nearmetal.model.record import Status
from nearmetal.model.study import Better, KernelWorkload, Pages
from nearmetal.workloads.kernels import registry as kernels
from nearmetal.workloads.kernels.contract import SliceWork
from nearmetal.workloads.kernels.stream import BYTES_PER_ELEMENT, CACHED_SWEEPS, LEAST_ELEMENTS, auto_elements
from nearmetal.workloads.parameter import AUTO, Parameter
from nearmetal.workloads.protocol import PartLine, SliceLine, VerifyLine

MIB = 1 << 20
Params = Mapping[str, str | int | float]


def workload(
    kernel: str, params: Params | None = None, *, pages: Pages = Pages.HUGE, metrics: tuple[str, ...] = ()
) -> KernelWorkload:
    return KernelWorkload(name="w", kernel=kernel, params=params or {}, pages=pages, metrics=metrics)


def argument(load: KernelWorkload, *, ranks: int = 2, extra: float = 0.0) -> str:
    return kernels.argument(load, ranks=ranks, llc_bytes=32 * MIB, extra=extra)


def work(name: str, params: Params | None = None, *, ranks: int = 2, llc: int = 32 * MIB) -> SliceWork:
    return kernels.slice_work(workload(name, params), ranks=ranks, llc_bytes=llc)


def keys(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split(":")[1:])


def line(name: str, *parts: tuple[str, float, float, float]) -> SliceLine:
    made = tuple(PartLine(metric=m, seconds=s, comm_seconds=c, work=w) for m, s, c, w in parts)
    return SliceLine(kernel=0, name=name, parts=made, used={})


def verified(name: str, ok: bool) -> VerifyLine:
    return VerifyLine(
        kernel=0, name=name, ok=ok, expected={"zeta": 1.0}, found={"zeta": 2.0}, seconds=0.1, work=5.0
    )


def test_names_are_given_by_kind_of_work() -> None:
    names = kernels.kernel_names()
    compute = {"ep", "cg", "is", "mg", "ft", "lu", "bt"}
    messages = {"pingpong", "ring", "alltoall", "allreduce", "barrier"}
    assert set(names) == {"stream", "dirty", *compute, *messages, "tcp", "udp", "records"}
    kinds = [kernels.kind(name) for name in names]
    assert list(dict.fromkeys(kinds)) == ["memory", "compute", "MPI", "sockets", "files"]
    assert kinds == sorted(kinds, key=list(dict.fromkeys(kinds)).index)
    assert kernels.kind("of another nearmetal") == "programs"
    with pytest.raises(UsageError, match="fft"):
        kernels.parameters("fft")


@pytest.mark.parametrize("name", kernels.kernel_names())
def test_defaults_fit_their_own_parameters(name: str) -> None:
    for parameter in kernels.parameters(name).values():
        assert parameter.problem(parameter.default) is None, parameter.name
        assert parameter.doc
    assert kernels.metrics(workload(name))


def test_argument_names_what_the_kernel_is_and_the_pages() -> None:
    assert argument(workload("ep")) == "ep:class=S:pages=huge"
    assert keys(argument(workload("is", {"class": "A", "rounds": 7}, pages=Pages.SMALL))) == {
        "class": "A",
        "pages": "4k",
    }
    assert keys(argument(workload("cg"), extra=0.03))["extra"] == "0.03"
    assert "threads" not in keys(argument(workload("cg")))
    spec = kernels.argument(workload("cg"), ranks=1, llc_bytes=32 * MIB, extra=0.0, threads=4)
    assert keys(spec)["threads"] == "4"
    assert "extra" not in argument(workload("cg"))
    assert "measure" not in argument(workload("pingpong", {"measure": "bandwidth"}))


@pytest.mark.parametrize("name", kernels.kernel_names())
def test_planted_work_changes_nothing_else(name: str) -> None:
    plain = argument(workload(name), ranks=4)
    assert argument(workload(name), ranks=4, extra=0.03) == f"{plain}:extra=0.03"


@pytest.mark.parametrize("name", kernels.kernel_names())
def test_the_work_of_a_slice_is_measured_unless_the_study_states_it(name: str) -> None:
    assert work(name, ranks=4).units is None and work(name).least >= 1


@pytest.mark.parametrize(
    ("name", "params", "units"),
    [
        ("ep", {"batches": 3}, 3 * 64),
        ("cg", {"iterations": 2}, 2),
        ("is", {"rounds": 5}, 5),
        ("pingpong", {"trips": 100}, 100),
        ("ring", {"steps": 10}, 10),
        ("barrier", {"calls": 7}, 7),
        ("stream", {"elements": 1_000_000, "chunks": 4}, 250_000),
        ("stream", {"elements": 1_000_000, "sweeps": 3}, 3_000_000),
        ("stream", {"elements": 1_000_000, "chunks": 10, "sweeps": 2}, 200_000),
        ("dirty", {"writes": 100}, 50),  # of each of two ranks
        ("records", {"records": 101}, 50),
    ],
)
def test_work_that_the_study_states(name: str, params: Params, units: int) -> None:
    assert work(name, params).units == units


@given(st.integers(1, 1 << 34), st.integers(1, 3))
def test_auto_stream_is_four_times_the_cache_and_not_much_more(llc: int, turns: int) -> None:
    total = 24 * turns * auto_elements(llc, turns)
    assert 4 * llc <= total < 4 * llc + turns * 24 * 100_000


@given(st.integers(1, 1 << 34), st.sampled_from(["auto", 1000, 3_000_000, 45_500_000]))
def test_arrays_that_a_cache_may_hold_are_swept_whole(llc: int, elements: str | int) -> None:
    n = auto_elements(llc) if elements == "auto" else int(elements)
    cached = BYTES_PER_ELEMENT * n <= llc
    least = CACHED_SWEEPS * n if cached else LEAST_ELEMENTS
    assert work("stream", {"elements": elements}, llc=llc).least == least
    assert elements != "auto" or not cached


def test_the_checkpoint_of_records_does_not_grow_with_them() -> None:
    assert work("records").parts == ("records",)
    assert work("stream").parts == work("cg").parts == ()


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("pingpong", 1),
        ("cg", 3),
        ("is", 6),
        ("mg", 12),
        ("ft", 12),
        ("lu", 12),
        ("bt", 2),
        ("ring", 1),
        ("tcp", 1),
        ("barrier", 1),
    ],
)
def test_ranks_that_a_kernel_cannot_run_on(name: str, ranks: int) -> None:
    with pytest.raises(UsageError, match=f"does not run on {ranks} ranks"):
        argument(workload(name), ranks=ranks)


def test_ep_and_stream_take_any_ranks() -> None:
    assert argument(workload("ep"), ranks=3) and argument(workload("stream"), ranks=7)


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("ep", {"klass": "S"}, "no key 'klass'"),
        ("ep", {"class": "Z"}, "one of S, W, A, B"),
        ("ep", {"class": 1}, "one of"),
        ("ep", {"batches": 0}, "from 1"),
        ("ep", {"batches": True}, "whole number"),
        ("ep", {"batches": 2.5}, "whole number"),
        ("pingpong", {"bytes": "auto"}, "whole number"),
        ("pingpong", {"measure": "speed"}, "latency, bandwidth"),
        ("stream", {"elements": "many"}, "or auto"),
        ("udp", {"bytes": 65508}, "from 0 to 65507"),
        ("tcp", {"bytes": 0}, "from 1"),
        ("tcp", {"wait": "sleep"}, "block, spin"),
        ("allreduce", {"bytes": 12}, "multiple of 8"),
        ("dirty", {"rate": -1.0}, "number from 0"),
        ("dirty", {"rate": "fast"}, "number from 0"),
        ("dirty", {"rate": math.nan}, "number from 0"),
        ("barrier", {"bytes": 8}, "no key 'bytes'"),
    ],
)
def test_params_that_do_not_fit(name: str, params: Params, words: str) -> None:
    (what,) = kernels.problems(name, params).values()
    assert words in what
    with pytest.raises(UsageError, match=words):
        argument(workload(name, params))


def test_a_parameter_may_be_auto_only_where_it_says_so() -> None:
    batches: Parameter = kernels.parameters("ep")["batches"]
    size = kernels.parameters("ep")["class"]
    assert batches.problem(AUTO) is None and size.problem(AUTO) is not None


def test_stream_rows_are_bytes_per_second() -> None:
    parts = (
        ("copy", 0.5, 0.0, 16.0),
        ("scale", 0.25, 0.0, 16.0),
        ("add", 1, 0.0, 24.0),
        ("triad", 2, 0.0, 24.0),
    )
    found = kernels.rows(workload("stream"), [line("stream", *parts)] * 2, None)
    assert [(r.metric, r.unit, r.better, r.values) for r in found] == [
        ("copy", "B/s", Better.HIGHER, (32.0, 32.0)),
        ("scale", "B/s", Better.HIGHER, (64.0, 64.0)),
        ("add", "B/s", Better.HIGHER, (24.0, 24.0)),
        ("triad", "B/s", Better.HIGHER, (12.0, 12.0)),
    ]
    assert found[0].seconds == (0.5, 0.5)


def test_only_the_metrics_asked_for() -> None:
    load = workload("stream", metrics=("triad",))
    assert kernels.metrics(load) == (("triad", "B/s", Better.HIGHER),)
    with pytest.raises(UsageError, match="no metric 'quad'"):
        kernels.metrics(workload("stream", metrics=("quad",)))


@pytest.mark.parametrize("name", ["ep", "cg", "is", "mg", "ft", "lu", "bt"])
def test_rate_rows_keep_seconds_and_communication(name: str) -> None:
    slices = [line(name, ("rate", 0.5, 0.1, 100.0)), line(name, ("rate", 0.25, 0.2, 100.0))]
    (row,) = kernels.rows(workload(name), slices, verified(name, True))
    assert (row.metric, row.unit, row.better) == ("rate", "op/s", Better.HIGHER)
    assert row.values == (200.0, 400.0) and row.seconds == (0.5, 0.25)
    assert row.parts == {"comm": (0.1, 0.2)}
    assert row.status is Status.OK and row.verification["found"] == {"zeta": 2.0}


def test_pingpong_is_latency_when_short_and_bandwidth_when_long() -> None:
    slices = [line("pingpong", ("messages", 0.5, 0.5, 1000.0))]
    (short,) = kernels.rows(workload("pingpong", {"bytes": 8}), slices, None)
    assert (short.metric, short.unit, short.better, short.values) == ("latency", "s", Better.LOWER, (0.0005,))
    (long,) = kernels.rows(workload("pingpong", {"bytes": 4 * MIB}), slices, None)
    assert (long.metric, long.unit, long.better) == ("bandwidth", "B/s", Better.HIGHER)
    assert long.values == (4 * MIB * 2000.0,)
    (asked,) = kernels.rows(workload("pingpong", {"bytes": 8, "measure": "bandwidth"}), slices, None)
    assert asked.values == (16000.0,)


SIZES = [0, 1, 8, 64, 512, 4 << 10, 32 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB]


def test_latency_and_bandwidth_by_message_size() -> None:
    latency = [kernels.metrics(workload("pingpong", {"bytes": m}))[0] for m in SIZES if m < 64 << 10]
    assert {name for name, _, _ in latency} == {"latency"}
    for name in ("pingpong", "ring", "tcp"):
        ((metric, unit, better),) = kernels.metrics(workload(name, {"bytes": 2_000_000}))
        assert (metric, unit, better) == ("bandwidth", "B/s", Better.HIGHER)


def test_ring_and_collectives_are_seconds_of_one() -> None:
    (ring,) = kernels.rows(workload("ring"), [line("ring", ("messages", 0.5, 0.5, 250.0))], None)
    assert (ring.metric, ring.unit, ring.values) == ("latency", "s", (0.002,))
    for name in ("alltoall", "allreduce", "barrier"):
        (row,) = kernels.rows(workload(name), [line(name, ("calls", 0.5, 0.5, 100.0))], None)
        assert (row.metric, row.unit, row.better, row.values) == ("time", "s", Better.LOWER, (0.005,))


def test_a_lost_datagram_is_named_where_its_slice_is_missing() -> None:
    good, lost = line("udp", ("messages", 1, 1, 10)), line("udp", ("messages", 0.5, 0.5, 0))
    (row,) = kernels.rows(workload("udp"), [good, lost], None)
    assert row.status is Status.FAILED and row.reason == "1 of 2 time shares lost a datagram"


@given(st.floats(1e3, 1e12), st.integers(1, 64))
def test_a_paced_slice_lasts_ten_milliseconds_or_a_page_each(rate: float, ranks: int) -> None:
    assert float(keys(argument(workload("dirty", {"rate": rate}), ranks=ranks))["rate"]) == pytest.approx(
        rate, rel=1e-9
    )
    pages, wanted = work("dirty", {"rate": rate}, ranks=ranks).units, rate * 10e-3 / 4096 / ranks
    assert pages is not None and (pages == 1 if wanted < 1 else abs(pages - wanted) <= 0.5)


def test_dirty_without_a_rate_is_as_fast_as_it_can() -> None:
    found = keys(argument(workload("dirty", {"bytes": 8 * MIB})))
    assert found["rate"] == "0" and int(found["bytes"]) == 8 * MIB
    (row,) = kernels.rows(workload("dirty"), [line("dirty", ("bytes", 0.5, 0, 100.0))], None)
    assert (row.metric, row.unit, row.values) == ("rate", "B/s", (200.0,))


def test_operations_are_counted_by_the_nas_benchmarks_alone() -> None:
    counting = {n for n in kernels.kernel_names() if kernels.counts_operations(n)}
    assert counting == {"ep", "cg", "is", "mg", "ft", "lu", "bt"}


def test_a_failed_verification_fails_the_row_and_says_what_was_found() -> None:
    (row,) = kernels.rows(workload("cg"), [line("cg", ("rate", 1, 0, 1))], verified("cg", False))
    assert row.status is Status.FAILED and "2.0" in row.reason and row.values == (1.0,)
    assert row.verification["ok"] is False


def test_rows_without_usable_slices_fail() -> None:
    (nothing,) = kernels.rows(workload("ep"), [], None)
    assert nothing.status is Status.FAILED and nothing.values == ()
    good, bad = line("ep", ("rate", 1, 0, 1)), line("ep", ("rate", 0, 0, 1))
    (some,) = kernels.rows(workload("ep"), [good, bad], None)
    assert some.status is Status.FAILED and "1 of 2" in some.reason


def test_a_slice_of_another_kernel_is_a_failed_trial() -> None:
    with pytest.raises(TrialFailedError):
        kernels.rows(workload("cg"), [line("ep", ("rate", 1, 0, 1))], None)
    with pytest.raises(TrialFailedError):
        kernels.rows(workload("stream"), [line("stream", ("copy", 1, 0, 1))], None)
