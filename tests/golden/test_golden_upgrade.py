"""The bytes of the answer of nearmetal compare, in a terminal and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from nearmetal.analysis.two_level import LeastBoots, StateCell, StateQuantity
from nearmetal.model.change import replace
from nearmetal.model.result import Verdict
from nearmetal.model.study import Better
from nearmetal.report.forms.upgrade import upgrade_text
from nearmetal.report.page.upgrade import upgrade_page
from nearmetal.report.tables.upgrade import SystemChange, Upgrade, upgrade_json

Golden = Callable[[str, str], None]
#: Workload, metric, unit, values of bare metal before and after, and the overheads before and after.
METRICS = (
    ("cg", "rate", "op/s", 6.61e9, 6.60e9, 0.011, 0.064),
    ("ep", "rate", "op/s", 183e6, 182.8e6, 0.002, 0.003),
    ("pingpong", "latency", "s", 1.02e-7, 1.03e-7, 4.9, 5.4),
    ("pingpong", "bandwidth", "B/s", 11.3e9, 11.2e9, 2.40, 2.42),
    ("stream-large", "triad", "B/s", 74.9e9, 71.6e9, 0.001, 0.002),
    ("start", "start", "s", 5.1e-4, 5.0e-4, 3.4, 3.5),
)
BOOTS = (8, 8)


def cell(
    arm: str, metric: tuple[str, str, str, float, float, float, float], *, cost: bool, half: float
) -> StateCell:
    workload, name, unit, before, after, old, new = metric
    better = Better.LOWER if unit == "s" else Better.HIGHER
    ratio = (1 + new) / (1 + old) if cost else after / before if unit == "s" else before / after
    low, high = ratio / (1 + half) - 1, ratio * (1 + half) - 1
    verdict = (
        Verdict.SLOWER if low > 0.03 else Verdict.EQUIVALENT if low > -0.029 and high < 0.03 else Verdict.NONE
    )
    return StateCell(
        arm=arm,
        other=arm,
        baseline="native/one" if cost else "",
        quantity=StateQuantity.COST if cost else StateQuantity.VALUE,
        workload=workload,
        metric=name,
        unit=unit,
        better=better,
        boots=BOOTS,
        before=old if cost else before,
        after=new if cost else after,
        overhead=round(ratio - 1, 6),
        low=round(low, 6),
        high=round(high, 6),
        margin=0.03,
        confidence=0.95,
        family=18,
        deciding=True,
        verdict=verdict,
        alone=verdict,
        reason="8 against 8 boots",
    )


def upgrade() -> Upgrade:
    """An upgrade that made bare metal's triad and two costs slower."""
    cells = [cell("native/one", m, cost=False, half=0.009) for m in METRICS]
    for arm, half in (("container/one", 0.008), ("container/two", 0.035)):
        cells += [cell(arm, m, cost=True, half=half) for m in METRICS]
    return Upgrade(
        cells=tuple(cells),
        boots=BOOTS,
        runs=(8, 9),
        shared_boots=0,
        least=LeastBoots(any_verdict=4, material=6),
        margin=0.03,
        margin_exploratory=False,
        confidence=0.95,
        primary=False,
        machine="AMD EPYC, 2 cores, 24 GiB",
        changes=(
            SystemChange(name="kernel", before=("6.1.0-18-amd64",), after=("6.12.5-amd64",), upgrade=True),
            SystemChange(name="kernels of nearmetal", before=("a" * 64,), after=("b" * 64,), upgrade=False),
        ),
        not_compared=("ft: only in the runs after the upgrade",),
        lost=(),
        failed_trials=2,
    )


def single_boots() -> Upgrade:
    """The same with one boot on each side, and a margin that was given after the data."""
    u = upgrade()
    cells = tuple(
        replace(
            c,
            boots=(1, 1),
            low=-1.0,
            high=math.inf,
            verdict=Verdict.NONE,
            alone=Verdict.NONE,
            reason="1 against 1 boot: no verdict, which needs at least 4 on each side",
        )
        for c in u.cells
    )
    return replace(u, cells=cells, boots=(1, 1), runs=(1, 1), margin_exploratory=True, changes=())


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(("name", "made"), [("hurt", upgrade), ("single", single_boots)])
def test_terminal(golden: Golden, name: str, made: Callable[[], Upgrade], width: int) -> None:
    text = upgrade_text(made(), page="compare.html", width=width).plain
    lines = text.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= min(width, 100)
    golden(f"upgrade-{name}-{width}.txt", text)


def test_terminal_with_everything(golden: Golden) -> None:
    golden("upgrade-all.txt", upgrade_text(upgrade(), page=None, width=100, everything=True).plain)


def test_no_table_is_shown_without_intervals() -> None:
    whole, single = upgrade(), single_boots()
    assert "<table" in upgrade_page(whole) and "<table" not in upgrade_page(single)
    few = replace(whole, cells=(*whole.cells[3:6], *single.cells[6:8]))
    said = "2 comparisons (1 against 1 boot: no verdict, which needs at least 4 on each side)"
    for text in (upgrade_text(few, page=None, width=200).plain, upgrade_page(few)):
        assert said in " ".join(text.replace("\u00a0", " ").split())


def test_json(golden: Golden) -> None:
    whole = upgrade()
    few = replace(whole, cells=(*whole.cells[3:6], single_boots().cells[6]))
    form = upgrade_json(few, page="compare.html")
    golden("upgrade.json", json.dumps(form, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
