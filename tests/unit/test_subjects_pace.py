"""How far a program in a moved instance is behind its own pace."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from nearmetal.model.record import Status
from nearmetal.model.study import MoveSubject
from nearmetal.subjects.events.pace import LEAST_BEHIND, WorkDone, behind, marked, pace, written_pages
from nearmetal.subjects.events.rows import slowdown_rows
from nearmetal.subjects.migrate import MIGRATE

EVENT = MoveSubject(name="w", facts=MIGRATE)


def test_a_standstill_and_a_slower_time_are_seconds_behind() -> None:
    usual = pace(WorkDone(at=10.0, work=0), WorkDone(at=12.0, work=2000))
    assert usual == 1000
    # Within 3 s it stood still for half a second and had half its pace for another.
    assert behind(usual, WorkDone(at=20.0, work=5000), WorkDone(at=23.0, work=7000)) == pytest.approx(1.0)
    assert behind(usual, WorkDone(at=20.0, work=5000), WorkDone(at=23.0, work=8000)) == pytest.approx(0.0)


def test_the_pace_of_a_program_that_hardly_works_is_not_known() -> None:
    usual = pace(WorkDone(at=0.0, work=0), WorkDone(at=1.0, work=1))
    assert usual is None and behind(usual, WorkDone(at=1.0, work=1), WorkDone(at=9.0, work=2)) is None
    assert slowdown_rows(EVENT, [None, None]) == []


def test_rows_of_the_slowdown() -> None:
    (row,) = slowdown_rows(EVENT, [0.5, None, 0.25])
    assert (row.metric, row.unit, row.values) == ("slowdown", "s", (0.5, 0.25))
    (row,) = slowdown_rows(EVENT, [-0.01, 0.02])
    assert row.status is Status.OK and row.values == (LEAST_BEHIND, LEAST_BEHIND), (
        "no ratio can be made of zero"
    )


def test_a_mark_waits_for_lines_that_are_new(tmp_path: Path) -> None:
    output = tmp_path / "dirty.txt"
    output.write_text('{"dirtying": 1}\n{"written": 10}\n')

    def write() -> None:
        for number in range(20, 110, 10):
            time.sleep(0.02)
            with output.open("a") as file:
                file.write(f'{{"written": {number}}}\n')

    thread = threading.Thread(target=write)
    begin = time.monotonic()
    thread.start()
    mark = marked(output)
    thread.join()
    assert mark.work >= 90 and mark.at - begin >= 0.15
    output.write_text('{"written": 50}\n{"written": 6')
    assert written_pages(output) == 50, "half a line is none yet"
