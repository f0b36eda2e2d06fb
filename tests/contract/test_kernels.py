"""The C programs, built from this tree: every kernel verified, slices by token, places, extra work."""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

import pytest
from tests.patience import PATIENCE, one_fits

from nearmetal.errors import TrialFailedError
from nearmetal.host import Completed, LocalHost
from nearmetal.host.facts.provenance import cpu_flags
from nearmetal.host.runtime import cache_directory
from nearmetal.model.record import Status
from nearmetal.model.study import KernelWorkload, Transport
from nearmetal.subjects.launches.profiles import read_profiles
from nearmetal.workloads.build import build_tools, compiler_flags
from nearmetal.workloads.kernels.registry import argument, kernel, kernel_names, parameters, rows
from nearmetal.workloads.protocol import (
    Line,
    RankReport,
    ReadyLine,
    SliceLine,
    VerifyLine,
    parse_line,
    parse_report,
)

MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "NEARMETAL_STORAGE": tempfile.gettempdir(),  # for kernels that write; they remove it again
}
BTL = {
    Transport.SHM: ("--mca", "btl", "vader,self"),
    Transport.TCP: ("--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"),
}


@pytest.fixture(scope="session")
def tools() -> Path:
    return build_tools(LocalHost(), cache_directory(), progress=None).directory


@pytest.fixture(scope="session")
def tools_without_avx512() -> Path:
    if "avx2" not in cpu_flags(LocalHost()):
        pytest.skip("this processor is not an x86-64 with AVX2")
    flags = compiler_flags("x86-64-v3")
    return build_tools(LocalHost(), cache_directory(), progress=None, flags=flags).directory


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


def spec(name: str, ranks: int) -> str:
    load = KernelWorkload(name=name, kernel=name, params={})
    return argument(load, ranks=ranks, llc_bytes=1 << 20, extra=0.0)


def runs_on(name: str, ranks: int) -> bool:
    return ranks >= kernel(name).least_ranks and kernel(name).ranks.allow(ranks)


def several(name: str) -> int:
    """The fewest ranks but one that a kernel runs on."""
    return next(ranks for ranks in range(2, 5) if runs_on(name, ranks))


def kernels_for(ranks: int) -> list[str]:
    """Those tested on so many ranks: each on one, where it runs on one, and on as few others as it can."""
    return [name for name in kernel_names() if runs_on(name, ranks) and ranks in (1, several(name))]


@pytest.mark.more
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_kernel_is_verified(tools: Path, ranks: int) -> None:
    names = kernels_for(ranks)
    done = once(tools, ranks, *(f"{name}:pages=4k" for name in names))
    assert done.ok, done.failure()
    ready, *lines = [parse_line(text) for text in done.stdout.splitlines()]
    assert isinstance(ready, ReadyLine) and ready.ranks == ranks and "MPI" in ready.mpi
    assert [line.name for line in lines if isinstance(line, VerifyLine) and line.ok] == names


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_kernel_that_computes_is_verified_without_avx512(
    tools_without_avx512: Path, ranks: int
) -> None:
    names = [name for name in kernels_for(ranks) if "class" in parameters(name)]
    done = once(tools_without_avx512, ranks, *(f"{name}:class=S" for name in names))
    assert done.ok, done.failure()
    lines = [parse_line(text) for text in done.stdout.splitlines()]
    assert [line.name for line in lines if isinstance(line, VerifyLine) and line.ok] == names


