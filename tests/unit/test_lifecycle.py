"""Names, phases, evaluation of probes, prediction and choice of a method, against known answers."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nearmetal.lifecycle import (
    Candidate,
    Conditions,
    Estimate,
    Method,
    Phase,
    PhaseTimes,
    ProbeTimes,
    choose,
    evaluate,
    predict,
    read_probe_log,
    without_floor,
)
from nearmetal.model.change import replace

MIB, PERIOD = 1 << 20, 0.5e-3
MOVED = [m for m in Method if m is not Method.AUTO]


def within(value: float, share: float) -> Estimate:
    """Return a value that is known to a share of itself."""
    return Estimate(value * (1 - share), value, value * (1 + share))


def conditions(
    memory: float = 256 * MIB,
    hot: float = 0.0,
    dirty: float = 0.0,
    bandwidth: float = 1e9,
    *,
    fixed: float = 0.02,
    share: float = 0.0,
    limit: float = 0.3,
) -> Conditions:
    return Conditions(
        memory=within(memory, share),
        working_set=within(hot, share),
        dirty_rate=within(dirty, share),
        bandwidth=within(bandwidth, share),
        fixed=within(fixed, share),
        downtime_limit=limit,
    )


def test_one_set_of_names() -> None:
    assert {m.value for m in Method} == {
        *("offline", "precopy", "postcopy", "multifd", "criu", "criu-lazy"),
        *("criu-pageserver", "criu-precopy", "dmtcp", "stream", "auto"),
    }
    assert [p.value for p in Phase] == ["connect", "freeze", "dump", "copy", "restore", "thaw", "removal"]


def test_phases_keep_their_order_and_their_record_form() -> None:
    times = PhaseTimes({Phase.REMOVAL: 0.5, Phase.COPY: 1.0, Phase.CONNECT: 0.25})
    assert list(times.record()) == ["connect", "copy", "removal"] and times.total == 1.75
    with pytest.raises(ValueError, match="freeze"):
        PhaseTimes({Phase.FREEZE: -1e-9})


def silent(first: int, last: int, number: int = 100, delay: float = 1e-4) -> list[ProbeTimes]:
    """Of `number` requests those from first to last are lost."""
    return [
        request(i * PERIOD, *(() if first <= i <= last else (i * PERIOD + delay,))) for i in range(number)
    ]


def request(sent: float, *answers: float, step: float = PERIOD) -> ProbeTimes:
    return ProbeTimes(sent=sent, answers=answers, step=step)


def test_a_probe_counts_lost_requests_and_the_longest_silence() -> None:
    seen = evaluate(silent(40, 59), PERIOD)
    assert (seen.requests, seen.lost, seen.doubled) == (100, 20, 0)
    assert seen.unanswered == pytest.approx(20 * PERIOD)
    assert seen.gap == pytest.approx(21 * PERIOD), "from the answer before to the answer after"
    assert (seen.delay, seen.longest_delay) == pytest.approx((1e-4, 1e-4))


def test_late_answers_are_delays_and_not_losses() -> None:
    """A bridge keeps packets for a guest that stands still: nothing is lost, and all come at its end."""
    times = [request(i * PERIOD, max(i, 60 if i >= 40 else i) * PERIOD + 1e-4) for i in range(100)]
    seen = evaluate(times, PERIOD)
    assert (seen.lost, seen.unanswered) == (0, 0)
    assert seen.longest_delay == pytest.approx(20 * PERIOD + 1e-4)
    assert seen.gap == pytest.approx(21 * PERIOD)


def test_silence_at_either_end_counts() -> None:
    assert evaluate(silent(0, 9), PERIOD).gap == pytest.approx(10 * PERIOD + 1e-4)
    assert evaluate(silent(90, 99), PERIOD).gap == pytest.approx(10 * PERIOD - 1e-4)
    nothing = evaluate(silent(0, 99), PERIOD)
    assert nothing.lost == 100 and nothing.gap == pytest.approx(99 * PERIOD) and math.isnan(nothing.delay)


def test_a_second_copy_shows_as_doubled_answers() -> None:
    times = [request(0.0, 1e-4, 2e-4), request(PERIOD, PERIOD + 1e-4)]
    assert evaluate(times, PERIOD).doubled == 1


def test_an_answer_that_is_repeated_after_a_standstill_is_no_second_copy() -> None:
    """The request waited at the destination too, and had been answered at the source."""
    times = silent(10, 20)
    times[9] = request(times[9].sent, *times[9].answers, times[21].answers[0])
    seen = evaluate(times, PERIOD)
    assert (seen.doubled, seen.repeated) == (0, 1) and seen.gap == pytest.approx(12 * PERIOD)
    before, after = list(times), list(times)
    before[9] = request(times[9].sent, *(times[9].answers[0],) * 2)
    after[30] = request(times[30].sent, *times[30].answers, times[31].answers[0])
    assert [(evaluate(t, PERIOD).doubled, evaluate(t, PERIOD).repeated) for t in (before, after)] == [
        (1, 0),
        (1, 1),
    ]


def test_the_floor_is_taken_off_and_nothing_is_below_zero() -> None:
    floor, event = evaluate(silent(50, 51, 200), PERIOD), evaluate(silent(40, 59), PERIOD)
    left = without_floor(event, floor)
    assert left.lost == pytest.approx(19 * PERIOD), "two of 200 are one of 100"
    assert left.gap == pytest.approx(18 * PERIOD)
    none = without_floor(floor, event)
    assert (none.lost, none.gap, none.delay) == (0, 0, 0)
    with pytest.raises(ValueError, match="period"):
        without_floor(event, evaluate(silent(0, 0), 2 * PERIOD))
    for times, period in (([], PERIOD), (silent(0, 0), 0.0), (silent(0, 0), math.inf)):
        with pytest.raises(ValueError, match="probe"):
            evaluate(times, period)


def test_a_probe_that_asks_seldom_at_rest_counts_the_time_of_each_request() -> None:
    """A standstill from 10 to 50 ms: requests each 4 ms, and each 0.5 ms from the second lost one on."""
    rest = 4e-3
    seldom = [request(i * rest, *((i * rest + 1e-4,) if i < 3 else ()), step=rest) for i in range(4)]
    often = [request(i * PERIOD, step=PERIOD) for i in range(32, 100)]
    after = [request(i * rest, i * rest + 1e-4, step=rest) for i in range(13, 20)]
    times = [*seldom, *often, request(0.05, 0.0501, step=2e-3), *after]
    seen = evaluate(times, PERIOD, rest)
    assert (seen.lost, seen.resolution) == (69, rest + PERIOD)
    assert seen.unanswered == pytest.approx(0.03975), "10 to 49.75 ms: from halfway to halfway"
    assert seen.gap - seen.resolution <= 0.04 <= seen.gap
    assert (seen.starts_within, seen.ends_within) == pytest.approx((rest, PERIOD))
    assert seen.silence == pytest.approx(seen.unanswered)
    assert seen.seconds == pytest.approx(20 * rest)


def asked(stop: float, length: float, *, lost: bool, rest: float, period: float) -> list[ProbeTimes]:
    """The requests of a client that sends one each `rest`, and each `period` once no answer has come for 1.5
    times as long (kernels/probe/ask.c).

    stop, length: when the instance stops, and for how long.
    lost: whether requests to the stopped instance are lost. Otherwise it answers them when it resumes.
    """
    way, now, heard, times, pending = 2e-4, 0.0, 0.0, list[ProbeTimes](), list[float]()
    while now < stop + length + 0.1:
        while pending and pending[0] <= now:
            heard = pending.pop(0)
        step = period if now - heard > 1.5 * rest else rest
        up = not stop < now + way < stop + length
        answers = (now + 2 * way,) if up else () if lost else (stop + length + way,)
        times.append(request(now, *answers, step=step))
        pending += answers
        now += step
    return times


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize(("rest", "period"), [(10e-3, 0.5e-3), (8e-3, 8e-3), (20e-3, 20e-3)])
def test_a_standstill_at_any_time_has_no_error_on_average(lost: bool, rest: float, period: float) -> None:
    floor = evaluate(asked(1.0, 0.0, lost=lost, rest=rest, period=period), period, rest)
    assert (floor.lateness, floor.lost) == pytest.approx((0, 0))
    errors, counted, count = list[float](), list[float](), 200
    for number in range(count):  # all phases of the stop, and of the resumption independently of them
        stop, length = 0.1 + rest * number / count, 0.08 + rest * (number * 0.618 % 1)
        seen = evaluate(asked(stop, length, lost=lost, rest=rest, period=period), period, rest)
        assert seen.gap - seen.starts_within - seen.ends_within - 1e-9 <= length <= seen.gap + 1e-9
        found = without_floor(seen, floor)
        errors.append(found.gap - length)
        counted.append(found.lost - length if lost else found.lost)
    for error in (errors, counted):
        assert abs(statistics.fmean(error)) < 0.3e-3
        assert max(map(abs, error)) <= (rest + period) / 2 + 1e-9


@given(st.lists(st.booleans(), min_size=2, max_size=200), st.floats(1e-6, 1e-4))
def test_a_silence_of_any_length_lies_in_its_interval(answered: list[bool], delay: float) -> None:
    times = [request(i * PERIOD, *((i * PERIOD + delay,) if ok else ())) for i, ok in enumerate(answered)]
    seen = evaluate(times, PERIOD)
    runs = "".join("x" if ok else " " for ok in answered).split("x")
    inner = max((len(r) for r in runs[1:-1]), default=0) if len(runs) > 2 else 0
    assert seen.lost == answered.count(False)
    assert seen.gap >= inner * PERIOD - 1e-9 and seen.gap <= (len(answered)) * PERIOD + delay


def test_the_log_of_the_probe_is_read() -> None:
    text = "udp 0 1000000000 1000100000 1000100000 1 4000000\nudp 1 1000500000 0 0 0 500000\n"
    text += "tcp 0 1000000000 1000500000 1000700000 2 20000000\ncpu 2500000\nbroken 3000000000\n"
    log = read_probe_log(text)
    assert [t.sent for t in log.udp] == [1.0, 1.0005] and log.udp[1].answers == ()
    assert log.udp[0].answers == pytest.approx((1.0001,)) and log.tcp[0].answers == (1.0005, 1.0007)
    assert (log.broken, log.cpu) == (3.0, 0.0025) and [t.step for t in log.udp] == [0.004, 0.0005]
    assert log.full is None and read_probe_log(f"{text}full 4000000000\n").full == 4.0
    for wrong in ("icmp 0 1 2 3 4 5", "udp 0 1 2 3 4", "udp 0 1 2 3 4 x", "udp 0 1 2 3 1 4"):
        with pytest.raises(ValueError):
            read_probe_log(wrong)


def test_an_idle_guest_is_predicted_by_hand() -> None:
    """256 MiB at 1 GB/s are 268 ms; at most 300 ms may be left, so that nothing is sent before the stop."""
    idle = predict(Method.PRECOPY, conditions())
    assert idle.rounds == 0 and idle.downtime.value == pytest.approx(0.2884, abs=1e-4)
    short = predict(Method.PRECOPY, conditions(limit=0.1))
    assert short.rounds == 1 and short.downtime.value == pytest.approx(0.02)
    assert short.total.value == pytest.approx(0.2884, abs=1e-4)
    assert predict(Method.OFFLINE, conditions()).downtime.value == pytest.approx(0.2884, abs=1e-4)
    assert predict(Method.POSTCOPY, conditions()).downtime.value == pytest.approx(0.02)


def test_rounds_of_precopy_by_hand() -> None:
    """1000 MB at 1000 MB/s, dirtied at 500 MB/s: 1, 0.5, 0.25 s, and 0.125 s while it stands still."""
    found = predict(Method.PRECOPY, conditions(1e9, 1e9, 5e8, 1e9, fixed=0.0, limit=0.2))
    assert (found.rounds, found.downtime.value, found.total.value) == (3, 0.125, 1.875)


def test_it_says_where_precopy_stops_converging() -> None:
    """100 MB dirtied without end: 128 MB/s do not suffice for 0.3 s, 334 MB/s do."""
    slow = predict(Method.PRECOPY, conditions(256e6, 100e6, 5e9, 128e6))
    assert not slow.converges and math.isinf(slow.downtime.value) and math.isinf(slow.total.value)
    assert slow.converges_above == pytest.approx(100e6 / 0.3)
    fast = predict(Method.PRECOPY, conditions(256e6, 100e6, 5e9, 334e6))
    assert fast.converges and fast.downtime.value < 0.33
    assert not predict(Method.MULTIFD, conditions(256e6, 100e6, 5e9, 333e6)).converges


def test_pre_copy_of_processes_reads_all_images_back_while_nothing_runs() -> None:
    """4 GB at 1 GB/s, written and read back by `criu` at half of that."""
    known = replace(conditions(4e9, bandwidth=5e8, fixed=0.2), read_speed=Estimate.exactly(1e9))
    whole, rounds = predict(Method.CRIU, known), predict(Method.CRIU_PRECOPY, known)
    assert whole.downtime.value == pytest.approx(0.2 + 8)
    assert rounds.downtime.value == pytest.approx(0.2 + 4) and rounds.downtime.low >= 0.2 + 4
    assert rounds.total.value == pytest.approx(0.2 + 8 + 4)
    assert predict(Method.PRECOPY, known).downtime.value == pytest.approx(0.2), "a guest reads no images"
    assert predict(Method.CRIU_PRECOPY, replace(known, read_speed=None)).downtime.value == pytest.approx(0.2)


def test_reading_takes_its_part_of_the_bound() -> None:
    """Images that are read in 0.1 s leave 0.2 s of 0.3 s for the rest; a quarter is always left."""
    known = conditions(1e9, 1e9, 5e8, 1e9, fixed=0.0, limit=0.3)
    quick = predict(Method.CRIU_PRECOPY, replace(known, read_speed=Estimate.exactly(1e10)))
    assert quick.rounds == 3 and quick.downtime.value == pytest.approx(0.1 + 0.125)
    slow = predict(Method.CRIU_PRECOPY, replace(known, read_speed=Estimate.exactly(1e9)))
    assert slow.rounds == 4 and slow.downtime.value == pytest.approx(1 + 0.0625)


_SIZES = st.floats(1e6, 1e10)


@given(_SIZES, st.floats(0, 1), st.floats(0, 3), st.floats(1e7, 1e10), st.floats(0, 0.3), st.data())
def test_every_point_of_the_conditions_lies_in_the_interval(
    memory: float, hot: float, dirtied: float, bandwidth: float, share: float, data: st.DataObject
) -> None:
    whole = conditions(memory, memory * hot, bandwidth * dirtied, bandwidth, share=share)
    read = within(data.draw(st.floats(1e7, 1e11)), share)
    whole = replace(whole, read_speed=read)

    def point(of: Estimate) -> Estimate:
        return Estimate.exactly(data.draw(st.floats(of.low, of.high)))

    inside = Conditions(
        memory=point(whole.memory),
        working_set=point(whole.working_set),
        dirty_rate=point(whole.dirty_rate),
        bandwidth=point(whole.bandwidth),
        fixed=point(whole.fixed),
        read_speed=point(read),
    )
    assume(inside.working_set.value <= inside.memory.value)
    for method in MOVED:
        wide, one = predict(method, whole), predict(method, inside)
        for around, exact in ((wide.downtime, one.downtime.value), (wide.total, one.total.value)):
            assert around.low <= exact * (1 + 1e-9) and exact <= around.high * (1 + 1e-9), method


@given(_SIZES, st.floats(1e7, 1e10), st.floats(0, 3))
def test_downtime_of_a_converging_move_is_within_its_limit(
    memory: float, bandwidth: float, dirtied: float
) -> None:
    known = conditions(memory, memory, bandwidth * dirtied, bandwidth, fixed=0.0)
    found = predict(Method.PRECOPY, known)
    assert not found.converges or found.downtime.high <= known.downtime_limit * (1 + 1e-9)
    if dirtied < 0.99:
        assert found.converges


def test_impossible_conditions_are_refused() -> None:
    with pytest.raises(ValueError, match="between"):
        Estimate(1.0, 3.0, 2.0)
    with pytest.raises(ValueError, match="negative"):
        conditions(memory=-1.0)
    with pytest.raises(ValueError, match="negative"):
        conditions(bandwidth=0.0)
    with pytest.raises(ValueError, match="negative"):
        conditions(limit=0.0)
    with pytest.raises(ValueError, match="auto"):
        predict(Method.AUTO, conditions())


def candidates(known: Conditions, **refused: str) -> list[Candidate]:
    methods = (Method.OFFLINE, Method.PRECOPY, Method.POSTCOPY)
    return [Candidate(prediction=predict(m, known), refused=refused.get(m.value, "")) for m in methods]


def test_the_shortest_move_within_the_bound_is_chosen() -> None:
    loose = choose(1.0, candidates(conditions()))
    assert loose.holds and loose.method is Method.OFFLINE
    idle = choose(0.1, candidates(conditions(limit=0.05)))
    assert idle.holds and idle.method is Method.PRECOPY
    assert "offline may stand still for 288 ms" in idle.reason
    assert "postcopy loses the instance if the connection breaks" in idle.reason


def test_what_does_not_converge_is_not_chosen() -> None:
    busy = choose(0.1, candidates(conditions(256e6, 100e6, 5e9, 128e6)))
    assert busy.holds and busy.method is Method.POSTCOPY
    assert "precopy may not converge below 333 MB/s" in busy.reason
    without = choose(0.1, candidates(conditions(256e6, 100e6, 5e9, 128e6), postcopy="no userfaultfd"))
    assert not without.holds and without.method is Method.OFFLINE
    assert without.reason.startswith("no method keeps 100 ms; offline comes closest")
    with pytest.raises(ValueError, match="offline: a; precopy: b; postcopy: c"):
        choose(0.1, candidates(conditions(), offline="a", precopy="b", postcopy="c"))
