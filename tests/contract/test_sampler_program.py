"""nm-sample on this machine: it reads what it is told, ends when the tool ends, and loses a line at most."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until
from tests.samples import read_samples

from nearmetal.host import LocalHost
from nearmetal.host.counters.trial import local_scale
from nearmetal.host.runtime import cache_directory
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.model.scope import GUEST, NODE, Scope
from nearmetal.samplers import GuestSampler, Header, Sampler, Stream, in_windows, read_sections
from nearmetal.samplers.frames import raw_beside
from nearmetal.workloads.build import build_tools

A, B = Scope.instance("a"), Scope.instance("b")
TICK = local_scale().tick


@pytest.fixture(scope="module")
def program() -> str:
    return str(build_tools(LocalHost(), cache_directory(), progress=None).directory / "nm-sample")


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_gone(pid: int) -> None:
    until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")


def wait_for_samples(raw: Path, scope: Scope, count: int) -> None:
    """Until so many lines of the sampler tell of a scope: on a busy machine they come late."""
    end = time.monotonic() + 600
    while not raw.exists() or raw.read_bytes().count(f'"{scope}":'.encode()) < count:
        assert time.monotonic() < end, f"no {count} samples of {scope}"
        time.sleep(0.02)


def test_counters_of_the_node_and_of_an_instance(tmp_path: Path, program: str) -> None:
    (tmp_path / "cpuacct.usage").write_text("2500000000\n")
    (tmp_path / "cpuacct.stat").write_text(f"user {2 * TICK}\nsystem {TICK}\n")
    with Sampler(tmp_path, writer="w", host=LocalHost(), program=program, period=0.1, flush=0.1) as sampler:
        sampler.add_instance("a", {"cpuacct": tmp_path})
        sampler.mark(sampler.scope_of("a"))
        wait_for_samples(sampler.raw, A, 3)
        sampler.remove_instance("a")
        wait_for_samples(sampler.raw, NODE, sampler.raw.read_bytes().count(b'"node":') + 2)
    assert sampler.problem is None
    found = read_samples(tmp_path / "w.jsonl.zst")
    assert not found.torn
    nodes = [s.scopes[NODE] for s in found.samples if NODE in s.scopes]
    assert len(nodes) >= 5
    first, last = nodes[0], nodes[-1]
    assert first.keys() == last.keys()
    for name in ("user", "busy", "interrupts", "context_switches", "blocks_in", "memory_free", "load1"):
        before, after = first[name], last[name]
        assert before is not None, name
        assert after is not None, name
    assert (last["context_switches"] or 0) > (first["context_switches"] or 0)
    instances = [s.scopes[A] for s in found.samples if A in s.scopes]
    assert len(instances) >= 3
    assert {(i["user"], i["system"]) for i in instances} == {(2.0, 1.0)}
    # It is marked at once, but a sample may be due between the two commands.
    assert 2.5 in [i["cpu"] for i in instances[:2]]
    assert {i["cpu"] for i in instances} == {2.5, None}, "in every fifth"
    assert A not in found.samples[-1].scopes


def test_instances_that_come_and_go_between_samples_lose_no_sample(tmp_path: Path, program: str) -> None:
    (tmp_path / "cpuacct.usage").write_text("2500000000\n")
    with Sampler(tmp_path, writer="w", host=LocalHost(), program=program, period=60.0) as sampler:
        sampler.add_instance("a", {"cpuacct": tmp_path})
        sampler.add_instance("b", {"cpuacct": tmp_path, "memory": tmp_path})
        sampler.remove_instance("a")
    last = read_samples(tmp_path / "w.jsonl.zst").samples[-1].scopes
    assert last.keys() == {NODE, B} and last[B]["cpu"] == 2.5
    assert last[B]["memory"] is None, "a file that is not there is missing"


def test_long_files_are_cut_to_what_is_parsed(tmp_path: Path, program: str) -> None:
    with Sampler(tmp_path, writer="w", host=LocalHost(), program=program):
        raw = raw_beside(tmp_path / "w.jsonl.zst")
        wait_for_samples(raw, NODE, 1)
    assert not raw.exists()
    (sample, *_) = read_samples(tmp_path / "w.jsonl.zst").samples
    missing = [n for n in ("swap_in", "swap_out", "steal", "softirq") if sample.scopes[NODE][n] is None]
    assert missing == []


def test_sampler_ends_with_a_killed_tool_and_keeps_its_lines(tmp_path: Path, program: str) -> None:
    script = (
        "import sys, time; from pathlib import Path; from nearmetal.host import LocalHost;"
        "from nearmetal.samplers import Sampler\n"
        "how = {'writer': 'w', 'program': sys.argv[2], 'period': 0.05, 'flush': 0.1}\n"
        "with Sampler(Path(sys.argv[1]), host=LocalHost(), **how):\n"
        "    print('on', flush=True); time.sleep(3600)\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path), program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == "on\n"
        (sampler,) = children_of(tool.pid)
        wait_for_samples(raw_beside(tmp_path / "w.jsonl.zst"), NODE, 4)
        os.kill(tool.pid, signal.SIGKILL)
    wait_until_gone(sampler)
    killed = len(read_samples(tmp_path / "w.jsonl.zst").samples)
    assert killed >= 4
    with Sampler(tmp_path, writer="w", host=LocalHost(), program=program):
        pass
    assert not raw_beside(tmp_path / "w.jsonl.zst").exists()
    assert len(read_samples(tmp_path / "w.jsonl.zst").samples) > killed


def test_a_full_disk_is_said_and_leaves_whole_lines(tmp_path: Path, program: str) -> None:
    (tmp_path / "big").write_text("x" * 3000)
    reader, writer = os.pipe()
    out = tmp_path / "out.jsonl"
    limited = ["prlimit", "--fsize=8192", program, str(reader), str(out), "20", "20"]
    with subprocess.Popen(limited, pass_fds=(reader,), stderr=subprocess.PIPE, text=True) as child:
        os.close(reader)
        os.write(writer, f"+ node big 1 {tmp_path / 'big'}\n".encode())
        _, said = child.communicate(timeout=600)
    os.close(writer)
    assert child.returncode == 3
    assert "File too large" in said
    content = out.read_bytes()
    assert 0 < len(content) <= 8192
    assert content.endswith(b"}}}\n")


@pytest.mark.parametrize("argv", [[], ["0", "out", "x", "1"], ["0", "out", "-1", "1"]])
def test_wrong_use(program: str, argv: list[str]) -> None:
    done = subprocess.run([program, *argv], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert done.stderr


def test_a_mark_is_on_the_disk_at_once(tmp_path: Path, program: str) -> None:
    (tmp_path / "cpuacct.usage").write_text("1000000000\n")
    with Sampler(tmp_path, writer="w", host=LocalHost(), program=program, period=7200.0) as sampler:
        stream = Stream(sampler.raw, local_scale())
        sampler.add_instance("a", {"cpuacct": tmp_path})
        sampler.mark(sampler.scope_of("a"), NODE)
        scope, begin = sampler.scope_of("a"), time.monotonic()
        assert stream.until(scope, 0.0, PATIENCE)[-1].monotonic - begin < PATIENCE
        (tmp_path / "cpuacct.usage").write_text("3000000000\n")
        begin = time.monotonic()
        sampler.mark(scope, NODE)
        own = [s.monotonic for s in stream.until(NODE, begin, PATIENCE) if scope in s.scopes]
        counted = in_windows(stream.until(NODE, begin, 0.0), scope, [(own[0], own[-1])])
        assert counted["cpu"] == 2.0
    assert sampler.problem is None


def test_sampler_in_a_guest_receives_marks_and_its_lines_are_kept(tmp_path: Path, program: str) -> None:
    argv = [program, *GuestSampler.arguments(0.1)]
    made = GuestSampler(LocalHost(), argv, "g", tmp_path / "g.jsonl", local_scale())
    begin = time.monotonic()
    with made:
        until(lambda: len(made.stream.until(made.scope, begin, PATIENCE)) >= 3)
        before = time.monotonic()
        made.mark()
        found = made.stream.until(made.scope, before, PATIENCE)
    assert len(found) >= 4
    counted = in_windows(found, made.scope, [(found[0].monotonic, found[-1].monotonic)])
    assert (counted["idle"] or 0) + (counted["busy"] or 0) > 0
    assert counted["memory_active"] and counted["memory_inactive"] and counted["context_switches"]
    windows = {"lammps": ((begin, before),)}
    head = Header(scale=local_scale(), time_ahead=-10.0, monotonic_ahead=100.0, trial="b0-1", windows=windows)
    made.keep(tmp_path / "guests.jsonl.zst", head)
    made.keep(tmp_path / "guests.jsonl.zst", Header(scale=local_scale()))
    sections = list(read_sections(UntrustedDirectory(tmp_path), "guests.jsonl.zst"))
    assert [s.header for s in sections] == [head, Header(scale=local_scale())]
    assert len(sections[0].samples) == len(sections[1].samples) >= len(found)
    right, raw = (s.samples[0] for s in sections)
    assert (right.time, right.monotonic) == (raw.time + 10.0, raw.monotonic - 100.0)


def test_a_guest_that_has_gone_ends_its_sampler_alone(tmp_path: Path) -> None:
    made = GuestSampler(LocalHost(), ["/bin/false"], "g", tmp_path / "g.jsonl", local_scale())
    with made:
        assert made.stream.until(Scope(kind=GUEST, name="g"), 0.0, 0.05) == []
        made.mark()
    absent = [str(tmp_path / "none")]
    broken = GuestSampler(LocalHost(), absent, "g", tmp_path / "h.jsonl", local_scale())
    with pytest.raises(FileNotFoundError), broken:
        pass