@pytest.mark.more
def test_the_profile_of_a_kernel_agrees_with_its_wall_time(tools: Path, tmp_path: Path) -> None:
    """Two clocks: the profile's own inside the rank, nm-rank's around it."""
    rank = [str(tools / "nm-rank"), "--report", str(tmp_path)]
    rank += ["--preload", str(tools / "libnm-profile.so"), "--profile", str(tmp_path)]
    argv = [*mpirun(2), *rank, "--", str(tools / "nm-micro"), "--once", "is:class=S", "cg:class=A"]
    done = LocalHost().run(argv, timeout=PATIENCE, env=MPI_ENVIRONMENT)
    assert done.ok, done.failure()
    missing = []
    for number, found in enumerate(read_profiles(tmp_path, 2)):
        whole, first, second = found.whole(), found.kernel(0), found.kernel(1)
        wall = parse_report((tmp_path / f"rank.{number}.json").read_text()).wall
        missing.append(wall - whole.seconds)
        # IS sends in collective calls alone, CG to its partner: each kernel's run is a section of its own.
        assert first.messages == 0 and first.calls["MPI_Alltoallv"].count > 0
        assert second.messages == whole.messages - 2 > 100
        assert "MPI_Alltoallv" not in second.calls
    # A busy machine parts the two clocks at the begin and at the end, and not those of all ranks alike.
    allowed = 0.02 * wall + 0.02
    assert min(map(abs, missing)) < allowed and max(map(abs, missing)) < allowed + 0.5


def test_one_run_may_go_on_with_slices(tools: Path) -> None:
    done = once(tools, 2, "--slices", "2", "barrier:units=10", "dirty:bytes=8192:units=1")
    _, *lines = [parse_line(text) for text in done.stdout.splitlines()]
    assert [(type(line), line.name) for line in lines if isinstance(line, VerifyLine | SliceLine)] == [
        (kind, name) for name in ("barrier", "dirty") for kind in (VerifyLine, SliceLine, SliceLine)
    ]


@pytest.mark.more
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_spoiled_value_fails_the_verification_of_every_kernel(tools: Path, ranks: int) -> None:
    names = kernels_for(ranks)
    done = once(tools, ranks, *(f"{name}:corrupt=1" for name in names))
    assert done.returncode == 1
    lines = [parse_line(text) for text in done.stdout.splitlines() if text.startswith("{")]
    found = {line.name: line.ok for line in lines if isinstance(line, VerifyLine)}
    assert found == dict.fromkeys(names, False)


@pytest.mark.parametrize(
    "words", ["fft", "ep:klass=S", "ep:class=Z", "ep:units=0", "stream:elements", "cg:extra=-1"]
)
def test_a_wrong_spec_is_an_error_line_and_a_status(tools: Path, words: str) -> None:
    done = once(tools, 1, words)
    assert not done.ok
    line = next(text for text in done.stderr.splitlines() if text.startswith("{"))
    with pytest.raises(TrialFailedError, match=words.split(":")[-1].split("=")[0]):
        parse_line(line)


@pytest.mark.parametrize("transport", list(Transport))
@pytest.mark.parametrize("ranks", [2, 4])
def test_slices_and_verifications_by_token(
    tools: Path, tmp_path: Path, stack: ExitStack, transport: Transport, ranks: int
) -> None:
    names = kernels_for(ranks)
    specs = [spec(name, ranks) for name in names]
    micro = start(tools, tmp_path, stack, *specs, ranks=ranks, transport=transport)
    assert isinstance(micro.ready, ReadyLine)
    assert [place.rank for place in micro.ready.places] == list(range(ranks))
    own = {kind: (Path("/proc/self/ns") / kind).stat().st_ino for kind in ("mnt", "net", "pid")}
    for place in micro.ready.places:
        assert len(place.cpus) == 1
        assert {kind: place.namespaces[kind] for kind in own} == own
    for number, name in enumerate(names):
        lines = [micro.slice(number) for _ in range(3)]
        verify = micro.verify(number)
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


@pytest.mark.parametrize("wait", ["block", "spin"])
def test_a_lost_datagram_fails_its_slice_and_no_other(
    tools: Path, tmp_path: Path, stack: ExitStack, wait: str
) -> None:
    """64 answers go to the verification, 50 to each slice: the 120th is one of the second slice."""
    micro = start(tools, tmp_path, stack, f"udp:bytes=8:units=50:drop=120:wait={wait}")
    verify, lines = micro.verify(0), [micro.slice(0) for _ in range(3)]
    assert verify.ok
    assert [line.parts[0].work for line in lines] == [100, 0, 100]
    assert lines[1].parts[0].seconds >= 0.5
    (row,) = rows(KernelWorkload(name="udp", kernel="udp", params={}), lines, verify)
    assert row.status is Status.FAILED and row.reason == "1 of 3 time shares lost a datagram"


