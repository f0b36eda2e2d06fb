"""Counters: parsed from what kernels write; missing is None, never zero; disturbance is what is left over."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host import LocalHost
from nearmetal.host.counters.files import CounterFiles, cgroup_paths, node_paths
from nearmetal.host.counters.procfiles import CounterUnits, instance_counters, node_counters
from nearmetal.host.counters.trial import Snapshot, delta, disturbance, flags, online_cpus, snapshot
from nearmetal.testing.fake_host import FakeHost

SCALE = CounterUnits(tick=100, page=4096)
STAT = b"""cpu  1000 20 300 5000 60 7 8 9 0 0
cpu0 500 10 150 2500 30 3 4 5 0 0
intr 12345 0 1 2
ctxt 67890
btime 1700000000
procs_running 2
"""
NODE = {
    "stat": STAT,
    "vmstat": b"nr_free_pages 10\nxpgpgin 9\npgpgin 4\npgpgout 8\npswpin 1\npswpout 2\n",
    "meminfo": b"MemTotal:       100 kB\nMemFree:         50 kB\nMemAvailable:    60 kB\n"
    b"SwapTotal: 10 kB\nSwapFree: 4 kB\n",
    "loadavg": b"0.50 0.25 0.10 1/100 4242\n",
    "pressure.cpu": b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=3\n",
    "pressure.memory": b"some avg10=0.00 total=1000000\nfull avg10=0.00 total=500000\n",
    "pressure.io": b"some avg10=0.00 total=0\nfull avg10=0.00 total=0\n",
    "cpuacct.usage": b"13400000000\n",
}
V1 = {
    "cpuacct.usage": b"2500000000\n",
    "cpuacct.stat": b"user 200\nsystem 50\n",
    "memory.usage_in_bytes": b"4096\n",
    "memory.stat": b"cache 1\nswap 7\ntotal_swap 9\n",
    "blkio.throttle.io_service_bytes": b"8:0 Read 10\n8:0 Write 20\n8:16 Read 1\n8:0 Total 30\nTotal 31\n",
}
V2 = {
    "cpu.stat": b"usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 0\n",
    "memory.current": b"4096\n",
    "memory.swap.current": b"9\n",
    "io.stat": b"8:0 rbytes=10 wbytes=20 rios=1 wios=1\n8:16 rbytes=1 wbytes=0\n",
    "cpu.pressure": b"some avg10=0.00 total=2000000\n",
}


def test_node_in_base_units() -> None:
    found = node_counters(NODE, SCALE)
    assert (found["user"], found["steal"], found["idle"]) == (10.0, 0.09, 50.0)
    assert found["busy"] == 13.4  # the scheduler's clock
    assert (found["interrupts"], found["context_switches"]) == (12345, 67890)
    assert (found["blocks_in"], found["blocks_out"]) == (4096, 8192)
    assert (found["swap_in"], found["swap_out"]) == (4096, 8192)
    assert (found["memory_free"], found["memory_available"]) == (51200, 61440)
    assert (found["load1"], found["pressure_cpu_some"], found["pressure_memory_full"]) == (0.5, 1.5, 0.5)


def test_busy_without_a_root_cgroup_is_the_sum_of_ticks() -> None:
    found = node_counters({"stat": STAT}, SCALE)
    assert found["busy"] == pytest.approx((1000 + 20 + 300 + 7 + 8) / 100)
    exact = node_counters({"stat": STAT, "cpu.stat": b"usage_usec 13400000\n"}, SCALE)
    assert exact["busy"] == 13.4


def test_free_memory_from_vmstat_where_meminfo_was_not_read() -> None:
    found = node_counters({"vmstat": NODE["vmstat"]}, SCALE)
    assert found["memory_free"] == 40960
    assert found["memory_available"] is None


def test_unreadable_counters_are_none_under_the_same_names() -> None:
    for parse_files, full in ((node_counters, NODE), (instance_counters, V1)):
        empty = parse_files({}, SCALE)
        assert empty.keys() == parse_files(full, SCALE).keys()
        assert set(empty.values()) == {None}


def test_a_kernel_without_the_steal_column_has_no_steal() -> None:
    found = node_counters({"stat": b"cpu  10 0 3 50 6\n"}, SCALE)
    assert found["steal"] is None
    assert found["user"] == 0.1
    assert found["busy"] is None  # irq and softirq are missing


@pytest.mark.parametrize("files", [V1, V2])
def test_instances_of_both_versions_agree(files: dict[str, bytes]) -> None:
    found = instance_counters(files, SCALE)
    assert (found["cpu"], found["user"], found["system"]) == (2.5, 2.0, 0.5)
    assert (found["memory"], found["swap"]) == (4096, 9)
    assert (found["blocks_in"], found["blocks_out"]) == (11, 20)


def test_v1_has_no_pressure_and_v2_has() -> None:
    assert instance_counters(V1, SCALE)["pressure_cpu_some"] is None
    assert instance_counters(V2, SCALE)["pressure_cpu_some"] == 2.0


def test_no_request_yet_is_a_measured_zero() -> None:
    assert instance_counters({"io.stat": b""}, SCALE)["blocks_in"] == 0.0
    assert instance_counters({"blkio.throttle.io_service_bytes": b"Total 0\n"}, SCALE)["blocks_in"] == 0.0
    assert instance_counters({}, SCALE)["blocks_in"] is None


def test_disk_accounts_hold_the_groups_below_where_the_kernel_has_them() -> None:
    account = "blkio.throttle.io_service_bytes"
    files = {account: b"8:0 Read 0\nTotal 0\n", f"{account}_recursive": b"8:0 Read 7\nTotal 7\n"}
    assert instance_counters(files, SCALE)["blocks_in"] == 7.0


names = st.sampled_from([*NODE, *V1, *V2])


@given(st.dictionaries(names, st.binary(max_size=80)))
def test_noise_parses_to_numbers_or_none(files: dict[str, bytes]) -> None:
    for counters in (node_counters(files, SCALE), instance_counters(files, SCALE)):
        assert all(v is None or (type(v) in (int, float) and v >= 0) for v in counters.values())


@given(st.integers(0, len(STAT)))
def test_a_cut_file_gives_none_or_less_never_an_error(cut: int) -> None:
    whole = node_counters({"stat": STAT}, SCALE)
    for name, value in node_counters({"stat": STAT[:cut]}, SCALE).items():
        full = whole[name]
        assert value is None or (full is not None and value <= full)


def fake(**files: bytes) -> FakeHost:
    texts: dict[str, str | bytes] = {
        "/proc/stat": files.get("stat", STAT),
        "/proc/vmstat": NODE["vmstat"],
        "/proc/meminfo": NODE["meminfo"],
        "/proc/loadavg": NODE["loadavg"],
        "/sys/fs/cgroup/cpuacct/release_agent": b"\n",
        "/sys/fs/cgroup/cpuacct/cpuacct.usage": files.get("usage", b"13400000000\n"),
        "/cg/cpuacct.usage": files.get("instance", b"1000000000\n"),
        "/cg/cpuacct.stat": b"user 80\nsystem 20\n",
    }
    return FakeHost(files=texts, absent=["/proc/pressure/*"])


def test_differences_of_two_snapshots() -> None:
    before, after = fake(), fake(stat=STAT.replace(b"cpu  1000", b"cpu  1100"), usage=b"14400000000\n")
    d = delta(snapshot(before), snapshot(after), 2.0)
    assert d["seconds"] == 2.0
    assert d["user"] == 1.0
    assert d["busy"] == pytest.approx(1.0)
    assert d["steal"] == 0.0
    assert d["pressure_io_some"] is None
    assert "load1" not in d


def test_a_counter_that_ran_backwards_is_unknown_a_level_may_fall() -> None:
    before, after = snapshot(fake()), snapshot(fake(stat=STAT.replace(b"ctxt 67890", b"ctxt 5")))
    assert delta(before, after, 1.0)["context_switches"] is None
    lower = fake()
    lower.files["/proc/meminfo"] = b"MemFree: 40 kB\n"
    assert delta(before, snapshot(lower), 1.0)["memory_free"] == -10240
    assert delta(before, snapshot(lower), 1.0)["memory_available"] is None


def test_an_instance_without_cgroups_is_unavailable() -> None:
    d = delta(snapshot(fake(), {}), snapshot(fake(), {}), 1.0)
    assert d["cpu"] is None
    cgroups = {"cpuacct": Path("/cg")}
    d = delta(snapshot(fake(), cgroups), snapshot(fake(instance=b"1500000000\n"), cgroups), 1.0)
    assert d["cpu"] == 0.5


def test_other_processes_are_what_is_left() -> None:
    node = {"busy": 5.0, "steal": 0.08}
    found = disturbance(node, [{"cpu": 3.0}, {"cpu": 1.0}], 0.2, 4.0, 2)
    assert found["other_cpu_share"] == pytest.approx(0.1)
    assert found["steal_share"] == pytest.approx(0.01)
    assert found["share_resolution"] == pytest.approx(0.0025)
    assert flags(found) == ("disturbed: other processes 10.0 % of the CPU",)


def test_other_processes_are_never_negative() -> None:
    assert disturbance({"busy": 1.0}, [{"cpu": 1.1}], 0.0, 1.0, 2)["other_cpu_share"] == 0.0


@pytest.mark.parametrize("instances", [[{"cpu": None}], [{"cpu": 1.0}, {}]])
def test_an_instance_without_an_account_makes_it_unavailable(
    instances: list[dict[str, float | None]],
) -> None:
    found = disturbance({"busy": 5.0, "steal": None}, instances, 0.0, 1.0, 2)
    assert found["other_cpu_share"] is None
    assert found["steal_share"] is None
    assert flags(found) == ()


def test_no_time_is_no_share() -> None:
    assert set(disturbance({"busy": 5.0, "steal": 1.0}, [], 0.0, 0.0, 2).values()) == {None}


@pytest.mark.parametrize(
    ("seconds", "other", "steal", "flagged"),
    [
        (4.0, 0.019, 0.0, 0),
        (4.0, 0.03, 0.0, 1),
        (4.0, 0.03, 0.02, 2),
        (0.1, 0.05, 0.05, 0),  # one tick of a short trial proves nothing
        (0.1, 0.2, 0.0, 1),
    ],
)
def test_flags_ask_for_more_than_the_granularity(
    seconds: float, other: float, steal: float, flagged: int
) -> None:
    node = {"busy": other * seconds * 2, "steal": steal * seconds * 2}
    assert len(flags(disturbance(node, [], 0.0, seconds, 2))) == flagged


def test_the_clock_of_a_cgroup_namespace_is_not_the_nodes() -> None:
    inside = FakeHost(
        files={
            "/sys/fs/cgroup/cpu.stat": b"usage_usec 1\n",
            "/sys/fs/cgroup/cgroup.type": b"domain\n",
        },
        absent=["/sys/fs/cgroup/*"],
    )
    assert not {"cpu.stat", "cpuacct.usage"} & node_paths(inside).keys()
    outside = FakeHost(files={"/sys/fs/cgroup/cpu.stat": b"usage_usec 1\n"}, absent=["/sys/fs/cgroup/*"])
    assert node_paths(outside)["cpu.stat"] == "/sys/fs/cgroup/cpu.stat"


def test_files_of_cgroups() -> None:
    joined = cgroup_paths(dict.fromkeys(("cpu", "cpuacct"), Path("/c")) | {"memory": Path("/m")})
    assert joined["cpuacct.usage"] == "/c/cpuacct.usage"
    assert joined["memory.stat"] == "/m/memory.stat"
    assert joined["cpu.stat"] == "/c/cpu.stat"
    assert len(joined) == 6
    assert cgroup_paths({"devices": Path("/d")}) == {}
    assert cgroup_paths({"unified": Path("/u")})["io.stat"] == "/u/io.stat"


@pytest.mark.parametrize("held", [True, False])
def test_files_that_are_read_again_and_again(tmp_path: Path, held: bool) -> None:
    file = tmp_path / "usage"
    file.write_bytes(b"1\n")
    paths = {"usage": str(file), "absent": str(tmp_path / "absent"), "other": "/proc/loadavg"}
    files = CounterFiles(LocalHost(), paths, held=held)
    try:
        assert files.read(("usage", "absent")) == {"usage": b"1\n"}
        file.write_bytes(b"x" * 200_000)  # more than one read gives
        assert files.read()["usage"] == b"x" * 200_000
        file.write_bytes(b"3\n")
        assert files.read().keys() == {"usage", "other"}
        assert files.read(["usage"])["usage"] == b"3\n"
    finally:
        files.close()
        files.close()


def test_the_node_tells_how_many_cpus_it_has() -> None:
    assert online_cpus(snapshot(fake())) == 1
    assert online_cpus(Snapshot(node=True, files={})) == 0
