"""Tables of the counters of instances over timed runs of programs, and of the values that a paper printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...analysis.instances import CPU, MEMORY, RATES, InstanceFigures, instance_figures
from ...model.papers.published import PublishedFigure, Quantity
from ...model.record import JsonValue
from ...model.study import Study
from ...records.json_files import to_json
from ...units import show
from ..record_index import RecordIndex
from ..sheet import Block, Grid, Words
from ..text import one_line, plural
from .cells import side

NOT_REPORTED = "not reported"
_BYTES = frozenset(("blocks received", "blocks sent"))


def instances_of(study: Study, records: RecordIndex) -> tuple[InstanceFigures, ...]:
    """Return the figures of every arm and workload that has counters, in the order of the study."""
    found = (
        instance_figures(arm, w.name, records.trials(arm.name))
        for w in study.workloads
        for arm in study.arms()
    )
    return tuple(f for f in found if f is not None)


def value_of(f: InstanceFigures, key: str) -> float | None:
    """Return the value of the counter that a printed figure names, in base units; None if it was not read, or
    if there is no such counter.

    key: 'node.user', 'instance 1.steal', 'memory.swap', ...
    """
    group, _, name = key.partition(".")
    number = group.removeprefix("instance ")
    if number != group:
        place = int(number) if number.isdecimal() else 0
        return f.instances[place - 1].get(name) if 1 <= place <= len(f.instances) else None
    groups = {"node": f.node, "memory": f.memory, "rates": f.rates, "mean_rates": f.mean_rates}
    return groups.get(group, {}).get(name)


def shown(value: float | None, unit: str) -> str:
    """Format a value with its unit. Shares are formatted in percent, and counts without a unit."""
    if value is None:
        return NOT_REPORTED
    if unit == "share":
        return f"{100 * value:.3g} %"
    return show(value, unit) if unit else f"{value:,.6g}"


def instances_blocks(study: Study, figures: Sequence[InstanceFigures]) -> list[Block]:
    """Return the tables of CPU time, memory, rates, and of CPU time counted by guests and by the host."""
    if not figures:
        return []
    several = len({f.workload for f in figures}) > 1

    def row(f: InstanceFigures, what: str = "") -> str:
        load = f"{one_line(f.workload)}, " if several else ""
        return f"{load}{side(study, f.arm).title}{f', {what}' if what else ''}"

    trials = sum(f.trials for f in figures)
    out: list[Block] = [
        Words(
            text=f"Medians over {plural(trials, 'trial')} of what was counted once a second over the timed "
            f"runs. {_meaning(figures)}",
            quiet=True,
        )
    ]

    def table(title: str, heads: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
        if found := tuple(rows):
            out.append(Grid(title=title, heads=("environment", *heads), rows=found, numbers=True))

    cpu = (
        (row(f, what), *(_share(shares, name) for name in CPU))
        for f in figures
        for what, shares in _cpu_rows(f)
    )
    table("CPU time of the instances", CPU, cpu)
    memory = (
        (row(f), *(shown(f.memory.get(n), "B" if n == "committed" else "share") for n in MEMORY))
        for f in figures
        if f.memory
    )
    table("Memory of an instance, as shares of what is committed", MEMORY, memory)
    rates = ((row(f), *(_rate(f, name) for name in RATES)) for f in figures if f.rates)
    table("Each second: on a node, and in parentheses the mean of an instance", RATES, rates)
    heads = ("run delay of vCPUs", "CPU time counted", "clock ahead", "uncertainty", "drift in a trial")
    accounts = ((row(f), *_accounts(f)) for f in figures if f.kernels)
    table("CPU time and clocks of the guests, compared with those of the machine", heads, accounts)
    return out


def _meaning(figures: Sequence[InstanceFigures]) -> str:
    note = (
        "User and system time of a node are the sums of those of its instances. Of the rest, wait gets the "
        "share that wait has of wait + idle + steal in the instances, and idle gets what is left."
    )
    if any(f.kernels for f in figures):
        note += (
            " CPU time counted: by the guest's kernel, of what its vCPU threads ran on the machine. "
            "Run delay: of the time that vCPUs wanted to run, the share they waited for a CPU, which a guest "
            "sees as steal only if its hypervisor reports it."
        )
    if any(f.node.get("excess", 0.0) > 0.005 for f in figures):
        note += (
            " If the guests of a node count more busy time than the node has, they were not told of steal, "
            "and their shares do not describe the node."
        )
    if not all(f.kernels for f in figures):
        note += " An instance without a kernel of its own reports user and system time only."
    return note


def _cpu_rows(f: InstanceFigures) -> Iterable[tuple[str, Mapping[str, float]]]:
    each = [(f"instance {n}", shares) for n, shares in enumerate(f.instances, 1)]
    return [*(each if len(each) > 1 or f.kernels else []), ("node", f.node)]


def _share(shares: Mapping[str, float], name: str) -> str:
    in_idle = name == "steal" and name not in shares and "idle" in shares
    return "in idle" if in_idle else shown(shares.get(name), "share")


def _rate(f: InstanceFigures, name: str) -> str:
    if name not in f.rates:
        return NOT_REPORTED
    unit = "B/s" if name in _BYTES else ""
    whole, each = ((v if unit else round(v)) for v in (f.rates[name], f.mean_rates[name]))
    return f"{shown(whole, unit)} ({shown(each, unit)})"


def _accounts(f: InstanceFigures) -> tuple[str, ...]:
    def seconds(value: float | None) -> str:
        return NOT_REPORTED if value is None else show(value, "s", signed=True)

    return (
        shown(f.run_delay, "share"),
        shown(f.accounting, "share"),
        seconds(f.clock_ahead),
        NOT_REPORTED if f.clock_error is None else f"±{show(f.clock_error, 's')}",
        seconds(f.clock_drift),
    )


def instances_json(figures: Sequence[InstanceFigures]) -> list[JsonValue]:
    """Return the figures as JSON, in shares, seconds, bytes, and counts per second."""
    return [
        {
            "own_kernels" if name == "kernels" else name: to_json(value)
            for name, value in vars(f).items()
            if not name.startswith("clock_rate")
        }
        for f in figures
    ]


def printed_grids(
    figures: Sequence[PublishedFigure],
    places: Mapping[str, str],
    counted: Sequence[InstanceFigures],
    marks: Mapping[str, str],
) -> list[Grid]:
    """Return tables of the values that a paper printed about its instances, with our values beside them: one
    for each table of the paper.

    places: our arm, by the paper's name for it.
    marks: for emulated arms, how they are emulated, by the paper's name for them.
    """
    ours = {f.arm: f for f in counted}
    out = []
    for group in _by(figures, lambda f: f"{f.source}|{f.phase.partition('.')[0]}|{f.unit}").values():
        columns = tuple(dict.fromkeys(f.arm for f in group))
        rows = []
        for name, same in _by(group, lambda f: f.phase.partition(".")[2]).items():
            by_place = {f.arm: f for f in same}
            cells = []
            for place in columns:
                printed, own = by_place.get(place), ours.get(places.get(place, ""))
                value = value_of(own, same[0].phase) if own is not None else None
                cells.append(shown(value, same[0].unit) if own is not None else "not measured")
                cells.append(shown(printed.low, printed.unit) if printed is not None else "")
            rows.append((name, *cells))
        first = group[0]
        out.append(
            Grid(
                title=f"{_named(first.phase)}: here, and in {first.source} "
                f"({first.likeness.value}; {first.differs})",
                heads=(
                    "",
                    *(h for place in columns for h in (f"{place}, here{marks.get(place, '')}", "paper")),
                ),
                rows=tuple(rows),
                numbers=True,
            )
        )
    return out


def _named(key: str) -> str:
    group = key.partition(".")[0]
    names = {
        "node": "A node",
        "rates": "A node, each second",
        "mean_rates": "Mean of an instance, each second",
    }
    return names.get(group, group.capitalize())


def printed_json(
    figures: Sequence[PublishedFigure], places: Mapping[str, str], counted: Sequence[InstanceFigures]
) -> list[JsonValue]:
    """Return as JSON each value that a paper printed about its instances, with our value in the same unit;
    null if we have none.

    places: our arm, by the paper's name for it.
    counted: what was counted in our instances, one entry for each arm.
    """
    ours = {f.arm: f for f in counted}
    out: list[JsonValue] = []
    for f in figures:
        if f.quantity is not Quantity.INSTANCES:
            continue
        own = ours.get(places.get(f.arm, ""))
        out.append(
            {
                "what": f.what,
                "published": {"low": f.low, "high": f.high, "unit": f.unit, "text": shown(f.low, f.unit)},
                "where": f.source,
                "quantity": f.quantity.value,
                "likeness": f.likeness.value,
                "differs": f.differs,
                "workloads": list(f.workloads),
                "arm": f.arm,
                "figure": f.phase,
                "value": None if own is None else value_of(own, f.phase),
            }
        )
    return out


def _by(
    figures: Iterable[PublishedFigure], key: Callable[[PublishedFigure], str]
) -> dict[str, list[PublishedFigure]]:
    out: dict[str, list[PublishedFigure]] = {}
    for f in figures:
        out.setdefault(key(f), []).append(f)
    return out