def is_rank(process: Path, place: Path) -> bool:
    """Whether a process is nm-micro at the FIFOs of a place. Others may end meanwhile."""
    try:
        named = (process / "comm").read_bytes() == b"nm-micro\n"
        return named and bytes(place) in (process / "cmdline").read_bytes()
    except OSError:
        return False


def sockets_of(process: Path) -> set[str]:
    """Inodes of the sockets that a process holds."""
    links = [str(descriptor.readlink()) for descriptor in (process / "fd").iterdir()]
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_sockets_bind_to_the_interface_and_to_no_other(
    tools: Path, tmp_path: Path, stack: ExitStack, protocol: str
) -> None:
    start(tools, tmp_path, stack, "--interface", "lo", f"{protocol}:bytes=8")
    table = Path("/proc/net") / protocol
    bound = {fields[9]: (fields[1], fields[2]) for fields in map(str.split, table.read_text().splitlines())}
    ranks = [process for process in Path("/proc").glob("[0-9]*") if is_rank(process, tmp_path)]
    assert len(ranks) == 2
    ends = [[bound[i] for i in sockets_of(rank) if i in bound] for rank in ranks]
    loopback = "0100007F:"
    talking = [[e for e in own if e[0].startswith(loopback) and e[1].startswith(loopback)] for own in ends]
    assert any((there, here) in talking[1] for here, there in talking[0])
    # What else is open is MPI's own, which udp leaves without any.
    assert protocol == "tcp" or talking == ends


def test_memory_is_dirtied_at_the_rate_asked_for(tools: Path, tmp_path: Path, stack: ExitStack) -> None:
    """The deadlines are absolute: a slice is never shorter, and an undisturbed one no longer."""
    micro = start(tools, tmp_path, stack, "dirty:bytes=4194304:rate=100e6:units=25")

    def shortest() -> float:
        return min(micro.slice(0).parts[0].seconds for _ in range(100)) * 100e6 / (50 * 4096)

    assert one_fits(shortest, lambda ratio: ratio < 1.02, attempts=50) >= 1


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


# Slices of a millisecond or less, on one rank where one is enough: between other processes' turns there is
# always room for some of them undisturbed.
SHORT = {
    # Arrays that lie in the second level of any cache, with the planted half and without.
    "stream": ("stream:elements=5000:units=400000", 1),
    "ep": ("ep:units=128", 1),
    "cg": ("cg:units=1", 1),
    "is": ("is:units=4", 1),
    "mg": ("mg:units=3", 1),
    "lu": ("lu:units=4", 1),
    "ft": ("ft:units=2", 1),
    "bt": ("bt:units=4", 1),
    "pingpong": ("pingpong:bytes=8:units=300", 2),
    "pingpong-large": ("pingpong:bytes=400001:units=5", 2),
    "ring": ("ring:bytes=8:patterns=2:units=60", 2),
    "ring-large": ("ring:bytes=100001:patterns=2:units=2", 2),
    "allreduce": ("allreduce:bytes=8:units=300", 2),
    "tcp": ("tcp:bytes=8:units=40:wait=spin", 2),
    # Hundreds of pages: how well a CPU guesses the end of a short row depends on what it did before.
    "dirty": ("dirty:bytes=1600000:units=20000", 1),
    "dirty-paced": ("dirty:bytes=100000:units=200:rate=4e9", 1),
}


LAUNCHES = 3
PAIRS = 50


@pytest.fixture(scope="module")
def planted(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[Micro]]]:
    """By the name of a short slice: launches that hold all of its number of ranks, each without and with half
    as much work again."""
    with ExitStack() as stack:
        launched: dict[int, list[Micro]] = {}

        def launches(name: str) -> list[Micro]:
            ranks = SHORT[name][1]
            if ranks not in launched:
                specs = [f"{spec}{more}" for spec in of_ranks(ranks) for more in ("", ":extra=0.5")]
                places = [tmp_path_factory.mktemp("planted") for _ in range(LAUNCHES)]
                launched[ranks] = [start(tools, place, stack, *specs, ranks=ranks) for place in places]
            return launched[ranks]

        yield launches


