"""What ranks and groups used, counted for real: a program of known appetite, the kernels, a CPU quota."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import one_fits

from nearmetal.environments import InstanceRequest, Tools
from nearmetal.environments.registry import get_backend
from nearmetal.host import LocalHost
from nearmetal.host.counters.files import CounterFiles, cgroup_paths
from nearmetal.host.counters.sources import GroupSource
from nearmetal.host.runtime import cache_directory
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.meters.inside import InsideCounters, offered_events
from nearmetal.model.scope import Scope
from nearmetal.model.study import Attachment, Environment, Limits
from nearmetal.samplers import Sampler, costs_in
from nearmetal.workloads.build import build_tools
from nearmetal.workloads.protocol import EVENTS, RankReport, SliceLine, parse_line, parse_report

HOST = LocalHost()
PAGES = 2000
#: Seconds on a CPU: many ticks of the kernel's accounts, by which it divides user from system time, and far
#: more than the start of Python varies by.
APPETITE_CPU = 0.3
#: Touches so many pages, writes 4 MiB into a file, reads it again, and computes to so much CPU time in all.
APPETITE = f"""
import mmap, sys, time
memory = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE)
for page in range({PAGES}):
    memory[page * mmap.PAGESIZE] = 1
with open(sys.argv[1], 'wb') as file:
    file.write(bytes(4 << 20))
open(sys.argv[1], 'rb').read()
while time.process_time() < {APPETITE_CPU}:
    pass
"""


@pytest.fixture(scope="module")
def tools() -> Tools:
    """All of them, as a run has them."""
    return Tools(directory=build_tools(HOST, cache_directory(), progress=None).directory)


def measured(tools: Tools, directory: Path, *program: str, events: Sequence[str] = EVENTS) -> RankReport:
    argv = [tools / "nm-rank", "--report", str(directory), "--events", ",".join(events), "--", *program]
    assert HOST.run(argv, timeout=600).ok
    return parse_report((directory / "rank.0.json").read_text())


def cpu_time(report: RankReport, why: str) -> float:
    """Seconds by task_clock; by the kernel's accounts where it gives no task_clock, of which it says why."""
    clock = report.used["task_clock"]
    assert (clock is None) == bool(why), why
    return report.user + report.system if clock is None else clock


def test_page_faults_and_io_of_a_program_are_counted(tools: Tools, tmp_path: Path) -> None:
    found = measured(tools, tmp_path, "/usr/bin/python3", "-c", APPETITE, str(tmp_path / "file"))
    assert found.io["wchar"] >= 4 << 20 and found.io["rchar"] >= 4 << 20
    faults = found.used["page_faults"]
    assert faults is not None and faults >= PAGES
    assert found.used["run_delay"] is not None and found.used["run_delay"] >= 0


def test_events_that_are_offered_are_counted_and_others_are_absent(tools: Tools, tmp_path: Path) -> None:
    offered = offered_events(HOST, tools)
    assert set(offered) == set(EVENTS)
    spin = ("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")

    def clock_and_accounts() -> tuple[float, float]:
        found = measured(tools, tmp_path, *spin)
        for name, why in offered.items():
            assert (found.used[name] is not None) == (why == ""), (name, why)
        return cpu_time(found, offered["task_clock"]), found.user + found.system

    # nm-rank itself only waits; without an event for it the CPU time is that of the accounts. These leave out
    # what the hypervisor gives to others meanwhile, unlike the event.
    one_fits(
        clock_and_accounts, lambda c: c[0] > 0 and c[0] == pytest.approx(c[1], rel=0.2, abs=0.02), attempts=6
    )
    none = measured(tools, tmp_path, *spin, events=("x",)).used
    assert all(none[name] is None for name in EVENTS)


