"""The probe, between two network namespaces of the test: what it sees, what it costs, and where it ends."""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.patience import PATIENCE, one_fits

from nearmetal.environments import Tools
from nearmetal.host import LocalHost
from nearmetal.host.processes.labelled import tree
from nearmetal.lifecycle import RESTS, ProbeLog, ProbeResult, evaluate, read_probe_log
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment, MoveSubject
from nearmetal.network.build import Network, build_networks
from nearmetal.network.plan import NetworkRequest
from nearmetal.study_file import load_text
from nearmetal.subjects.events import probing

pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="named network namespaces need root"),
]
PERIOD, TCP_PERIOD = 0.5e-3, 10e-3
REST = RESTS[0]
STUDY = """\
name: moves
environments: {{guest: {{backend: qemu, image: debian-kernel, attachment: veth-bridge}}}}
placements: {{1x1: {{instances: 1, tasks: 1}}}}
workloads: {{moved: {{subject: migrate, time_limit: {limit}}}}}
design: {{baseline: guest, mode: plain}}
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    want = NetworkRequest(attachment=Attachment.VETH_BRIDGE, settings=NetworkSettings(), instances=1)
    label = f"nearmetal-check-{os.getpid()}-probe"
    with build_networks(label, [want], tmp_path_factory.mktemp("net")) as (made,):
        yield made


@contextmanager
def answering(tools: Tools, network: Network) -> Iterator[subprocess.Popen[bytes]]:
    inside = ["nsenter", f"--net={network.seats[0].netns}", "--", *probing.responder(tools)]
    process = subprocess.Popen(inside, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert "listening" in json.loads(process.stdout.readline())
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def asking(
    tools: Tools,
    network: Network,
    out: Path,
    seconds: float,
    *,
    linger: float = 1.0,
    rest: float = PERIOD,
    most: int | None = None,
) -> subprocess.Popen[bytes]:
    times = {"period": PERIOD, "rest": rest, "time": seconds, "tcp-every": TCP_PERIOD, "linger": linger}
    words = [word for name, value in times.items() for word in (f"--{name}", str(round(value * 1e9)))]
    words += [] if most is None else ["--most", str(most)]
    words = ["ask", "--address", network.seats[0].address, "--port", str(probing.PORT), *words]
    argv = network.hub_command([tools / "nm-probe", *words, "--out", str(out)])
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        assert "asking" in json.loads(said.readline()), "from then on its time counts"
    return process


def asked(tools: Tools, network: Network, out: Path, seconds: float, *, rest: float = PERIOD) -> ProbeLog:
    assert asking(tools, network, out, seconds, rest=rest).wait(PATIENCE) == 0
    return read_probe_log(out.read_text())


@pytest.mark.parametrize("rest", [PERIOD, REST])
def test_nothing_is_lost_or_doubled_where_nothing_happens(
    tools: Tools, network: Network, tmp_path: Path, rest: float
) -> None:
    def lost() -> int:
        with answering(tools, network):
            log = asked(tools, network, tmp_path / "log", 0.5, rest=rest)
        seen, stream = evaluate(log.udp, PERIOD, rest), evaluate(log.tcp, TCP_PERIOD)
        assert seen.doubled == 0 and 10 < seen.requests <= 0.5 / PERIOD + 1
        assert (stream.lost, stream.doubled) == (0, 0) and 5 < stream.requests <= 51 and log.broken is None
        assert 0 < seen.delay < seen.longest_delay
        return seen.lost

    # A responder that does not run for a tenth of a second has no room for further requests.
    one_fits(lost, lambda requests: requests == 0, attempts=10)


def test_the_time_of_an_answer_is_that_of_its_arrival(tools: Tools, network: Network, tmp_path: Path) -> None:
    """The client reads answers only when it sends the next request."""

    def delays() -> tuple[float, float]:
        with answering(tools, network):
            log = asked(tools, network, tmp_path / "log", 0.5, rest=REST)
        return evaluate(log.udp, PERIOD, REST).delay, evaluate(log.tcp, TCP_PERIOD).delay

    one_fits(delays, lambda seen: max(seen) < REST / 2, attempts=10)


def test_requests_by_tcp_are_as_far_apart_as_wanted(tools: Tools, network: Network, tmp_path: Path) -> None:
    """At rest the client wakes up as often: a wake-up that is earlier than the last must not send none."""

    def apart() -> float:
        with answering(tools, network):
            log = asked(tools, network, tmp_path / "log", 1.0, rest=TCP_PERIOD)
        return statistics.median(b.sent - a.sent for a, b in itertools.pairwise(log.tcp))

    one_fits(apart, lambda seen: seen == pytest.approx(TCP_PERIOD, rel=0.1), attempts=10)


def test_tcp_is_awaited_as_long_as_it_was_silent(tools: Tools, network: Network, tmp_path: Path) -> None:
    """Its lost requests come again only after as long a time."""
    out = tmp_path / "log"
    with answering(tools, network) as process:
        client = asking(tools, network, out, 60.0, linger=0.1)
        time.sleep(0.3)
        answerers = tree(process.pid)
        for pid in answerers:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.0)
        client.terminate()
        time.sleep(1.0)
        for pid in answerers:
            os.kill(pid, signal.SIGCONT)
        assert client.wait(PATIENCE) == 0
    log = read_probe_log(out.read_text())
    assert log.tcp[-1].answers and evaluate(log.tcp, TCP_PERIOD).gap > 2.0


@pytest.mark.parametrize("rest", [PERIOD, REST])
def test_a_standstill_is_seen_as_long_as_it_is(
    tools: Tools, network: Network, tmp_path: Path, rest: float
) -> None:
    def attempt() -> tuple[float, float, bool]:
        """Return how far the silence is off, the share of requests in it at the short period, and whether it
        was seen whole."""
        out = tmp_path / "log"
        with answering(tools, network) as process:
            client = asking(tools, network, out, 0.8, linger=5.0, rest=rest)
            time.sleep(0.3)
            begin = time.monotonic()
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            process.send_signal(signal.SIGCONT)
            stopped = time.monotonic() - begin
            assert client.wait(PATIENCE) == 0
        log = read_probe_log(out.read_text())
        seen, stream = evaluate(log.udp, PERIOD, rest), evaluate(log.tcp, TCP_PERIOD)
        assert log.broken is None and stream.lost == 0
        during = [t.step for t in log.udp if begin + 3 * rest < t.sent < begin + stopped]
        share = during.count(PERIOD) / max(1, len(during))
        return abs(seen.gap - stopped), share, seen.gap >= 0.2 - seen.resolution

    # A client that the machine delays may send one more request at the period of rest, and a standstill that
    # comes late may last longer than the client asks.
    one_fits(attempt, lambda seen: seen[0] < 0.03 and seen[1] > 0.9 and seen[2], 10)


def test_who_is_gone_leaves_requests_without_answers(tools: Tools, network: Network, tmp_path: Path) -> None:
    def attempt() -> ProbeResult:
        with answering(tools, network) as process:
            client = asking(tools, network, tmp_path / "log", 1.5, linger=0.1)
            time.sleep(0.3)
            process.kill()
            assert client.wait(PATIENCE) == 0
        log = read_probe_log((tmp_path / "log").read_text())
        assert log.broken is not None
        return evaluate(log.udp, PERIOD)

    # A client that the machine delays sends fewer requests.
    one_fits(
        attempt, lambda seen: seen.lost > 100 and seen.gap == pytest.approx(seen.unanswered, rel=0.3), 10
    )


def test_it_ends_early_with_what_it_has(tools: Tools, network: Network, tmp_path: Path) -> None:
    with answering(tools, network):
        client = asking(tools, network, tmp_path / "log", 500)
        time.sleep(0.3)
        client.send_signal(signal.SIGTERM)
        assert client.wait(PATIENCE) == 0
    assert 0 < len(read_probe_log((tmp_path / "log").read_text()).udp) < 1_000_000


@pytest.mark.parametrize(("limit", "seconds"), [("1 h", 3600), ("24 h", 86400)])
def test_it_asks_as_long_as_any_time_limit_of_a_study(
    tools: Tools, network: Network, tmp_path: Path, limit: str, seconds: float
) -> None:
    """It needs no memory for the requests of a day that it has not sent."""
    text = STUDY.format(limit=limit)
    (moved,) = load_text(text, "s.yaml", None, seed=1).events
    assert isinstance(moved, MoveSubject) and moved.longest == seconds
    probe = probing.Probe(
        host=LocalHost(),
        tools=tools,
        network=network,
        address=network.seats[0].address,
        directory=tmp_path,
    )
    with answering(tools, network):
        client = probe.begin(
            probing.Intervals(period=PERIOD, rest=REST), probing.MOST_SECONDS + moved.longest
        )
        time.sleep(0.3)
        (size,) = (
            int(line.split()[1])
            for line in Path(f"/proc/{client.process.pid}/status").read_text().splitlines()
            if line.startswith("VmData:")
        )
        log = client.end(early=True)
    assert log.udp and log.tcp and log.full is None and size < 4096, "KiB"


def test_it_ends_when_it_has_no_room_for_more_requests(
    tools: Tools, network: Network, tmp_path: Path
) -> None:
    out = tmp_path / "log"
    with answering(tools, network):
        assert asking(tools, network, out, 3600, most=5000).wait(PATIENCE) == 0
    log = read_probe_log(out.read_text())
    assert len(log.udp) == 5000 and log.full is not None and log.full > log.udp[-1].sent
    assert all(t.answers for t in log.udp[-10:]) and log.broken is None


def test_a_responder_can_follow_one_that_was_killed(tools: Tools, network: Network) -> None:
    """Its child ends a moment later."""
    for _ in range(20):
        with answering(tools, network):
            pass


def test_asking_seldom_at_rest_costs_much_less(tools: Tools, network: Network, tmp_path: Path) -> None:
    """At 500 us each request costs both ends a wake-up, and at rest a tenth of them."""

    def share(rest: float) -> float:
        with answering(tools, network) as process:
            before, begin = _cpu(process.pid), time.monotonic()
            client = asking(tools, network, tmp_path / "log", 1.0, rest=rest)
            _, status, spent = os.wait4(client.pid, 0)
            client.returncode = status
            outside = spent.ru_utime + spent.ru_stime
            used = _cpu(process.pid) - before + outside
            assert status == 0 and 0 < read_probe_log((tmp_path / "log").read_text()).cpu <= outside
            return used / (time.monotonic() - begin)

    one_fits(lambda: share(REST) / share(PERIOD), lambda ratio: ratio < 0.6, 10)


def _cpu(pid: int) -> float:
    """CPU seconds of a process by its time on the CPU, which is exact unlike that of ticks."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def test_the_dirtier_checks_what_it_wrote(tools: Tools) -> None:
    argv = [tools / "nm-probe", "dirty", "--bytes", str(8 << 20), "--rate", str(64 << 20)]
    begin = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert "dirtying" in json.loads(process.stdout.readline())
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    *_, last = process.stdout.read().splitlines()
    process.stdout.close()
    assert process.wait(PATIENCE) == 0
    told = json.loads(last)
    assert told["wrong"] == 0 and 0 < told["pages"] <= 64 * 256 * (time.monotonic() - begin)
    assert told["passes"] == told["pages"] // 2048