def of_ranks(ranks: int) -> list[str]:
    return [spec for spec, own in SHORT.values() if own == ranks]


@pytest.mark.more
@pytest.mark.parametrize("name", SHORT)
def test_planted_work_takes_its_share_longer(planted: Callable[[str], list[Micro]], name: str) -> None:
    """Half as much work again, interleaved with none: the slices stand as 1.5 to 1, and the work reported is
    the same. Compared are the slices that hardly anything disturbed, and of several launches the middle one
    counts: memory lies elsewhere in each."""
    spec, ranks = SHORT[name]
    first = 2 * of_ranks(ranks).index(spec)

    def ratio() -> float:
        ratios = []
        for micro in planted(name):
            lines = [(micro.slice(first), micro.slice(first + 1)) for _ in range(PAIRS)]
            assert all([p.work for p in a.parts] == [p.work for p in b.parts] for a, b in lines)
            plain, more = ([sum(p.seconds for p in pair[k].parts) for pair in lines] for k in (0, 1))
            ratios.append(quantiles(more, n=10)[0] / quantiles(plain, n=10)[0])
        return median(ratios)

    one_fits(ratio, lambda r: 1.3 < r < 1.65, attempts=10)


def report_of(directory: Path, rank: int) -> RankReport:
    return parse_report((directory / f"rank.{rank}.json").read_text())


def test_nm_rank_pins_itself_reports_and_executes_the_program(tools: Path, tmp_path: Path) -> None:
    cpu = LocalHost().cpus()[-1]
    argv = [str(tools / "nm-rank"), "--cpus", f"0,{cpu}", "--report", str(tmp_path), "--"]
    done = LocalHost().run(
        [*argv, "cat", "/proc/self/status"], timeout=PATIENCE, env={"OMPI_COMM_WORLD_RANK": "1"}
    )
    assert done.ok, done.stderr
    assert f"Cpus_allowed_list:\t{cpu}\n" in done.stdout
    place = report_of(tmp_path, 1).place
    assert (place.rank, place.cpus) == (1, (cpu,))
    assert place.namespaces["user"] == Path("/proc/self/ns/user").stat().st_ino
    assert [p.name for p in tmp_path.iterdir()] == ["rank.1.json"]


@pytest.mark.parametrize("variable", ["PMI_RANK", "PMIX_RANK", "SLURM_PROCID"])
def test_nm_rank_knows_its_rank_from_each_launcher(tools: Path, tmp_path: Path, variable: str) -> None:
    argv = [str(tools / "nm-rank"), "--report", str(tmp_path), "--", "true"]
    assert LocalHost().run(argv, timeout=PATIENCE, env={variable: "3"}).ok
    assert report_of(tmp_path, 3).place.rank == 3


def test_nm_rank_with_a_given_rank_leaves_the_launcher_around_alone(tools: Path, tmp_path: Path) -> None:
    argv = [str(tools / "nm-rank"), "--rank", "0", "--report", str(tmp_path), "--", "env"]
    around = {"SLURM_PROCID": "x", "MPI_LOCALRANKID": "0", "PMI_FD": "1"}
    done = LocalHost().run(argv, timeout=PATIENCE, env=around)
    assert done.ok and report_of(tmp_path, 0).place.rank == 0
    assert all(f"{name}={value}" in done.stdout.splitlines() for name, value in around.items())


