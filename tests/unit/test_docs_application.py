"""The application of examples/words is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearmetal.workloads.applications.contract import Application, Output, Place
from nearmetal.workloads.parameter import Choices

MODULE = Path(__file__).parents[2] / "examples" / "words" / "words.py"


def test_the_example_counts_and_verifies() -> None:
    space: dict[str, Any] = {}
    exec(compile(MODULE.read_text(), str(MODULE), "exec"), space)  # our own example
    words: Application = space["Words"]()
    here = Path("/")
    place = Place(nodes=1, instances=1, tasks=1, directory=here, storage=None, memory=1 << 30)
    choices = Choices(values={p.name: p.default for p in words.parameters})
    assert words.problem(choices, place) is None and words.prepare(choices, place) == ()
    assert len(words.command(choices, place).files["text"].split()) == 1000
    found = words.parse(choices, place, Output(stdout="1000 text\n"))
    assert found.ok and [m.value for m in found.metrics] == [1000]
    assert [(m.name, m.unit, m.better) for m in found.metrics] == list(words.metrics(choices))
    wrong = words.parse(choices, place, Output(stdout="wc: text: no such file"))
    assert wrong.ok is False and wrong.metrics[0].reason
