"""What moves measure beside their rows: the client of a guest, the methods that were chosen, and how long
each rank of a job paused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.environments import Moved
from nearmetal.lifecycle import Phase, PhaseTimes, ProbeLog, ProbeTimes, without_floor
from nearmetal.model.change import replace
from nearmetal.model.record import JsonValue, TrialRecord
from nearmetal.model.study import MoveSubject
from nearmetal.report.page.document import Context, page_html
from nearmetal.report.record_index import RecordIndex
from nearmetal.report.sheet import Grid
from nearmetal.report.tables.events.clients import clients_grids
from nearmetal.report.tables.events.sentences import event_sentences
from nearmetal.report.text import tight
from nearmetal.study_file import load_text
from nearmetal.subjects.events.probing import TCP_EVERY, Intervals, ProbeResults, results_of
from nearmetal.subjects.migrate import FULL, MIGRATE, SeenMove, guest_rows

STUDY = """\
name: jobs
environments:
  box: {backend: namespaces, attachment: veth-bridge}
  guest: {backend: qemu, image: debian-kernel, attachment: veth-bridge}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  rank: {subject: migrate, of: rank, method: criu}
  moved: {subject: migrate, method: precopy}
  chosen: {subject: migrate, method: auto}
  job: {subject: checkpoint, of: job}