def test_nm_rank_gives_a_program_what_its_caller_has(tools: Path, tmp_path: Path) -> None:
    limits = [":".join(map(str, resource.getrlimit(kind))) for kind in range(16)]
    limits[resource.RLIMIT_CORE] = "0:0"
    state = f"077 {os.getpriority(os.PRIO_PROCESS, 0)} 1000 800 0 {' '.join(limits)}"
    shown = "grep SigIgn /proc/self/status; umask; ulimit -Hc; cat /proc/self/oom_score_adj; echo $A $PWD"
    argv = [str(tools / "nm-rank"), "--rank", "0", "--report", str(tmp_path), "--caller", state]
    argv += ["--here", str(tmp_path), "--variable", "A=b c", "--", "sh", "-c", shown]
    deaf = ["sh", "-c", "trap '' PIPE; exec \"$@\"", "sh", *argv]
    done = LocalHost().run(deaf, timeout=PATIENCE)
    assert done.ok, done.stderr
    _, ignored, *said = done.stdout.split()
    of_the_c_library = 0b11 << 31  # signals 32 and 33, which no program can set
    assert int(ignored, 16) & ~of_the_c_library == 0x800
    assert said == ["0077", "0", "1000", "b", "c", str(tmp_path)]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "usage"),
        (("true",), "usage"),
        (("--",), "usage"),
        (("--cpus", "0"), "usage"),
        (("--caller", "x", "--", "true"), "number"),
        (("--variable", "x", "--", "true"), "NAME=VALUE"),
        (("--cpus", "x", "--", "true"), "number"),
        (("--cpus", "0,", "--", "true"), None),
        (("--cpus", "60000", "--", "true"), "pinned"),
        (("--cpus", "99999", "--", "true"), "no CPU 99999"),
        (("--report", "/nowhere-at-all", "--", "true"), "cannot be written"),
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
    argv = [str(tools / "nm-rank"), "--cpus", f"0,{entry}", "--report", str(tmp_path), "--", "true"]
    assert LocalHost().run(argv, timeout=PATIENCE, env={"PMI_RANK": "1"}).ok
    assert report_of(tmp_path, 1).place.cpus == cpus


@pytest.mark.parametrize(("program", "status"), [(("sleep", "0.05"), 0), (("false",), 1)])
def test_nm_rank_measures_a_program_and_ends_as_it_did(
    tools: Path, tmp_path: Path, program: tuple[str, ...], status: int
) -> None:
    argv = [str(tools / "nm-rank"), "--report", str(tmp_path), "--", *program]
    assert LocalHost().run(argv, timeout=PATIENCE).returncode == status
    usage = json.loads((tmp_path / "rank.0.json").read_text())
    assert (usage["place"]["rank"], usage["status"]) == (0, status)
    assert usage["wall"] >= (0.05 if status == 0 else 0.0)
    assert 0 <= usage["user"] + usage["system"] < usage["wall"] + 0.05 and usage["max_rss"] > 100_000


def test_nm_rank_tells_a_program_its_storage_and_who_runs_it(tools: Path) -> None:
    argv = [str(tools / "nm-rank"), "--rank", "1", "--storage", "/a,/b c", "--"]
    words = ["{storage}/x:{storage}", "{uid:gid}"]
    program = ["sh", "-c", 'echo "$NEARMETAL_STORAGE" "$@"', "sh", *words]
    done = LocalHost().run([*argv, *program], timeout=PATIENCE)
    assert done.stdout == f"/b c /b c/x:/b c {os.geteuid()}:{os.getegid()}\n"
    missing = LocalHost().run([*argv[:2], "2", *argv[3:], "true"], timeout=PATIENCE)
    assert not missing.ok and "none for rank 2" in missing.stderr


def test_nm_rank_waits_at_the_gate_with_all_others(tools: Path, tmp_path: Path) -> None:
    for name in ("arrived", "gate"):
        os.mkfifo(tmp_path / name)
    arrived = os.open(tmp_path / "arrived", os.O_RDWR)
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    try:
        argv = [str(tools / "nm-rank"), "--gate", str(tmp_path), "--report", str(tmp_path)]
        clock = ["date", "+%s.%N"]
        waiting = [
            LocalHost().start(
                [*argv, "--rank", str(rank), "--", *clock],
                stdout=tmp_path / f"out.{rank}",
                stderr=tmp_path / f"err.{rank}",
            )
            for rank in range(3)
        ]
        for _ in waiting:
            assert os.read(arrived, 1) == b"."
        time.sleep(0.1)
        assert all(process.poll() is None for process in waiting)
        released = time.time()
    finally:
        os.close(gate)
        os.close(arrived)
    assert [process.wait(PATIENCE) for process in waiting] == [0, 0, 0]
    ended = time.time()
    begun = [float((tmp_path / f"out.{rank}").read_text()) for rank in range(3)]
    assert min(begun) > released
    # The time at the gate is no time of the program.
    assert all(report_of(tmp_path, rank).wall < ended - released for rank in range(3))


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