def test_the_dirtier_writes_no_faster_than_a_low_rate(tools: Tools) -> None:
    argv = [tools / "nm-probe", "dirty", "--bytes", str(8 << 20), "--rate", str(10 * 4096)]
    begin = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    while (progress := json.loads(process.stdout.readline())).get("written", 0) < 4:
        pass
    process.send_signal(signal.SIGTERM)
    *more, last = map(json.loads, process.stdout.read().splitlines())
    progress = more[-1] if more else progress
    process.stdout.close()
    assert process.wait(PATIENCE) == 0
    assert 0 < last["pages"] <= 10 * (time.monotonic() - begin)
    assert progress["written"] <= last["pages"]  # it also tells its progress between two pages


def test_the_dirtier_does_not_catch_up_after_a_standstill(tools: Tools) -> None:
    pages, standstill = 16384, 1.0
    argv = [tools / "nm-probe", "dirty", "--bytes", str(8 << 20), "--rate", str(pages * 4096)]
    begin = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert "dirtying" in json.loads(process.stdout.readline())
    time.sleep(0.2)
    process.send_signal(signal.SIGSTOP)
    time.sleep(standstill)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    *_, last = process.stdout.read().splitlines()
    process.stdout.close()
    assert process.wait(PATIENCE) == 0
    running = time.monotonic() - begin - standstill
    assert 0 < json.loads(last)["pages"] < pages * (running + standstill / 2)


def test_probe_without_a_server_reports_refusal(tools: Tools, network: Network, tmp_path: Path) -> None:
    words = ["ask", "--address", network.seats[0].address, "--port", "9", "--time", "1000000"]
    words += ["--period", "1000000", "--tcp-every", "1000000", "--out", str(tmp_path / "log")]
    done = subprocess.run(
        network.hub_command([tools / "nm-probe", *words]), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1 and "does not answer: Connection refused" in done.stderr
