"""What is counted inside a run: sources, timed parts, energy, the sampler's own cost, and its words."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nearmetal.errors import TrialFailedError
from nearmetal.host import LocalHost, MissingValue
from nearmetal.host.counters.energy import EnergyMeter, energy_domains, energy_files
from nearmetal.host.counters.files import NODE_FILES, CounterFiles
from nearmetal.host.counters.procfiles import Counters, CounterUnits, instance_counters
from nearmetal.host.counters.sources import GroupSource, NodeSource
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.meters.inside import InsideCounters, counted_everywhere, grown, own_sources
from nearmetal.model.change import replace
from nearmetal.model.record import TrialRecord
from nearmetal.model.scope import NODE, Scope
from nearmetal.report.tables.inside import inside_of
from nearmetal.samplers import SamplingCost, costs_in, sampling_cost
from nearmetal.samplers.sampler import cost_of_samples
from nearmetal.subjects.launches.launching import ProgramOutput
from nearmetal.testing.simulate import PLAIN
from nearmetal.workloads.protocol import PlaceLine, RankReport, SliceLine, parse_offered

SCALE = CounterUnits(tick=100, page=4096)


class Script:
    """A source that answers from a list."""

    scope = Scope.instance("a")

    def __init__(self, *answers: Counters) -> None:
        self._answers = list(answers)

    def read(self) -> Counters:
        return self._answers.pop(0)


def slice_line(**used: float | None) -> SliceLine:
    return SliceLine(kernel=0, name="cg", parts=(), used=used)


def report(rank: int, **used: float | None) -> RankReport:
    return RankReport(
        placed=PlaceLine(rank=rank, host="h", cpu=rank, affinity=(rank,), namespaces={}),
        wall=1.0,
        user=0.5,
        system=0.1,
        max_rss=1,
        io={"rchar": 10 * (rank + 1)},
        used=used,
        status=0,
        left=(),
    )


def test_timed_parts_are_added_over_sources_and_slices() -> None:
    one = Script({"throttled": 1.0, "steal": 5.0}, {"throttled": 1.5, "steal": 5.0})
    two = Script({"throttled": 0.0}, {"throttled": 0.25})
    inside = InsideCounters((one, two))
    with inside.timed("cg"):
        inside.slice("cg", slice_line(run_delay=0.125, page_faults=3.0, cycles=None))
        inside.slice("cg", slice_line(run_delay=0.25, page_faults=1.0, cycles=None))
    assert inside.close() == {
        Scope.timed("cg"): {"run_delay": 0.375, "page_faults": 4.0, "throttled": 0.75, "steal": 0.0}
    }


def test_counter_missing_in_one_instance_is_missing_in_the_sum() -> None:
    one = Script({"throttled": 1.0}, {"throttled": 1.5})
    two = Script({"throttled": None}, {"throttled": None})
    inside = InsideCounters((one, two))
    with inside.timed("cg"):
        pass
    assert inside.close() == {}


def test_runs_count_what_ranks_used_and_warm_up_does_not() -> None:
    inside = InsideCounters(())
    inside.run("app", [report(0, run_delay=9.0)])
    with inside.timed("app"):
        inside.run(
            "app", [report(0, run_delay=0.5, page_faults=2.0), report(1, run_delay=0.25, page_faults=1.0)]
        )
    # CPUs were waited for by both at once: the longest counts; faults and bytes add up.
    assert inside.close() == {Scope.timed("app"): {"run_delay": 0.5, "page_faults": 3.0, "rchar": 30.0}}


@pytest.mark.parametrize(
    ("user", "system", "wait"), [(0.5, 0.25, 0.25), (1.0, 0.01, 0.0), (1.5, 0.5, None), (0.0, 0.0, 1.0)]
)
def test_the_accounts_of_a_run_are_those_of_its_slowest_rank(
    user: float, system: float, wait: float | None
) -> None:
    slow = replace(report(1), wall=1.0, user=user, system=system)
    ran = ProgramOutput(stdout="", stderr="", reports=(replace(slow, wall=0.5), slow), profiles=())
    found = ran.accounts
    assert ran.parts is None
    if wait is None:  # threads took more CPU time than passed: nothing to divide
        assert found is None
    else:
        assert found == {"user": user, "system": system, "wait": pytest.approx(wait)}


@pytest.mark.parametrize(
    ("first", "last", "found"), [(1.0, 3.0, 2.0), (None, 3.0, None), (1.0, None, None), (3.0, 1.0, None)]
)
def test_a_counter_that_ran_backwards_is_unknown(
    first: float | None, last: float | None, found: float | None
) -> None:
    assert grown(first, last) == found


def test_instances_may_bring_sources_of_their_own() -> None:
    source = Script()
    bare, counting = SimpleNamespace(label="a"), SimpleNamespace(label="b", sources=(source,))
    assert own_sources(cast(Any, (bare, counting))) == (source,)


def test_events_are_counted_on_all_sides_or_on_none() -> None:
    def record(arm: str, **counted: float) -> TrialRecord:
        counters = {NODE: {}, Scope.timed("cg"): counted}
        return replace(PLAIN, trial=arm, arm=arm, rows=(), counters=counters)

    here = record("a", page_faults=1.0, cycles=5.0, task_clock=1.0)
    asked = ("task_clock", "cycles", "instructions")
    assert counted_everywhere(asked, [here]) == ("task_clock", "cycles")
    assert counted_everywhere(asked, [here, record("b", page_faults=1.0, task_clock=1.0)]) == ("task_clock",)
    # An arm whose trial had no rank, as an event has none, forbids nothing.
    assert counted_everywhere(asked, [here, record("c")]) == ("task_clock", "cycles")
    assert counted_everywhere(asked, []) == ()


def test_throttling_of_both_versions() -> None:
    v1 = instance_counters({"cpu.stat": b"nr_periods 12\nnr_throttled 11\nthrottled_time 531416266\n"}, SCALE)
    assert v1["throttled"] == pytest.approx(0.531416266)
    assert (v1["throttled_periods"], v1["cpu"]) == (11, None)
    v2 = instance_counters({"cpu.stat": b"usage_usec 7\nnr_throttled 2\nthrottled_usec 1500\n"}, SCALE)
    assert (v2["throttled"], v2["throttled_periods"]) == (0.0015, 2)
    assert instance_counters({}, SCALE)["throttled"] is None


def test_faults_and_limit_hits_of_both_versions() -> None:
    stat = b"pgfault 3\npgmajfault 1\ntotal_pgfault 9\ntotal_pgmajfault 2\n"
    found = instance_counters({"memory.stat": stat, "memory.failcnt": b"4\n"}, SCALE)
    assert (found["page_faults"], found["major_faults"], found["limit_hits"]) == (9, 2, 4)
    stat, events = b"anon 1\npgfault 3\npgmajfault 1\n", b"low 0\nhigh 0\nmax 5\noom 0\n"
    found = instance_counters({"memory.stat": stat, "memory.events": events}, SCALE)
    assert (found["page_faults"], found["major_faults"], found["limit_hits"]) == (3, 1, 5)


def test_counters_of_a_removed_cgroup_are_missing(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("nr_throttled 1\nthrottled_time 1000000000\n")
    files = CounterFiles(LocalHost(), {"cpu.stat": str(tmp_path / "cpu.stat")}, held=False)
    source = GroupSource(files=files)
    assert source.parse(source.take())["throttled"] == 1.0
    (tmp_path / "cpu.stat").unlink()
    assert source.parse(source.take())["throttled"] is None
    node = CounterFiles(LocalHost(), NODE_FILES, held=False)
    of_node = NodeSource(files=node)
    assert set(of_node.parse(of_node.take())) == {"steal", "iowait"}


def package(root: Path, number: int, energy: int) -> Path:
    place = root / f"sys/class/powercap/intel-rapl:{number}"
    place.mkdir(parents=True)
    (place / "name").write_text(f"package-{number}\n")
    (place / "max_energy_range_uj").write_text("1000000\n")
    (place / "energy_uj").write_text(f"{energy}\n")
    (place / f"intel-rapl:{number}:0").mkdir()  # cores: a part of it
    return place


def test_energy_of_all_packages_over_their_wrap(tmp_path: Path) -> None:
    first, second = package(tmp_path, 0, 900_000), package(tmp_path, 1, 0)
    domains = energy_domains(tmp_path)
    assert not isinstance(domains, MissingValue)
    assert [d.name for d in domains] == ["package-0", "package-1"]
    meter = EnergyMeter(domains)
    assert meter.read() == {"energy": 0.0}
    (first / "energy_uj").write_text("100000")  # began anew at a million
    (second / "energy_uj").write_text("500000")
    assert meter.read()["energy"] == pytest.approx(0.7)
    (second / "energy_uj").unlink()
    assert meter.read() == {"energy": None}
    assert meter.read() == {"energy": None}


def test_energy_that_cannot_be_read_is_absent(tmp_path: Path) -> None:
    absent = energy_domains(tmp_path)
    assert isinstance(absent, MissingValue) and "RAPL" in absent.reason
    (package(tmp_path, 0, 1) / "energy_uj").unlink()
    assert isinstance(energy_domains(tmp_path), MissingValue)
    assert energy_files() == {} or all(name.startswith("energy.") for name in energy_files())


def line(monotonic: float, own: float) -> str:
    return json.dumps({"time": 0.0, "monotonic": monotonic, "own": own, "scopes": {}}) + "\n"


def test_the_cost_of_sampling_is_that_of_its_own_lines(tmp_path: Path) -> None:
    raw = tmp_path / "local.jsonl"
    raw.write_text(line(100.0, 0.001) + line(101.0, 0.0012) + line(110.0, 0.004))
    files = UntrustedDirectory(tmp_path)
    found = cost_of_samples(files, raw.name)
    assert (found.seconds, found.samples) == (10.0, 3)
    assert found.share == pytest.approx(0.0003)
    assert cost_of_samples(files, "none.jsonl").share is None
    raw.write_text(line(100.0, 0.001) + '{"time": 1.0, "mono')
    assert cost_of_samples(files, raw.name) == SamplingCost(seconds=0.0, cpu=0.0, samples=0)


def test_costs_of_several_writers_add_up(tmp_path: Path) -> None:
    files = UntrustedDirectory(tmp_path)
    assert costs_in(files) is None and sampling_cost(files, "a.cost.json") is None
    for name in ("a", "b"):
        (tmp_path / f"{name}.cost.json").write_text('{"seconds": 10, "cpu": 0.002, "samples": 11}')
    assert costs_in(files) == SamplingCost(seconds=20.0, cpu=0.004, samples=22)
    (tmp_path / "c.cost.json").write_text("torn")
    assert costs_in(files) == SamplingCost(seconds=20.0, cpu=0.004, samples=22)


def test_counting_inside_a_run_is_described_in_words() -> None:
    found = {
        "inside": {
            "sample_every": 1.0,
            "perf_events": ["task_clock"],
            "perf_events_absent": {"cycles": "No such file", "instructions": "No such file"},
            "energy": None,
            "energy_absent": "no RAPL domain",
        }
    }
    told = inside_of(cast(Any, found), SamplingCost(seconds=20.0, cpu=0.004, samples=22))
    words = dict(told.lines())
    assert words["perf events"] == "task_clock; absent: cycles, instructions (No such file)"
    assert words["energy"] == "absent: no RAPL domain"
    assert "0.020 % of a core (22 samples in 20" in words["sampling"]
    assert cast(Any, told.as_json())["sampling"]["share_of_a_core"] == pytest.approx(0.0002)
    assert inside_of({}, None).lines() == [] and inside_of({}, None).as_json() == {"sampling": None}


def test_offered_perf_events_are_parsed() -> None:
    assert parse_offered('{"cycles":"No such file or directory","task_clock":""}\n')["task_clock"] == ""
    with pytest.raises(TrialFailedError, match="nm-rank"):
        parse_offered("[]")
