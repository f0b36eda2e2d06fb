"""Every printed overhead of the published tables follows from its printed figures within rounding, but for
those listed here by name."""

import itertools
import tomllib
from pathlib import Path
from typing import Any

from nearmetal.model.published import Published, Quantity
from nearmetal.model.study import Better
from nearmetal.published import PHASES, published

TABLES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "published_tables.toml").read_text())
HALF_A_DIGIT = 0.0005
#: (table, row, hypervisor): printed %, and what the printed figures give.
DO_NOT_FOLLOW = {
    ("two 1-CPU VMs per node", "G-PTRANS", "kvm"): (44.968, 48.443),
    ("two 1-CPU VMs per node", "RandomRing latency", "xen"): (67.259, 68.258),
}


def published_overhead(base: float, env: float, better: Better) -> float:
    """Return the overhead by the formula of the 2009 KVM paper, as a share of the baseline."""
    return (env - base if better is Better.LOWER else base - env) / base


def band(physical: float, virtual: float, better: Better) -> tuple[float, float]:
    """The least and the greatest overhead, in percent, that figures printed to three decimals allow."""
    corners = [
        100 * published_overhead(p, v, better)
        for p, v in itertools.product(
            (physical - HALF_A_DIGIT, physical + HALF_A_DIGIT),
            (virtual - HALF_A_DIGIT, virtual + HALF_A_DIGIT),
        )
    ]
    return min(corners) - HALF_A_DIGIT, max(corners) + HALF_A_DIGIT


def printed_overheads() -> list[tuple[tuple[str, str, str], float, float, float, Better]]:
    out = []
    for table in TABLES["overhead"]:
        for key, better in (("higher", Better.HIGHER), ("lower", Better.LOWER)):
            for row, physical, xen, xen_percent, kvm, kvm_percent in table[key]:
                out.append(((table["table"], row, "xen"), physical, xen, xen_percent, better))
                out.append(((table["table"], row, "kvm"), physical, kvm, kvm_percent, better))
    return out


def test_every_printed_overhead_follows_but_for_the_listed() -> None:
    wrong = {}
    cells = printed_overheads()
    for name, physical, virtual, percent, better in cells:
        low, high = band(physical, virtual, better)
        if not low <= percent <= high:
            wrong[name] = (percent, round(100 * published_overhead(physical, virtual, better), 3))
    assert len(cells) == 50
    assert wrong == DO_NOT_FOLLOW


def test_the_bands_are_narrow_enough_to_mean_something() -> None:
    """Half of the rows are printed with enough digits to pin the overhead to a tenth of a percentage
    point."""
    widths = sorted(b - a for _, p, v, _, better in printed_overheads() for a, b in [band(p, v, better)])
    assert widths[len(widths) // 2] < 0.15


def paper_of_2015() -> Published:
    found = published("containers-2015")
    assert found is not None
    return found


def table_1() -> dict[tuple[str, str, str], tuple[float, float]]:
    """(place, kernel and class, phase) -> share printed, seconds printed."""
    out: dict[tuple[str, str, str], dict[Quantity, float]] = {}
    for f in paper_of_2015().figures:
        if f.source == "Table 1":
            out.setdefault((f.arm, f"{f.workloads[0]}-{f.size}", f.phase), {})[f.quantity] = f.low
    return {key: (both[Quantity.TIME_SHARE], both[Quantity.TIME]) for key, both in out.items()}


def test_shares_of_time_follow_from_the_times() -> None:
    """Rounded to whole percent; one of 54 was cut instead of rounded."""
    table, wrong = table_1(), {}
    for (place, kernel, phase), (share, seconds) in table.items():
        whole = sum(table[place, kernel, p][1] for p in PHASES)
        if abs(100 * seconds / whole - 100 * share) > 0.5:
            wrong[place, kernel, phase] = (round(100 * share), round(100 * seconds / whole, 2))
    assert len(table) == 54
    assert wrong == {("shared memory", "lu-B", "computation"): (81, 81.56)}


def test_the_stated_largest_overhead_does_not_follow_from_the_table() -> None:
    """The 2015 paper states 13.04 % for MG-C in containers against shared memory; its Table 1 gives
    containers the shorter total, and no ratio of any two of its times comes to 13.04 %."""
    table = table_1()
    places = {
        place: [table[place, "mg-C", p][1] for p in PHASES]
        for place in ("multinode", "container", "shared memory")
    }
    totals = {place: sum(times) for place, times in places.items()}
    stated = next(
        f for f in paper_of_2015().figures if f.arm == "container" and f.size == "C" and not f.phase
    )
    assert "does not follow" in stated.differs
    assert totals["container"] < totals["shared memory"]
    ratios = [
        published_overhead(a, b, Better.LOWER)
        for i in range(3)
        for a, b in itertools.permutations([rows[i] for rows in places.values()], 2)
    ] + [published_overhead(a, b, Better.LOWER) for a, b in itertools.permutations(totals.values(), 2)]
    assert all(abs(r - stated.low) > 0.001 for r in ratios)
