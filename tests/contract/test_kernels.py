"""The C programs, built from this tree: every kernel verified, slices by token, places, extra work."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from nearmetal.errors import TrialFailedError
from nearmetal.host import Completed, LocalHost
from nearmetal.model.record import Status
from nearmetal.model.study import KernelWorkload, Transport
from nearmetal.workloads.build import build_tools
from nearmetal.workloads.kernels import argument, kernel_names, rows
from nearmetal.workloads.protocol import Line, ReadyLine, SliceLine, VerifyLine, parse_line, parse_place

MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
BTL = {
    Transport.SHM: ("--mca", "btl", "vader,self"),
    Transport.TCP: ("--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"),
}
PATIENCE = 60.0


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tools(LocalHost(), tmp_path_factory.mktemp("tools"), progress=None).directory


def mpirun(ranks: int, transport: Transport = Transport.SHM) -> list[str]:
    head = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1"]
    return [*head, *BTL[transport], "-n", str(ranks)]


def once(tools: Path, ranks: int, *specs: str) -> Completed:
    argv = [*mpirun(ranks), str(tools / "nm-micro"), "--once", *specs]
    return LocalHost().run(argv, timeout=PATIENCE, env=MPI_ENVIRONMENT)


class Micro:
    """nm-micro at its FIFOs, the way an orchestrator holds it."""

    def __init__(self, place: Path, argv: Sequence[str], ranks: int, stack: ExitStack) -> None:
        self._tokens: list[int] = []
        os.mkfifo(place / "out")
        self._out = os.open(place / "out", os.O_RDONLY | os.O_NONBLOCK)
        stack.callback(os.close, self._out)
        for rank in range(ranks):
            os.mkfifo(place / f"token.{rank}")
            self._tokens.append(os.open(place / f"token.{rank}", os.O_RDWR))
        stack.callback(self.close)
        self._pending = b""
        self.process = LocalHost().start(
            [*argv], stdout=place / "stdout", stderr=place / "stderr", env=MPI_ENVIRONMENT
        )
        stack.callback(self.process.kill)
        self.ready = self.line()

    def line(self) -> Line:
        while b"\n" not in self._pending:
            if not select.select([self._out], [], [], PATIENCE)[0]:
                raise TimeoutError("no line from nm-micro")
            read = os.read(self._out, 65536)
            if not read:
                raise EOFError("nm-micro has gone")
            self._pending += read
        text, self._pending = self._pending.split(b"\n", 1)
        return parse_line(text.decode())

    def tell(self, token: str) -> None:
        for descriptor in self._tokens:
            os.write(descriptor, f"{token}\n".encode())

    def slice(self, kernel: int) -> SliceLine:
        self.tell(f"s {kernel}")
        line = self.line()
        assert isinstance(line, SliceLine) and line.kernel == kernel
        return line

    def verify(self, kernel: int) -> VerifyLine:
        self.tell(f"v {kernel}")
        line = self.line()
        assert isinstance(line, VerifyLine) and line.kernel == kernel
        return line

    def close(self) -> None:
        while self._tokens:
            os.close(self._tokens.pop())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def start(
    tools: Path,
    place: Path,
    stack: ExitStack,
    *specs: str,
    ranks: int = 2,
    transport: Transport = Transport.SHM,
) -> Micro:
    pins = ",".join(str(cpu) for cpu in (LocalHost().cpus() * ranks)[:ranks])
    argv = [*mpirun(ranks, transport), str(tools / "nm-rank"), "--cpus", pins, "--"]
    return Micro(place, [*argv, str(tools / "nm-micro"), "--tokens", str(place), *specs], ranks, stack)


def spec(name: str, transport: Transport) -> str:
    load = KernelWorkload(name=name, kernel=name, params={})
    return argument(load, transport=transport, ranks=2, llc_bytes=1 << 20, extra=0.0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_kernel_is_verified(tools: Path, ranks: int) -> None:
    names = [name for name in kernel_names() if ranks > 1 or name != "pingpong"]
    done = once(tools, ranks, *(f"{name}:pages=4k" for name in names))
    assert done.ok, done.last_words()
    ready, *lines = [parse_line(text) for text in done.stdout.splitlines()]
    assert isinstance(ready, ReadyLine) and ready.ranks == ranks and "MPI" in ready.mpi
    assert [line.name for line in lines if isinstance(line, VerifyLine) and line.ok] == names


@pytest.mark.parametrize("name", kernel_names())
def test_a_spoiled_value_fails_the_verification(tools: Path, name: str) -> None:
    done = once(tools, 2, f"{name}:corrupt=1")
    assert done.returncode == 1
    lines = [parse_line(text) for text in done.stdout.splitlines() if text.startswith("{")]
    assert [line.ok for line in lines if isinstance(line, VerifyLine)] == [False]


@pytest.mark.parametrize(
    "words", ["fft", "ep:klass=S", "ep:class=Z", "ep:batches=0", "stream:elements", "cg:extra=-1"]
)
def test_a_wrong_spec_is_an_error_line_and_a_status(tools: Path, words: str) -> None:
    done = once(tools, 1, words)
    assert not done.ok
    line = next(text for text in done.stderr.splitlines() if text.startswith("{"))
    with pytest.raises(TrialFailedError, match=words.split(":")[-1].split("=")[0]):
        parse_line(line)


@pytest.mark.parametrize("transport", list(Transport))
def test_slices_and_verifications_by_token(
    tools: Path, tmp_path: Path, stack: ExitStack, transport: Transport
) -> None:
    names = kernel_names()
    micro = start(tools, tmp_path, stack, *(spec(n, transport) for n in names), transport=transport)
    assert isinstance(micro.ready, ReadyLine)
    assert [place.rank for place in micro.ready.places] == [0, 1]
    own = {kind: (Path("/proc/self/ns") / kind).stat().st_ino for kind in ("mnt", "net", "pid")}
    for place in micro.ready.places:
        assert len(place.cpus) == 1
        assert {kind: place.namespaces[kind] for kind in own} == own
    for kernel, name in enumerate(names):
        lines = [micro.slice(kernel) for _ in range(3)]
        verify = micro.verify(kernel)
        assert verify.ok, verify
        load = KernelWorkload(name=name, kernel=name, params={})
        for row in rows(load, lines, verify):
            assert row.status is Status.OK and len(row.values) == 3
            comm = row.parts["comm"]
            assert all(0 <= c <= s for c, s in zip(comm, row.seconds, strict=True))
        work = {part.metric: part.work for part in lines[0].parts}
        assert all({p.metric: p.work for p in line.parts} == work for line in lines)
    micro.tell("q")
    assert micro.process.wait(PATIENCE) == 0


def test_the_end_of_the_tokens_ends_it(tools: Path, tmp_path: Path, stack: ExitStack) -> None:
    micro = start(tools, tmp_path, stack, "stream:elements=1000")
    micro.close()
    assert micro.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("token", ["s 7", "v -1", "x 0", "s", "s 0 0", "s" * 100])
def test_a_wrong_token_is_an_error_line(tools: Path, tmp_path: Path, stack: ExitStack, token: str) -> None:
    micro = start(tools, tmp_path, stack, "stream:elements=1000", ranks=1)
    micro.tell(token)
    with pytest.raises(TrialFailedError, match="token"):
        micro.line()
    assert micro.process.wait(PATIENCE) != 0


def test_pages_are_as_asked(tools: Path, tmp_path: Path, stack: ExitStack) -> None:
    size = "stream:elements=2000000"
    micro = start(tools, tmp_path, stack, f"{size}:pages=4k", f"{size}:pages=huge", ranks=1)
    assert isinstance(micro.ready, ReadyLine)
    small, huge = micro.ready.pages
    assert small.total_kb == huge.total_kb >= 3 * 2_000_000 * 8 // 1024
    assert small.huge_kb == 0
    allowed = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    if "[never]" in allowed:
        assert huge.huge_kb == 0
    else:
        assert huge.huge_kb is not None and huge.huge_kb >= 2048


# Slices below a millisecond, on one rank where one is enough: between other processes' turns there is always
# room for some of them undisturbed.
SHORT = {
    "stream": ("stream:elements=20000:sweeps=20", 1),
    "ep": ("ep:batches=2", 1),
    "cg": ("cg:iterations=1", 1),
    "is": ("is:rounds=4", 1),
    "pingpong": ("pingpong:bytes=8:trips=300", 2),
    "pingpong-large": ("pingpong:bytes=400001:trips=5", 2),
}


@pytest.mark.parametrize("name", SHORT)
def test_planted_work_takes_its_share_longer(
    tools: Path, tmp_path: Path, stack: ExitStack, name: str
) -> None:
    """Half as much work again, interleaved with none: the fastest slices stand as 1.5 to 1, and the work
    reported is the same."""
    short, ranks = SHORT[name]
    micro = start(tools, tmp_path, stack, short, f"{short}:extra=0.5", ranks=ranks)
    lines = [(micro.slice(0), micro.slice(1)) for _ in range(400)]
    assert all([p.work for p in a.parts] == [p.work for p in b.parts] for a, b in lines)
    plain, more = (min(sum(p.seconds for p in pair[k].parts) for pair in lines) for k in (0, 1))
    assert 1.35 < more / plain < 1.65


def test_nm_rank_pins_tells_and_becomes_the_program(tools: Path, tmp_path: Path) -> None:
    cpu = LocalHost().cpus()[-1]
    argv = [str(tools / "nm-rank"), "--cpus", f"0,{cpu}", "--places", str(tmp_path), "--"]
    done = LocalHost().run(
        [*argv, "cat", "/proc/self/status"], timeout=PATIENCE, env={"OMPI_COMM_WORLD_RANK": "1"}
    )
    assert done.ok, done.stderr
    assert f"Cpus_allowed_list:\t{cpu}\n" in done.stdout
    place = parse_place((tmp_path / "place.1.json").read_text())
    assert (place.rank, place.cpus) == (1, (cpu,))
    assert place.namespaces["user"] == Path("/proc/self/ns/user").stat().st_ino
    assert [p.name for p in tmp_path.iterdir()] == ["place.1.json"]


@pytest.mark.parametrize("variable", ["PMI_RANK", "PMIX_RANK", "SLURM_PROCID"])
def test_nm_rank_knows_its_rank_from_each_launcher(tools: Path, tmp_path: Path, variable: str) -> None:
    argv = [str(tools / "nm-rank"), "--places", str(tmp_path), "--", "true"]
    assert LocalHost().run(argv, timeout=PATIENCE, env={variable: "3"}).ok
    assert json.loads((tmp_path / "place.3.json").read_text())["rank"] == 3


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "usage"),
        (("true",), "usage"),
        (("--",), "usage"),
        (("--cpus", "0"), "usage"),
        (("--cpus", "x", "--", "true"), "number"),
        (("--cpus", "0,", "--", "true"), None),
        (("--cpus", "60000", "--", "true"), "pinned"),
        (("--cpus", "99999", "--", "true"), "no CPU 99999"),
        (("--places", "/nowhere-at-all", "--", "true"), "cannot be written"),
        (("--", "/nowhere-at-all"), "cannot be started"),
    ],
)
def test_nm_rank_says_what_is_wrong(tools: Path, argv: tuple[str, ...], words: str | None) -> None:
    done = LocalHost().run([str(tools / "nm-rank"), *argv], timeout=PATIENCE)
    assert done.ok == (words is None)
    assert (words or "") in done.stderr


def test_nm_rank_gives_a_rank_all_cpus_of_its_entry(tools: Path, tmp_path: Path) -> None:
    cpus = LocalHost().cpus()[:2]
    entry = "+".join(map(str, cpus))
    argv = [str(tools / "nm-rank"), "--cpus", f"0,{entry}", "--places", str(tmp_path), "--", "true"]
    assert LocalHost().run(argv, timeout=PATIENCE, env={"PMI_RANK": "1"}).ok
    assert parse_place((tmp_path / "place.1.json").read_text()).cpus == cpus


@pytest.mark.parametrize(("program", "status"), [(("sleep", "0.05"), 0), (("false",), 1)])
def test_nm_rank_measures_a_program_and_ends_as_it_did(
    tools: Path, tmp_path: Path, program: tuple[str, ...], status: int
) -> None:
    argv = [str(tools / "nm-rank"), "--usage", str(tmp_path), "--", *program]
    assert LocalHost().run(argv, timeout=PATIENCE).returncode == status
    usage = json.loads((tmp_path / "usage.0.json").read_text())
    assert (usage["rank"], usage["status"]) == (0, status)
    assert usage["wall"] >= (0.05 if status == 0 else 0.0)
    assert 0 <= usage["user"] + usage["system"] < usage["wall"] + 0.05 and usage["max_rss"] > 100_000


def test_nm_rank_without_an_entry_for_its_rank(tools: Path) -> None:
    argv = [str(tools / "nm-rank"), "--cpus", "0", "--", "true"]
    done = LocalHost().run(argv, timeout=PATIENCE, env={"PMI_RANK": "1"})
    assert not done.ok and "rank 1" in done.stderr


def test_a_second_call_only_looks(tmp_path: Path, tools: Path) -> None:
    again = build_tools(LocalHost(), tools.parents[1], progress=None)
    assert again.directory == tools and again.digest == tools.parent.name


def test_programs_are_not_linked_to_mpi_where_they_need_none(tools: Path) -> None:
    """Static where the machine has a static C library: then ldd says that there is nothing to list."""
    done = subprocess.run(["ldd", str(tools / "nm-rank")], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "mpi" not in said.replace(str(tools), "")
    assert "libc." in said or "not a dynamic executable" in said or "statically linked" in said
