"""nearmetal compare, of results directories with planted values: runs of one boot are one replicate, what is
not alike is named, and arms are compared with others."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nearmetal.api.comparing import compare
from nearmetal.api.comparing_series import compare_series
from nearmetal.cli.commands import COMMANDS
from nearmetal.cli.common import FailOn
from nearmetal.cli.read import comparing
from nearmetal.errors import UsageError
from nearmetal.model.change import replace
from nearmetal.model.series import Part, Series
from nearmetal.model.study import Better
from nearmetal.plan import make_plan
from nearmetal.records import ResultsDirectory, SeriesDirectory
from nearmetal.report.tables.upgrade import Upgrade, UpgradeAnswer, sentence
from nearmetal.study_file import load_text
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

STUDY = """\
name: upgrade
environments:
  native: {backend: native}
  box: {backend: namespaces}
placements:
  one: {instances: 1, tasks: 1}
workloads:
  cg: {kernel: cg, class: S}
  ep: {kernel: ep, class: S}
design:
  baseline: native
  margin: 3 %
  seed: 7
"""
METRICS = [
    SimulatedMetric(workload=w, metric="rate", unit="op/s", better=Better.HIGHER, value=4e9)
    for w in ("cg", "ep")
]
BLOCKS = 3
Make = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Write a results directory; runs of one boot differ in all but their boot.

    boot: None if it is not recorded.
    native, cost: planted change of bare metal in all, and overhead of the other arm in cg, as shares.
    """
    count = 0

    def make(
        side: str,
        boot: str | None,
        *,
        native: float = 0.0,
        cost: float = 0.0,
        study: str = STUDY,
        **provenance: Any,
    ) -> Path:
        nonlocal count
        count += 1
        frozen = load_text(study, "study.yaml", None, seed=count)
        level = native + random.Random(count).gauss(0.0, 0.004)
        records = simulate(
            frozen,
            make_plan(frozen, blocks=BLOCKS),
            metrics=METRICS,
            overheads={
                "native/one": math.expm1(level),
                "box/one": {"cg.rate": math.exp(level) * (1 + cost) - 1, "ep.rate": math.expm1(level)},
            },
            spread=Spread(instance=0.001, run=0.001),
            run=f"run-{count}",
        )
        directory = ResultsDirectory.create(tmp_path / side, f"{count}", study_yaml=study)
        known = {"boot": boot} if boot else {"boot": {"unavailable": "no"}}
        directory.freeze(seed=count, arms=[a.name for a in frozen.arms()], provenance={**known, **provenance})
        with directory.writer() as writer:
            for record in records:
                writer.append(record)
        return directory.path

    return make


@pytest.fixture
def eight(made: Make) -> Callable[..., tuple[Path, Path]]:
    """Eight boots on each side; after the upgrade with planted values."""

    def make(**planted: float) -> tuple[Path, Path]:
        before = [made("before", f"old {i}", kernel={"release": "6.1"}) for i in range(8)]
        after = [made("after", f"new {i}", kernel={"release": "6.18"}, **planted) for i in range(8)]
        return before[0].parent, after[0].parent

    return make


def compared(before: Sequence[Path], after: Sequence[Path], **options: Any) -> Upgrade:
    return compare(before, after, **options)


def test_a_cost_of_five_percent_more_is_found(eight: Callable[..., tuple[Path, Path]]) -> None:
    before, after = eight(cost=0.08)
    u = compared([before], [after])
    assert u.boots == (8, 8) and u.answer is UpgradeAnswer.YES
    assert sentence(u).startswith("Yes, it hurt. Slower than before: cost of box/one: CG.rate +8")
    assert "native" not in sentence(u) and "EP" not in sentence(u)
    assert [(c.name, c.before, c.after, c.upgrade) for c in u.changes] == [
        ("kernel", ("6.1",), ("6.18",), True)
    ]


def test_bare_metal_itself_is_compared_too(eight: Callable[..., tuple[Path, Path]]) -> None:
    before, after = eight(native=0.1)
    u = compared([before], [after])
    assert sentence(u).startswith("Yes, it hurt. Slower than before: native/one: ")
    assert "box" not in sentence(u)


