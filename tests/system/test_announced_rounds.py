"""The number of rounds and the time left that a run announces are those that it then has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from tests.patience import one_fits

from nearmetal import api
from nearmetal.node.progress import BlockDone

pytestmark = pytest.mark.more

LIMIT = 12.0
FACTOR = 1.3
"""Beyond this an announcement is wrong. It lies between the 20 % that is promised and 1.5: the machine may be
busy."""
ATTEMPTS = 10
STUDY = f"""\
name: announced
environments:
  native: {{backend: native}}
  second: {{backend: native}}
placements: {{one: {{instances: 1, tasks: 1}}}}
workloads: {{nap: {{command: [sleep, '0.05']}}}}
design: {{baseline: native, mode: plain, warm_up: 0, max_time: {LIMIT:g} s, target_width: 0.001 %}}
"""
"""No interval becomes so narrow that it ends the run."""


@dataclass
class Announcements:
    """Progress of a run that keeps what it is told."""

    notes: list[str] = field(default_factory=list)
    blocks: list[BlockDone] = field(default_factory=list)

    def phase(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def block(self, done: BlockDone) -> None:
        self.blocks.append(done)


def announced(tmp_path: Path) -> dict[str, float]:
    """Run the study. Returns by how much each announcement differs from what happened, as a factor."""
    (tmp_path / "s.yaml").write_text(STUDY)
    told = Announcements()
    found = api.run(tmp_path / "s.yaml", seed=1, results=tmp_path / "results", progress=told)
    rounds = found.analysis.blocks
    (more,) = [int(n) for text in told.notes for n in re.findall(r"^about (\d+) more rounds? of ", text)]
    factors = {"rounds announced": (1 + more) / rounds}
    for share in (1 / 3, 2 / 3):
        done = min(told.blocks, key=lambda block: abs(block.elapsed - share * LIMIT))
        assert done.left is not None and done.rounds is not None
        factors[f"rounds at {share:.2f}"] = (done.rounds - done.number) / (rounds - done.number)
        factors[f"time left at {share:.2f}"] = done.left / (LIMIT - done.elapsed)
    return factors


def test_a_run_has_the_rounds_and_the_time_that_it_announces(tmp_path: Path) -> None:
    """A busy machine may spoil some runs, so one of several has to be right."""
    directories = (made(tmp_path / str(attempt)) for attempt in count())
    one_fits(
        lambda: announced(next(directories)),
        lambda factors: all(1 / FACTOR < factor < FACTOR for factor in factors.values()),
        ATTEMPTS,
    )


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory
