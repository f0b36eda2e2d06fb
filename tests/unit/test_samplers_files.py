"""Samples on disk: what a kill leaves is read, taken over once, and cut off where it is torn."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.samples import read_samples

from nearmetal.errors import RecordsError
from nearmetal.host import Process
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.model.scope import NODE, Scope
from nearmetal.samplers import Sampler, read_sections
from nearmetal.samplers.frames import FrameWriter, frames
from nearmetal.testing.fake_host import FakeHost, FakeProcess

HEADER = b'{"schema":1,"tick":100,"page":4096}\n'
NO_LIMIT = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


def line(t: float) -> bytes:
    sample = {"time": t, "monotonic": t, "scopes": {"node": {"loadavg": f"{t:.2f} 0 0\n"}, "instance.a": {}}}
    return json.dumps(sample).encode() + b"\n"


class EndedProcess(FakeProcess):
    """nm-sample as a script: when waited for, it has left lines in its output and words on standard error."""

    def __init__(self, output: Path, lines: bytes, *, returncode: int, words: str) -> None:
        super().__init__(("nm-sample",), returncode=returncode)
        self._output, self._lines, self._words = output, lines, words

    def wait(self, timeout: float) -> int:
        with self._output.open("ab") as file:
            file.write(self._lines)
        self._output.with_suffix(".stderr.txt").write_text(self._words)
        self.end()
        return super().wait(timeout)


class SamplingHost(FakeHost):
    """Starts the given process for nm-sample and keeps the commands that it would get."""

    def __init__(self, process: FakeProcess) -> None:
        super().__init__()
        self._process = process
        self._commands = -1

    def start(self, argv: Sequence[str], *, pass_fds: Sequence[int] = (), **_: object) -> Process:
        assert list(argv[:2]) == ["/tools/nm-sample", str(pass_fds[0])]
        self._commands = os.dup(pass_fds[0])
        return self._process

    def told(self) -> list[str]:
        """All commands; call it when the sampler has ended."""
        with open(self._commands) as file:  # noqa: PTH123  # a descriptor, not a path
            return file.read().splitlines()


class HostWithout(FakeHost):
    """A host that has no nm-sample."""

    def start(self, argv: Sequence[str], **_: object) -> Process:
        raise FileNotFoundError(2, "No such file or directory")


def sampler(
    directory: Path, lines: bytes, *, returncode: int = 0, words: str = ""
) -> tuple[Sampler, SamplingHost]:
    process = EndedProcess(directory / "local.jsonl", lines, returncode=returncode, words=words)
    host = SamplingHost(process)
    return Sampler(directory, writer="local", host=host, program="/tools/nm-sample"), host


def times(path: Path) -> list[float]:
    return [s.time for s in read_samples(path).samples]


def test_a_run_leaves_one_compressed_file(tmp_path: Path) -> None:
    made, host = sampler(tmp_path, line(1) + line(2))
    with made:
        made.add_instance("nm 0a", {"cpuacct": Path("/cg/x"), "memory": Path("/cg/m")})
        made.remove_instance("nm 0a")
    assert made.problem is None
    assert [p.name for p in tmp_path.iterdir()] == ["local.jsonl.zst"]
    found = read_samples(tmp_path / "local.jsonl.zst")
    assert [s.time for s in found.samples] == [1, 2]
    assert found.samples[0].scopes[NODE]["load1"] == 1.0
    assert found.samples[0].scopes[NODE]["user"] is None
    assert found.samples[0].scopes[Scope.instance("a")]["cpu"] is None
    assert not found.torn
    told = host.told()
    assert "+ node stat 1 /proc/stat" in told
    assert "+ node loadavg 5 /proc/loadavg" in told
    assert "+ instance.nm_0a cpuacct.usage 5 /cg/x/cpuacct.usage" in told
    assert "+ instance.nm_0a cpuacct.stat 1 /cg/x/cpuacct.stat" in told
    assert "+ node pressure.io 2 /proc/pressure/io" in told
    assert "+ instance.nm_0a memory.stat 5 /cg/m/memory.stat" in told
    assert told[-1] == "- instance.nm_0a" and told.count("! node") == 1


def test_a_killed_run_is_readable_and_the_next_takes_it_over(tmp_path: Path) -> None:
    path = tmp_path / "local.jsonl.zst"
    first, _ = sampler(tmp_path, b"")
    with first:
        pass
    (tmp_path / "local.jsonl").write_bytes(line(1) + line(2) + line(3)[:20])  # killed here
    assert times(path) == [1, 2]
    assert read_samples(path).torn
    second, _ = sampler(tmp_path, line(4))
    with second:
        assert times(path) == [1, 2]
    assert times(path) == [1, 2, 4]
    assert not read_samples(path).torn


def test_lines_taken_over_twice_are_there_once(tmp_path: Path) -> None:
    path = tmp_path / "local.jsonl.zst"
    first, _ = sampler(tmp_path, line(1) + line(2))
    with first:
        pass
    (tmp_path / "local.jsonl").write_bytes(line(1) + line(2))  # killed before it could be removed
    assert times(path) == [1, 2]
    second, _ = sampler(tmp_path, line(3))
    with second:
        pass
    assert times(path) == [1, 2, 3]


FULL = '{"event":"error","program":"nm-sample","process":"","what":"No space left on device"}\n'


def test_a_sampler_that_ends_early_says_why(tmp_path: Path) -> None:
    made, _ = sampler(tmp_path, line(1), returncode=3, words=FULL)
    with made:
        pass
    assert made.problem == "nm-sample: No space left on device"
    assert times(tmp_path / "local.jsonl.zst") == [1]


def test_no_program_is_a_problem_and_not_the_end_of_the_run(tmp_path: Path) -> None:
    made = Sampler(tmp_path, writer="local", host=HostWithout(), program="/tools/nm-sample")
    with made:
        made.add_instance("a", {"cpuacct": Path("/cg")})
        made.remove_instance("a")
    assert made.problem is not None
    assert "No such file" in made.problem
    assert times(tmp_path / "local.jsonl.zst") == []


@NO_LIMIT
@given(data=st.data())
def test_a_file_cut_anywhere_keeps_its_whole_frames(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "local.jsonl.zst"
    path.unlink(missing_ok=True)
    writer, ends = FrameWriter(path), [0]
    for content in (HEADER, line(1), line(2) + line(3)):
        writer.append(content)
        ends.append(path.stat().st_size)
    writer.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = sum(cut >= end for end in ends[1:])
    expected = [[], [], [1.0], [1.0, 2.0, 3.0]][kept]
    found = read_samples(path)
    assert [s.time for s in found.samples] == expected
    assert found.torn == (cut not in ends)
    again = FrameWriter(path)  # cuts the torn frame off and goes on
    again.append(HEADER if not kept else line(9))
    again.close()
    assert times(path) == ([*expected, 9.0] if kept else [])
    assert not read_samples(path).torn


@NO_LIMIT
@given(noise=st.binary(max_size=200))
def test_noise_is_torn_and_nothing_worse(tmp_path: Path, noise: bytes) -> None:
    path = tmp_path / "noise.jsonl.zst"
    path.write_bytes(noise)
    assert list(frames(path.open("rb"))) == [] or noise.startswith(b"\x28\xb5\x2f\xfd")
    assert read_samples(path).samples == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (line(1), "schema None"),
        (HEADER.replace(b":1", b":2", 1) + line(1), "schema 2"),
        (HEADER + b"{]\n", "corrupt"),
        (HEADER + b"[]\n", "corrupt"),
        (HEADER + b'{"time":1}\n', "corrupt"),
        (b'{"schema":1}\n', "corrupt header"),
    ],
)
def test_complete_but_invalid_frame_is_an_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.jsonl.zst"
    writer = FrameWriter(path)
    writer.append(content)
    writer.close()
    with pytest.raises(RecordsError, match=said):
        list(read_sections(UntrustedDirectory(tmp_path), path.name))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="cannot be read"):
        list(read_sections(UntrustedDirectory(tmp_path), "none.jsonl.zst"))
