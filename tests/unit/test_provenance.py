"""Provenance: what a machine says becomes facts, what it does not say becomes a reason; no secrets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host.base import Completed
from nearmetal.host.facts.provenance import boot_state, cpu_summary, llc_bytes, parse_limits, provenance
from nearmetal.testing.fake_host import FakeHost, Unexpected

CPU = "/sys/devices/system/cpu"
ABSENT = ("/sys/*", "/proc/*", "/etc/*")
INFO = """processor\t: 0
model name\t: AMD EPYC 7713 64-Core Processor
cpu family\t: 25
model\t\t: 1
stepping\t: 1
microcode\t: 0xa0011d1
flags\t\t: fpu sse hypervisor avx2
"""
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 4096                 files
"""


def cache(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    at = f"{CPU}/cpu{cpu}/cache/index{index}"
    return {
        f"{at}/level": f"{level}\n",
        f"{at}/type": f"{kind}\n",
        f"{at}/size": f"{size}\n",
        f"{at}/shared_cpu_list": f"{shared}\n",
    }


def machine(**more: str) -> FakeHost:
    files: dict[str, str | bytes] = {
        "/proc/cpuinfo": INFO,
        "/proc/meminfo": "MemTotal:       24117248 kB\nSwapTotal:             0 kB\n",
        "/proc/sys/kernel/osrelease": "6.18.4-amd64\n",
        "/proc/sys/kernel/version": "#1 SMP\n",
        "/proc/cmdline": "root=UUID=1 mitigations=off password=hunter2 isolcpus=1 -- --token abc\n",
        "/proc/self/mounts": "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /u cgroup2 rw 0 0\n",
        "/proc/self/limits": LIMITS,
        "/etc/os-release": 'NAME="x"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
        f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave\n",
        f"{CPU}/intel_pstate/no_turbo": "1\n",
        f"{CPU}/vulnerabilities/meltdown": "Not affected\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        **{f"{CPU}/cpu{c}/topology/physical_package_id": f"{c}\n" for c in (0, 1)},
        **{f"{CPU}/cpu{c}/topology/core_id": "0\n" for c in (0, 1)},
    }
    for cpu in (0, 1):
        files |= cache(cpu, 0, 1, "Data", "32K", str(cpu))
        files |= cache(cpu, 1, 1, "Instruction", "32K", str(cpu))
        files |= cache(cpu, 2, 3, "Unified", "32M", str(cpu))
    return FakeHost(
        files={**files, **more},
        absent=ABSENT,
        programs={"cc": "/usr/bin/cc", "mpirun": "/usr/bin/mpirun"},
        commands={
            ("/usr/bin/cc", "--version"): "cc (Debian) 12.2.0\nCopyright\n",
            ("/usr/bin/mpirun", "--version"): "mpirun (Open MPI) 4.1.4\n\nReport bugs\n",
        },
    )


def bare() -> FakeHost:
    return FakeHost(absent=ABSENT, missing=("cc", "gcc", "mpirun", "mpiexec"))


def test_provenance_describes_the_machine() -> None:
    found = provenance(machine())
    json.dumps(found, allow_nan=False)
    assert found["cpu"]["model"] == "AMD EPYC 7713 64-Core Processor"
    assert (found["cpu"]["sockets"], found["cpu"]["physical_cores"]) == (2, 2)
    assert [(c["level"], c["bytes"]) for c in found["cpu"]["caches"]] == [(1, 32768), (3, 32 << 20)]
    assert found["memory"] == {"bytes": 24117248 * 1024, "swap_bytes": 0}
    assert found["settings"]["governor"] == "performance, powersave"
    assert found["settings"]["turbo"] == "off"
    assert found["settings"]["transparent_hugepages"] == "madvise"
    assert found["mitigations"] == {"meltdown": "Not affected"}
    assert found["hypervisor"]["present"] is True
    assert found["limits"] == {"open files": "1024 / 4096 files"}
    assert found["cgroup"].startswith("hybrid")
    assert found["distribution"] == "Debian GNU/Linux 12 (bookworm)"
    assert found["versions"]["mpi"] == "Open MPI 4.1.4"
    assert found["versions"]["c_compiler"] == "cc (Debian) 12.2.0"


def test_provenance_gives_a_reason_for_each_missing_fact() -> None:
    found = provenance(bare())
    json.dumps(found, allow_nan=False)
    assert found["cpu"]["model"] == {"unavailable": "/proc/cpuinfo: No such file or directory"}
    assert found["settings"]["governor"]["unavailable"].startswith("no cpufreq")
    assert found["versions"]["mpi"] == {"unavailable": "none of mpirun, mpiexec is installed"}
    assert found["cpu"]["last_level_bytes"] == {"unavailable": "no caches in sysfs"}
    assert llc_bytes(bare()) is None
    assert cpu_summary(found) == "2 cores"


def test_no_secrets_and_no_addresses() -> None:
    found = provenance(machine())
    assert found["kernel"]["command_line"] == "mitigations=off isolcpus=1"
    text = json.dumps(found)
    assert not any(secret in text for secret in ("hunter2", "abc", "UUID"))


def test_a_program_that_fails_is_a_reason() -> None:
    host = machine()
    argv = ("/usr/bin/mpirun", "--version")
    host.commands[argv] = Completed(argv=argv, returncode=1, stdout="", stderr="broken pmix\n", seconds=0.1)
    assert provenance(host)["versions"]["mpi"] == {"unavailable": "mpirun ended with 1: broken pmix"}


def test_mpich_by_its_own_words() -> None:
    host = machine()
    host.commands["/usr/bin/mpirun", "--version"] = "HYDRA build details:\n    Version:        4.0.2\n"
    assert provenance(host)["versions"]["mpi"] == "MPICH 4.0.2"


def test_last_level_caches_of_all_usable_cpus_add_up() -> None:
    assert llc_bytes(machine()) == 64 << 20
    shared: dict[str, str | bytes] = {}
    for cpu in (0, 1):
        shared |= cache(cpu, 0, 3, "Unified", "266240K", "0-1")
    assert llc_bytes(FakeHost(files=shared, absent=ABSENT)) == 266240 * 1024


def test_the_summary_is_the_first_line_of_the_output() -> None:
    assert cpu_summary(provenance(machine())) == "AMD EPYC 7713, 2 cores, 23 GiB, Linux 6.18, Open MPI 4.1.4"


def test_boot_states_differ_by_what_a_reboot_changes() -> None:
    state = boot_state(provenance(machine()))
    assert state == boot_state(provenance(machine()))
    for path, content in (
        ("/proc/sys/kernel/osrelease", "6.19.0"),
        ("/proc/cpuinfo", INFO.replace("0xa0011d1", "0xa0011d2")),
        (f"{CPU}/cpu1/cpufreq/scaling_governor", "performance"),
        (f"{CPU}/vulnerabilities/meltdown", "Vulnerable"),
        ("/proc/cmdline", "mitigations=auto"),
    ):
        assert boot_state(provenance(machine(**{path: content}))) != state
    assert boot_state(provenance(machine(**{"/proc/meminfo": "MemTotal: 1 kB"}))) == state


@given(st.text(max_size=300))
def test_limits_of_any_text(text: str) -> None:
    assert all(" / " in v for v in parse_limits(text).values())


def test_the_fake_host_is_strict() -> None:
    host = FakeHost(files={"/a": "1"}, commands={("true",): "", ("false",): ""})
    with pytest.raises(Unexpected):
        host.read("/b")
    with pytest.raises(Unexpected):
        host.run(["rm"], timeout=1)
    with pytest.raises(Unexpected):
        host.which("x")
    host.run(["true"], timeout=1)
    assert host.never_used() == ("/a", "false")
    assert host.calls == [("true",)]
