"""fio: its arguments, and what its JSON gives, whole or not; what stands below direct requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.workloads.applications.contract import Metric, Output, Parsed, Place
from nearmetal.workloads.applications.fio import RESULT, Fio, roof, roof_arguments
from nearmetal.workloads.applications.fio_jobs import jobs, read_blocks
from nearmetal.workloads.parameter import Choices, Value

NONE = {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "total_ios": 0, "lat_ns": {"N": 0}}


def side(bandwidth: int, requests: int, rate: float, *latencies: int) -> dict[str, Any]:
    named = zip(("50.000000", "99.000000", "99.900000"), latencies, strict=True)
    return {
        "io_bytes": bandwidth,
        "bw_bytes": bandwidth,
        "iops": rate,
        "total_ios": requests,
        "lat_ns": {"N": requests, "percentile": dict(named)},
    }


#: What fio 3.33 printed on a virtual disk, what is not read left out.
DOCUMENT: dict[str, Any] = {
    "fio version": "fio-3.33",
    "jobs": [
        {
            "jobname": "read_1MiB",
            "error": 0,
            "read": side(1205705270, 1151, 1149.85015, 757760, 2965504, 3457024),
            "write": NONE,
        },
        {
            "jobname": "write_1MiB",
            "error": 0,
            "read": NONE,
            "write": side(3906233670, 3729, 3725.274725, 207872, 1794048, 4554752),
        },
        {
            "jobname": "randread_4KiB",
            "error": 0,
            "read": side(61538205, 15039, 15023.976024, 52992, 117248, 4046848),
            "write": NONE,
        },
        {
            "jobname": "randwrite_4KiB",
            "error": 0,
            "read": NONE,
            "write": side(53501698, 13075, 13061.94, 62208, 158720, 2506752),
        },
    ],
    "disk_util": [
        {"name": "vda", "read_ios": 17191, "read_merges": 29, "write_ios": 16711, "write_merges": 0}
    ],
}
PRINTED = "note: both iodepth >= 1 and synchronous I/O engine are selected\n" + json.dumps(DOCUMENT, indent=2)


def choices(**values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in Fio.parameters} | values)


def place(memory: int = 1 << 30) -> Place:
    here = Path("/run/x")
    return Place(nodes=1, instances=1, tasks=1, directory=here, storage=here / "storage", memory=memory)


def parsed(text: str, stderr: str = "", **values: Value) -> Parsed:
    return Fio().parse(choices(**values), place(), Output(stdout="", stderr=stderr, files={RESULT: text}))


def by_name(found: Parsed) -> dict[str, Metric]:
    return {m.name: m for m in found.metrics}


def meets(document: dict[str, Any], **values: Value) -> str:
    return str(parsed(json.dumps(document), "", **values).facts["meets"])


def on(device: str, **counted: int) -> dict[str, Any]:
    (before,) = DOCUMENT["disk_util"]
    return {**DOCUMENT, "disk_util": [{**before, "name": device, **counted}]}


def test_bandwidth_rate_and_percentiles_in_base_units() -> None:
    found = parsed(PRINTED)
    assert {name: m.value for name, m in by_name(found).items()} == {
        "read_1MiB_bandwidth": 1205705270,
        "read_1MiB_p50": 757760e-9,
        "read_1MiB_p99": 2965504e-9,
        "read_1MiB_p999": 3457024e-9,
        "write_1MiB_bandwidth": 3906233670,
        "write_1MiB_p50": 207872e-9,
        "write_1MiB_p99": 1794048e-9,
        "write_1MiB_p999": 4554752e-9,
        "randread_4KiB_rate": 15023.976024,
        "randread_4KiB_p50": 52992e-9,
        "randread_4KiB_p99": 117248e-9,
        "randread_4KiB_p999": 4046848e-9,
        "randwrite_4KiB_rate": 13061.94,
        "randwrite_4KiB_p50": 62208e-9,
        "randwrite_4KiB_p99": 158720e-9,
        "randwrite_4KiB_p999": 2506752e-9,
    }
    assert [(m.name, m.unit, m.better) for m in found.metrics] == list(Fio().metrics(choices()))
    assert found.facts["version"] == "fio-3.33" and found.facts["device"] == "vda"


def test_device_below_direct_requests_is_named() -> None:
    assert meets(on("nvme0n1")) == "the device"
    assert "virtual disk" in meets(DOCUMENT)
    assert "loop device" in meets(on("loop3"))
    assert "not known" in meets({**DOCUMENT, "disk_util": []})
    assert "not known" in meets({k: v for k, v in DOCUMENT.items() if k != "disk_util"})
    assert "a cache: the device saw less than 50% of the read requests" in meets(on("sda", read_ios=0))
    assert "a cache: the device saw less than 50% of the write requests" in meets(on("sda", write_ios=8000))
    assert meets(on("sda", write_ios=8000), operation="read") == "the device"
    assert meets(on("sda", write_ios=8000), seconds=0.1) == "the device, or a cache: too short to distinguish"


def test_results_that_may_come_from_the_page_cache_say_so() -> None:
    assert "smaller than the memory" in meets(DOCUMENT, mode="buffered")
    assert "in part" in meets(DOCUMENT, mode="buffered", size="auto")


def test_a_job_that_failed_has_no_values_and_says_why() -> None:
    refused = json.loads(json.dumps(DOCUMENT))
    refused["jobs"][0]["error"] = 22
    del refused["jobs"][3]
    found = by_name(parsed(json.dumps(refused), "fio: looks like your file system does not support direct=1"))
    assert found["read_1MiB_p99"].value is None and "refuses O_DIRECT" in found["read_1MiB_p99"].reason
    assert "does not support direct=1" in found["randwrite_4KiB_rate"].reason
    assert found["write_1MiB_bandwidth"].value == 3906233670
    idle = {**DOCUMENT, "jobs": [{"jobname": "read_1MiB", "error": 0, "read": NONE}]}
    assert "made no request" in by_name(parsed(json.dumps(idle)))["read_1MiB_bandwidth"].reason


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-3", "0", '"1205705270"', "1e999", "9" * 400, "null"])
def test_value_that_is_no_positive_number_is_dropped(number: str) -> None:
    found = by_name(parsed(PRINTED.replace(": 1205705270", f": {number}")))
    assert found["read_1MiB_bandwidth"].value is None and found["read_1MiB_bandwidth"].reason
    assert found["read_1MiB_p50"].value == 757760e-9


def test_commas_of_a_locale_are_no_json() -> None:
    found = parsed(PRINTED.replace("1149.85015", "1149,85015"))
    assert all(m.value is None and m.reason for m in found.metrics)


@given(st.text() | st.binary().map(lambda b: b.decode(errors="replace")))
def test_any_text_is_read(text: str) -> None:
    assert all(m.value is None and m.reason for m in parsed(text).metrics)


@given(st.integers(0, len(PRINTED)), st.text(max_size=5), st.integers(0, 40))
def test_any_truncation_and_damage_is_read(at: int, other: str, length: int) -> None:
    for text in (PRINTED[:at], PRINTED[:at] + other + PRINTED[at + length :]):
        assert all((m.value is None) == bool(m.reason) for m in parsed(text).metrics)
        roof(text, "read")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["read", "name", "error", "lat_ns", "jobname", "disk_util"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(_JSON, _JSON)
def test_any_json_is_read(listed: Any, devices: Any) -> None:
    text = json.dumps({"jobs": [listed, {"jobname": "read_1MiB", "error": 0, "read": listed}]})
    parsed(text)
    parsed(json.dumps({"jobs": listed, "disk_util": devices}))
    parsed(json.dumps({**DOCUMENT, "disk_util": [devices]}))


def test_blocks_one_a_range_or_as_the_pattern_has_them() -> None:
    sizes = [4096, 16384, 65536, 262144, 1048576]
    assert read_blocks("4 KiB..1 MiB") == tuple(sizes)
    assert read_blocks("8KiB") == (8192,)
    assert read_blocks("4 KiB .. 24 KiB") == (4096, 16384, 24576)
    assert [j.name for j in jobs(choices(block="64 KiB..256 KiB", pattern="random", operation="read"))] == [
        "randread_64KiB",
        "randread_256KiB",
    ]
    assert [j.name for j in jobs(choices(operation="write"))] == ["write_1MiB", "randwrite_4KiB"]


@pytest.mark.parametrize(
    "text", ["", "..", "4", "1 KiB", "2 MiB", "1 MiB..4 KiB", "4 KiB..x", "4 KiB..8 KiB..9"]
)
def test_no_other_block_is_taken(text: str) -> None:
    assert (Fio().problem(choices(block=text), place()) or "").startswith("block: ")


def test_invalid_options_are_refused_before_fio_starts() -> None:
    assert Fio().problem(choices(), place()) is None
    assert "depth is for" in (Fio().problem(choices(depth=4), place()) or "")
    assert Fio().problem(choices(depth=4, engine="libaio"), place()) is None


def test_arguments() -> None:
    argv = Fio().command(choices(seconds=0.5, pattern="random", size=(64 << 20) + 1), place()).argv
    assert "--directory={storage}" in argv and "--direct=1" in argv and "--runtime=500ms" in argv
    assert f"--size={64 << 20}" in argv
    after = argv[argv.index("--name=randread_4KiB") :]
    assert after[:4] == ("--name=randread_4KiB", "--stonewall", "--rw=randread", "--bs=4096")
    assert "--end_fsync=1" in after and "--end_fsync=1" not in after[: after.index("--name=randwrite_4KiB")]
    assert Fio().command(choices(), place()).outputs == (RESULT,) and f"--output={RESULT}" in argv
    buffered = Fio().command(choices(mode="buffered", size="auto"), place()).argv
    assert {"--direct=0", "--invalidate=0", f"--size={2 << 30}"} <= set(buffered)
    (laid_out,) = Fio().prepare(choices(), place())
    assert "--rw=write" in laid_out.argv and f"--size={256 << 20}" in laid_out.argv
    assert Fio().needs(choices()).storage


def test_the_roof() -> None:
    words = roof_arguments(Path("/scratch/x"), "write", seconds=2, size=1 << 30)
    assert {"--rw=write", "--direct=1", "--runtime=2000ms", "--directory=/scratch/x"} <= set(words)
    job = {"jobname": "read", "error": 0, "read": side(30, 1, 1, 1, 1, 1)}
    assert roof(json.dumps({"jobs": [job]}), "read") == 30
    assert roof(json.dumps({"jobs": [job]}), "write") is None
    assert roof(json.dumps({"jobs": [{**job, "error": 28}]}), "read") is None