design: {baseline: box, mode: plain}
"""
BOX, GUEST = "box/1x1", "guest/1x1"
PERIOD, REST = 0.5e-3, 10e-3


@dataclass(frozen=True, kw_only=True)
class Resting:
    """An instance in which nothing is run."""

    label: str = "nearmetal-x"
    hostname: str = "h"
    pid: int = 1
    phases: Mapping[str, float] = field(default_factory=dict)
    cgroups: Mapping[str, Path] = field(default_factory=dict)
    agent_line: str = ""

    def command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)


def requests(every: float, late: float, *, lost: bool) -> tuple[ProbeTimes, ...]:
    """Ten requests whose answers take 1 ms. Those after the fifth have none, or `late` seconds later."""
    answered = [ProbeTimes(sent=i * every, answers=(i * every + 1e-3,), step=every) for i in range(10)]
    waiting = ProbeTimes(sent=5 * every, answers=(5 * every + late + 1e-3,), step=every)
    return (*answered[:5], replace(waiting, answers=()) if lost else waiting, *answered[6:])


def seen(late: float, tcp_late: float, *, lost: bool = False) -> ProbeResults:
    udp, tcp = requests(REST, late, lost=lost), requests(TCP_EVERY, tcp_late, lost=False)
    # No request is sent before the late answer has arrived.
    udp = (*udp[:6], *(later(t, late) for t in udp[6:]))
    tcp = (*tcp[:6], *(later(t, tcp_late) for t in tcp[6:]))
    return results_of(ProbeLog(udp=udp, tcp=tcp, cpu=0.0, broken=None), Intervals(period=PERIOD, rest=REST))


def later(t: ProbeTimes, seconds: float) -> ProbeTimes:
    return replace(t, sent=t.sent + seconds, answers=tuple(a + seconds for a in t.answers))


def move(event: ProbeResults, floor: ProbeResults) -> SeenMove:
    moved = Moved(
        instance=Resting(),
        phases=PhaseTimes({Phase.COPY: 0.3}),
        total=0.3,
        downtime=0.05,
        stopped=0.06,
        began=0.0,
        ended=0.3,
        sent=1 << 20,
        rounds=2,
    )
    return SeenMove(
        moved=moved, udp=without_floor(event.udp, floor.udp), tcp=without_floor(event.tcp, floor.tcp)
    )


def test_silence_over_tcp_and_delays_are_metrics_without_their_floor() -> None:
    floor = seen(2e-3, 3e-3)
    moves = [move(seen(0.102, 0.303), floor), move(seen(0.002, 0.003), floor), move(seen(0.0, 0.0), floor)]
    w = MoveSubject(name="moved", facts=MIGRATE)
    rows = {r.metric: r.values for r in guest_rows(w, moves, [0.1], floor, {})}
    assert set(rows) == set(MIGRATE.metrics)
    least = REST + PERIOD
    # The standstill began within half a period before or after its centre.
    assert rows["silence"] == pytest.approx((0.1 + REST / 2, least, least))
    assert rows["tcp_silence"] == pytest.approx((0.3 + TCP_EVERY / 2, TCP_EVERY, TCP_EVERY))
    assert rows["delay"] == pytest.approx((0.1, REST, REST))
    assert rows["unanswered"] == pytest.approx((REST,) * 3), "all answers came"


def test_a_client_that_stopped_during_a_move_has_seen_nothing_of_it() -> None:
    """Its silences would seem to be shorter than they were."""
    floor = seen(2e-3, 3e-3)
    cut = replace(move(seen(0.102, 0.303), floor), full=True)
    rows = {
        r.metric: r
        for r in guest_rows(MoveSubject(name="m", facts=MIGRATE), [move(floor, floor), cut], [0.1], floor, {})
    }
    for metric in ("silence", "tcp_silence", "delay", "unanswered"):
        assert rows[metric].values == () and rows[metric].reason == FULL
    assert rows["total"].values == (0.3, 0.3) and rows["stopped"].values == (0.06, 0.06)


def trial(arm: str, block: int, **facts: dict[str, JsonValue]) -> TrialRecord:
    like = sample.records()[0]
    return replace(like, arm=arm, block=block, aa=False, facts=facts, trial=f"{arm}{block}")


def client_facts(*, tcp: bool = True) -> dict[str, JsonValue]:
    floor, event = seen(2e-3, 3e-3), seen(0.1, 0.3)
    moved: dict[str, JsonValue] = {"lost_times_period": 0.02, "gap": event.udp.gap, "tcp_gap": event.tcp.gap}
    moved |= {"longest_delay": event.udp.longest_delay}
    found: dict[str, JsonValue] = {"floor": asdict(floor.udp), "moves": [moved, {"ended": False}]}
    return found | ({"tcp_floor": asdict(floor.tcp)} if tcp else {})


def test_silence_during_a_move_is_shown_beside_that_at_rest() -> None:
    study = load_text(STUDY, "jobs.yaml", None, seed=1)
    (grid,) = clients_grids(study, RecordIndex([trial(GUEST, 0, moved=client_facts())]))
    assert isinstance(grid, Grid)
    (row,) = grid.rows
    assert row[1:] == (
        *("10 ms", "20 ms (0 s)", "110 ms (12 ms)", "320 ms (23 ms)", "101 ms (3.0 ms)"),
        "1",
    )
    (old,) = clients_grids(study, RecordIndex([trial(GUEST, 0, moved=client_facts(tcp=False))]))
    assert [row[4] for row in old.rows] == ["320 ms"], "an older record has no floor for TCP"


def test_how_long_each_rank_paused_is_said_if_it_is_recorded() -> None:
    study = load_text(STUDY, "jobs.yaml", None, seed=1)
    records = [
        trial(
            BOX,
            block,
            rank={"moves": [{"pauses": [0.64, 0.66, own]}]},
            job={"events": [{"pauses": [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.75]}]},
        )
        for block, own in enumerate((0.6, 0.7))
    ]
    said = event_sentences(study, RecordIndex(records))
    assert said == (
        "box, rank: rank 2 was moved and paused for 650 ms, and rank 0 waited for it for 640 ms and rank 1 "
        "for 660 ms (medians of 2 events).",
        "box, job: ranks 0 to 6 paused for 500 ms to 750 ms (medians of 2 events).",
    )
    alike = trial(BOX, 0, rank={"moves": [{"pauses": [1.481, 1.479, 1.5]}]})
    assert event_sentences(study, RecordIndex([alike])) == (
        "box, rank: rank 2 was moved and paused for 1.50 s, and ranks 0 and 1 waited for it for 1.48 s.",
    )
    guests = trial(BOX, 0, job={"events": [[{"stopped": 0.2}, {"stopped": 0.25}]]})
    assert event_sentences(study, RecordIndex([guests])) == (
        "box, job: rank 0 paused for 200 ms and rank 1 for 250 ms.",
    )
    context = Context(records=RecordIndex(records), provenance={}, differences=(), commands=())
    assert tight(said[1]) in page_html(study, sample.analysis(), context)
    older = trial(BOX, 0, rank={"moves": [{"phases": {}}]}, job={"events": [{"phases": {}}]})
    assert event_sentences(study, RecordIndex([older])) == ()


def test_what_auto_chose_is_said_with_how_well_it_predicted_and_why() -> None:
    study = load_text(STUDY, "jobs.yaml", None, seed=1)

    def move(chosen: str, measured: float, high: float | None = 0.25) -> JsonValue:
        stopped: JsonValue = {"predicted": [0.05, 0.1, high], "measured": measured}
        reason = f"{chosen} keeps 300 ms with a downtime of 50 ms to 250 ms"
        return {"method": chosen, "chosen": chosen, "reason": reason, "stopped": stopped}

    moves = [move("precopy", 0.2), move("precopy", 0.3), move("postcopy", 0.9, None)]
    assert event_sentences(study, RecordIndex([trial(GUEST, 0, chosen={"moves": moves})])) == (
        "guest, chosen: auto chose precopy in 2 of 3 moves and postcopy in 1; the standstill was as "
        "predicted in 2 of 3; the last time, postcopy keeps 300 ms with a downtime of 50 ms to 250 ms.",
    )
    once = trial(GUEST, 0, chosen={"moves": [move("offline", 0.04)]})
    assert event_sentences(study, RecordIndex([once])) == (
        "guest, chosen: auto chose offline; the standstill was as predicted in 0 of 1; "
        "offline keeps 300 ms with a downtime of 50 ms to 250 ms.",
    )
    stuck = trial(GUEST, 0, chosen={"moves": [{"method": "precopy", "ended": False}]})
    assert event_sentences(study, RecordIndex([stuck])) == ()