def test_children_are_counted_with_their_parent(tools: Tools, tmp_path: Path) -> None:
    program = ("/usr/bin/python3", "-c", APPETITE, str(tmp_path / "file"))
    twice = ("sh", "-c", '"$@" & "$@"; wait', "sh", *program)
    why = offered_events(HOST, tools)["task_clock"]

    def times_of_one() -> tuple[float, float]:
        """Return the CPU time of both in that of one, by the event and by the accounts."""
        found = measured(tools, tmp_path, *twice)
        alone = measured(tools, tmp_path, *program)
        faults, of_one = found.used["page_faults"], alone.used["page_faults"]
        assert faults is not None and of_one is not None and faults >= 2 * PAGES
        assert 2 * of_one - PAGES < faults < 2 * of_one + PAGES
        assert cpu_time(alone, why) > 0.95 * APPETITE_CPU
        by_accounts = (found.user + found.system) / (alone.user + alone.system)
        return cpu_time(found, why) / cpu_time(alone, why), by_accounts

    # What each of them used, and not only the one that ended last. The event also counts what the hypervisor
    # gives to others meanwhile.
    one_fits(times_of_one, lambda times: min(times) > 1.5, attempts=6)


def test_slices_say_what_all_ranks_used(tools: Tools) -> None:
    argv = [tools / "nm-micro", "--once", "--slices", "2", "--events", "task_clock", "ep:class=S"]
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = HOST.run(argv, timeout=600, env=env)
    offered = not offered_events(HOST, tools)["task_clock"]
    lines = [parse_line(text) for text in done.stdout.splitlines() if text.startswith("{")]
    slices = [line for line in lines if isinstance(line, SliceLine)]
    assert len(slices) == 2
    for line in slices:
        assert line.used["cycles"] is None  # not asked for
        assert line.used["run_delay"] is not None
        clock, most = line.used["task_clock"], 2 * line.parts[0].seconds + 0.05
        assert (clock is not None and 0 < clock < most) if offered else clock is None


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root here")
def test_a_quota_shows_as_throttled_seconds(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    request = InstanceRequest(
        label=f"nearmetal-test{os.getpid()}-counts",
        hostname="nmcounts",
        environment=Environment(
            name="tenth",
            backend="namespaces",
            attachment=Attachment.NONE,
            limits=Limits(cpu_quota=0.1),
            placements=(),
        ),
        cpus=HOST.cpus()[-1:],
        seat=None,
        binds=(tmp_path,),
        scratch=tmp_path / "scratch",
    )

    def measure() -> tuple[float, float, float]:
        """Throttled seconds, run delay, and the most that may be throttled."""
        with ExitStack() as stack:
            instance = stack.enter_context(get_backend("namespaces").start(HOST, tools, request))
            files = CounterFiles(HOST, cgroup_paths(instance.cgroups), held=True)
            stack.callback(files.close)
            inside = InsideCounters((GroupSource(files=files),))
            spin = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
            rank = [tools / "nm-rank", "--report", str(tmp_path), "--", "sh", "-c", spin]
            begin = time.monotonic()
            with inside.timed("spin"):
                assert HOST.run(instance.command(rank), timeout=600).ok
                report = parse_report((tmp_path / "rank.0.json").read_text())
                inside.run("spin", [report])
            whole = time.monotonic() - begin
        found = inside.close()[Scope.timed("spin")]
        throttled, delay = found["throttled"], found["run_delay"]
        assert throttled is not None and delay is not None
        return throttled, delay, whole - report.user + 0.1  # a period of the quota more

    # The kernel counts throttled time as run delay, too: what analysis.causes takes off again. If other work
    # takes the CPU, the group is throttled while it does not wait.
    one_fits(measure, lambda m: 0 < m[0] <= m[2] and m[1] > 0.8 * m[0], attempts=6)


def test_sampling_ten_times_a_second_tells_its_cost(tools: Tools, tmp_path: Path) -> None:
    program = tools / "nm-sample"
    with Sampler(tmp_path, writer="w", host=HOST, program=program, period=0.1):
        time.sleep(1.5)
    found = costs_in(UntrustedDirectory(tmp_path))
    assert found is not None and found.samples >= 5 and found.seconds > 1.0
    assert found.share is not None and 0 < found.share < 0.5
    with Sampler(tmp_path, writer="w", host=HOST, program=program, period=0.1):
        time.sleep(0.3)
    again = costs_in(UntrustedDirectory(tmp_path))
    assert again is not None and again.samples > found.samples and again.cpu > found.cpu