def test_without_a_change_all_is_within_the_margin(
    eight: Callable[..., tuple[Path, Path]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before, after = eight()
    assert run(before, after, fail_on=FailOn.MATERIAL, html=tmp_path / "page.html") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "No: all 4 comparisons within 3 % of before."
    assert len(lines) <= 30 and max(map(len, lines)) <= 100
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 4 and "No: all 4" in page and len(page) < 100_000


def run(before: Path, after: Path, **options: Any) -> int:
    """Call the command with its defaults."""
    said: dict[str, Any] = {
        "margin": None,
        "fail_on": FailOn.NOTHING,
        "against": [],
        "html": None,
        "everything": False,
        "json": False,
        "unnamed": [],
    }
    return comparing.compare([before], [after], **{**said, **options})


def test_exit_codes_and_json(
    eight: Callable[..., tuple[Path, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = eight(cost=0.08)
    assert run(before, after, fail_on=FailOn.MATERIAL, json=True) == 1
    form = json.loads(capsys.readouterr().out)
    assert form["answer"] == "yes" and form["least_boots"] == {"any_verdict": 4, "material": 5}
    assert {c["quantity"] for c in form["cells"]} == {"value", "cost"} and not form["margin_exploratory"]
    assert run(before, after) == 0
    assert run(after, before, fail_on=FailOn.MATERIAL) == 0  # the other way round it helped
    assert "faster" in capsys.readouterr().out.lower()


def test_one_boot_each_is_no_verdict(made: Make, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = made("a", "old"), made("b", "new", cost=0.5)
    u = compared([before], [after])
    assert sentence(u) == (
        "No verdict possible: one boot on each side. A verdict needs at least 4 boots on each side; to prove "
        "a slowdown in one of 4 comparisons, 5."
    )
    assert run(before, after, fail_on=FailOn.MATERIAL) == 0
    assert run(before, after, fail_on=FailOn.UNDECIDED) == 1
    assert "∞" not in capsys.readouterr().out


def test_boots_are_counted_by_what_the_kernel_drew(made: Make) -> None:
    before = [made("a", boot) for boot in ("1", "2", "2")]
    after = [made("b", boot) for boot in ("3", "4")]
    u = compared(before, after)
    assert (u.boots, u.runs) == ((2, 2), (3, 2)) and {c.boots for c in u.cells} == {(2, 2)}
    assert "2 boots before and 2 after" in sentence(u)
    # Older directories do not tell theirs: each is taken for one.
    assert compared([made("c", None), made("c", None)], after).boots == (2, 2)


def test_boot_on_both_sides_gives_no_verdict(made: Make) -> None:
    u = compared([made("a", "1")], [made("b", "1")])
    assert u.answer is UpgradeAnswer.IMPOSSIBLE and "both sides are of one boot" in sentence(u)
    u = compared([made("a", str(i)) for i in range(5)], [made("b", str(i + 4)) for i in range(5)])
    assert u.answer is UpgradeAnswer.IMPOSSIBLE and "a boot is on both sides" in sentence(u)


def test_the_same_run_twice_is_refused(made: Make, tmp_path: Path) -> None:
    one, other = made("a", "1"), made("b", "2")
    with pytest.raises(UsageError, match="is given on both sides: a results directory does not differ"):
        compared([one], [one.parent])
    with pytest.raises(UsageError, match="is given twice"):
        compared([one, one], [other])
    shutil.copytree(one, tmp_path / "copy")
    with pytest.raises(UsageError, match="are copies of one run"):
        compared([one], [tmp_path / "copy"])


def test_differences_between_the_sides_are_named(made: Make) -> None:
    one = {"cpu": {"model": "A"}, "versions": {"nearmetal": "1"}, "tools": {"digest": "a" * 64}}
    two = {"cpu": {"model": "B"}, "versions": {"nearmetal": "2"}, "tools": {"digest": "b" * 64}}
    changed = STUDY.replace("cg, class: S", "cg, class: W").replace("name: upgrade", "name: other")
    more = "  more: {backend: namespaces, attachment: none}\nplacements:"
    u = compared([made("a", "1", **one)], [made("b", "2", study=changed.replace("placements:", more), **two)])
    assert {c.name for c in u.changes} == {"machine", "nearmetal", "kernels of nearmetal", "study"}
    assert not any(c.upgrade for c in u.changes)
    assert u.not_compared == (
        "cg: the studies define it differently",
        "more/one: only in the runs after the upgrade",
    )
    assert {c.workload for c in u.cells} == {"ep"}
    assert "The sides differ in more than the upgrade: study, machine, nearmetal" in sentence(u)


def test_failure_after_the_upgrade_leaves_the_answer_open(made: Make) -> None:
    """The other arm cannot start any more, or its cg fails in every round."""
    before = [made("a", f"old {i}") for i in range(8)]
    alone = STUDY.replace(
        "  box: {backend: namespaces}\n", "  dot: {backend: namespaces, attachment: none}\n"
    )
    after = [made("b", f"new {i}", study=alone) for i in range(8)]
    u = compared(before, after)
    assert u.answer is UpgradeAnswer.OPEN and u.lost == ("box/one",)
    assert "Measured before, but not after: box/one." in sentence(u)
    failing = [made("c", f"new {i}") for i in range(8)]
    for path in failing:
        file = next((path / "trials").iterdir())
        trials = [json.loads(line) for line in file.read_text().splitlines()]
        for trial in trials:
            if trial["arm"] == "box/one":
                trial["rows"] = [row for row in trial["rows"] if row["workload"] != "cg"]
        file.write_text("".join(json.dumps(trial) + "\n" for trial in trials))
    u = compared(before, failing)
    assert u.answer is UpgradeAnswer.OPEN and u.lost == ("cg of box/one",)


def test_a_margin_after_the_data_is_exploratory(made: Make) -> None:
    sides = [made("a", "1")], [made("b", "2")]
    assert not compared(*sides).margin_exploratory and not compared(*sides, margin=0.03).margin_exploratory
    u = compared(*sides, margin=0.01)
    assert u.margin_exploratory and {c.margin for c in u.cells} == {0.01}
    other = [made("c", "3", study=STUDY.replace("3 %", "5 %"))]
    with pytest.raises(UsageError, match="the runs have different margins: 3 %, 5 %"):
        compared(sides[0], other)
    assert compared(sides[0], other, margin=0.05).margin_exploratory


def test_only_primary_metrics_decide(made: Make) -> None:
    study = STUDY + "  primary: [ep.rate]\n"
    u = compared([made("a", "1", study=study)], [made("b", "2", study=study)])
    assert u.primary and {c.workload for c in u.deciding} == {"ep"} and len(u.cells) == 4


def test_arms_are_compared_with_others(made: Make) -> None:
    sides = [made("a", "1"), made("a", "2")], [made("b", "3"), made("b", "4")]
    u = compared(*sides, against=[("native", "box")])
    assert {(c.arm, c.other, c.baseline) for c in u.cells} == {("native/one", "box/one", "")}
    with pytest.raises(UsageError, match="no environment and metric in common"):
        compared(*sides, against=[("native", "nothing")])


@pytest.mark.parametrize("wrong", ["native", "=a", "a=", "a=b=c"])
def test_pairs_have_two_names(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not BEFORE=AFTER"):
        run(tmp_path, tmp_path, against=[wrong])


def test_a_call_without_names_says_the_line_to_type() -> None:
    call: Callable[..., int] = comparing.compare
    with pytest.raises(UsageError) as found:
        call([], [], unnamed=[Path("a b"), Path("c")])
    assert found.value.remedy == "nearmetal compare --before 'a b' --after c"


def test_an_option_takes_several_values() -> None:
    command = next(c for c in COMMANDS if c.name == "compare")
    words = ["compare", "--before", "a", "b", "--margin", "3%", "--after", "c", "d", "--json"]
    assert command.spread(words) == [
        *("compare", "--before", "a", "--before", "b", "--margin", "3%"),
        *("--after", "c", "--after", "d", "--json"),
    ]
    assert COMMANDS[0].spread(["quick", "--before", "a", "b"]) == ["quick", "--before", "a", "b"]


def a_series(
    parent: Path, made: Make, side: str, boot: str, *, second: str = "second", **planted: Any
) -> Path:
    """A series of two parts, the second without results."""
    study = load_text(STUDY, "study.yaml", None, seed=1)
    parts = tuple(
        Part(key=key, title=key.title(), share=0.5, study=replace(study, name=name), places={})
        for key, name in (("first", "upgrade"), (second, "never-run"))
    )
    asked = Series(name="two", title="Two", scale=None, paper="", seed=1, max_time=60.0, parts=parts)
    directory = SeriesDirectory.create(
        parent / side, asked, {p.key: STUDY.replace("upgrade", p.study.name) for p in parts if p.study}
    )
    run = made(side, boot, **planted)
    run.rename(directory.path / "upgrade-2026-01-01T00-00-00Z")
    return directory.path


def test_two_series_are_compared_part_by_part(
    made: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(8):
        a_series(tmp_path, made, "old", f"old {i}")
        a_series(tmp_path, made, "new", f"new {i}", cost=0.08)
    old, new = tmp_path / "old", tmp_path / "new"
    first, second = compare_series([old], [new])
    assert first.upgrade is not None and first.upgrade.boots == (8, 8)
    assert first.upgrade.answer is UpgradeAnswer.YES
    assert second.upgrade is None and second.why == "not measured before"
    assert run(old, new, fail_on=FailOn.MATERIAL, json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert [p["part"] for p in told["parts"]] == ["first", "second"]
    assert told["parts"][1]["result"] is None
    lost = replace(second, why="not measured after", lost=True)
    for pair, code in (((first, second), 0), ((first, lost), 1)):
        shown = comparing._show_parts(pair, json=True, everything=False, fail_on=FailOn.UNDECIDED)
        assert shown == code and capsys.readouterr().out
    assert run(old, new) == 0
    text = capsys.readouterr().out
    assert "first: First" in text and "not compared: not measured before" in text
    with pytest.raises(UsageError, match="a page shows one part"):
        run(old, new, html=tmp_path / "x.html")
    single = next(old.glob("*/upgrade-*"))
    a_series(tmp_path, made, "newest", "newest", second="third")
    parts = compare_series([old], [tmp_path / "newest"])
    assert [p.key for p in parts] == ["first", "second", "third"], "also one that only the later study has"
    records = next(single.glob("trials/*.jsonl"))
    records.write_bytes(records.read_bytes().replace(b'"rows":[', b'"rows":[7,', 1))
    with pytest.raises(UsageError, match=r"first: .*second: not measured before"):
        compare_series([old], [new])
    with pytest.raises(UsageError, match="is not the results directory of a study in parts"):
        compare_series([old], [single])
    assert compare_series([single], [single]) == ()
