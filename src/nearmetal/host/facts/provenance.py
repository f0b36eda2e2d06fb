"""Facts about the machine for the record: hardware, kernel, settings that affect timings, limits, versions.

Facts are read from files of the machine, and some versions from the output of programs. A value that cannot
be read is {"unavailable": reason}. No environment variables, user names or addresses are recorded. Nothing is
cached: reading takes about 10 ms.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ... import __version__
from ...model.record import section
from ..base import Host, MissingValue, text_of

_CPU = "/sys/devices/system/cpu"
_VERSION_LIMIT = 60.0
_FLAGS = re.compile(r"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)
"""The flags of a CPU in /proc/cpuinfo: of x86, and of Arm."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""File with an identifier that changes at each boot."""
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_VULNERABILITIES = (
    *("gather_data_sampling", "indirect_target_selection", "itlb_multihit", "l1tf", "mds", "meltdown"),
    *("mmio_stale_data", "reg_file_data_sampling", "retbleed", "spec_rstack_overflow"),
    *("spec_store_bypass", "spectre_v1", "spectre_v2", "srbds", "tsa", "tsx_async_abort", "vmscape"),
)
_TIMING_OPTIONS = frozenset(
    (
        *("clocksource", "cpufreq", "cpuidle", "cpuidle_haltpoll", "default_hugepagesz", "haltpoll"),
        *("hugepages", "hugepagesz", "idle", "intel_idle", "intel_pstate", "amd_pstate", "irqaffinity"),
        *("isolcpus", "maxcpus", "mitigations", "nohz", "nohz_full", "nopti", "nosmt", "numa_balancing"),
        *("preempt", "processor", "psi", "pti", "rcu_nocbs", "retbleed", "skew_tick", "spectre_v2"),
        *("spec_store_bypass_disable", "swiotlb", "threadirqs", "transparent_hugepage", "tsc"),
    )
)


def provenance(host: Host) -> dict[str, Any]:
    """Return facts by section, ready for JSON. It raises no error: a missing value is {"unavailable":
    reason}.

    Sections: cpu, memory, kernel, settings, mitigations, hypervisor, boot, cgroup, limits, distribution,
    versions.
    """
    info = _text(host, "/proc/cpuinfo")
    return {
        "cpu": _cpu(host, info),
        "memory": _memory(host),
        "kernel": _kernel(host),
        "settings": _settings(host),
        "mitigations": _mitigations(host),
        "hypervisor": _hypervisor(host, info),
        "boot": _read(host, BOOT_ID),
        "cgroup": _cgroup(host),
        "limits": _limits(host),
        "distribution": _distribution(host),
        "versions": _versions(host),
    }


def llc_bytes(host: Host) -> int | None:
    """Return the bytes of all last-level caches of the usable CPUs together; None if unknown."""
    caches: dict[str, int] = {}
    for cpu in host.cpus():
        found = _caches(host, cpu)
        if not found:
            return None
        last = max(found, key=lambda c: c["level"])
        caches[str(last["shared_by"])] = last["bytes"]
    return sum(caches.values()) or None


def memory_bytes(host: Host) -> int | None:
    """Return the bytes of memory; None if unknown."""
    found = _memory(host)["bytes"]
    return found if isinstance(found, int) else None


def cpu_flags(host: Host) -> frozenset[str]:
    """Return the flags of the first CPU in /proc/cpuinfo; empty if there are none."""
    return cpu_flags_in(text_of(host, "/proc/cpuinfo"))


def cpu_flags_in(cpuinfo: str) -> frozenset[str]:
    """Return the flags of the first CPU in the text of /proc/cpuinfo; empty if there are none."""
    found = _FLAGS.search(cpuinfo)
    return frozenset() if found is None else frozenset(found[1].split())


def cpu_model(host: Host) -> str:
    """Return the name of the first CPU's model in /proc/cpuinfo; empty if there is none."""
    model = _field(_text(host, "/proc/cpuinfo"), "model name")
    return model if isinstance(model, str) else ""


def cpu_summary(provenance: Mapping[str, Any]) -> str:
    """Return one line: 'AMD EPYC 7713, 2 cores, 23 GiB, Linux 6.18, Open MPI 4.1.4'; unknown parts are left
    out.
    """
    cpu, memory = section(provenance, "cpu"), section(provenance, "memory")
    kernel, versions = section(provenance, "kernel"), section(provenance, "versions")
    parts = []
    if isinstance(model := cpu.get("model"), str):
        parts.append(_short_model(model))
    if isinstance(cores := cpu.get("usable"), list):
        parts.append(f"{len(cores)} core{'s' if len(cores) != 1 else ''}")
    if isinstance(total := memory.get("bytes"), int):
        parts.append(f"{total / 2**30:.0f} GiB")
    if isinstance(release := kernel.get("release"), str):
        parts.append("Linux " + ".".join(release.split("-")[0].split(".")[:2]))
    if isinstance(mpi := versions.get("mpi"), str):
        parts.append(mpi)
    return ", ".join(parts)


def boot_state(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that change only by a reboot, new firmware, or an administrator.

    Records with different boot states are never pooled as replicates (docs/method.md, 'Boot states').
    """
    cpu, kernel = section(provenance, "cpu"), section(provenance, "kernel")
    return {
        "cpu": cpu.get("model"),
        "microcode": cpu.get("microcode"),
        "kernel": [kernel.get("release"), kernel.get("version")],
        "command_line": kernel.get("command_line"),
        **{k: v for k, v in section(provenance, "settings").items() if k != "hugepages"},
        "mitigations": provenance.get("mitigations"),
        "hypervisor": provenance.get("hypervisor"),
    }


def _short_model(model: str) -> str:
    """Shorten 'Intel(R) Xeon(R) Processor @ 2.30GHz' to 'Intel Xeon'."""
    plain = re.sub(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|@.*|\d+-Core", "", model)
    return " ".join(plain.split()) or model


# --- reading ---------------------------------------------------------------------------------------------


def _text(host: Host, path: str) -> str | MissingValue:
    data = host.read(path)
    return data if isinstance(data, MissingValue) else data.decode("utf-8", "replace").strip("\x00\n ")


def _as_json(value: str | MissingValue) -> Any:
    return {"unavailable": value.reason} if isinstance(value, MissingValue) else value


def _read(host: Host, path: str) -> Any:
    return _as_json(_text(host, path))


def _chosen(host: Host, path: str) -> Any:
    """Return the word in brackets: 'madvise' of 'always [madvise] never'."""
    text = _text(host, path)
    if isinstance(text, str) and (found := re.search(r"\[(.+?)\]", text)):
        return found[1]
    return _as_json(text)


def _field(text: str | MissingValue, key: str) -> Any:
    if isinstance(text, MissingValue):
        return _as_json(text)
    found = re.search(rf"^{re.escape(key)}\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else {"unavailable": f"no {key!r} in /proc/cpuinfo"}


def _bytes(size: str) -> int | None:
    """Parse a size: 272629760 for '266240K'."""
    found = re.fullmatch(r"(\d+)([KMG]?)", size)
    return int(found[1]) * _SIZES.get(found[2], 1) if found else None


# --- sections --------------------------------------------------------------------------------------------


def _cpu(host: Host, info: str | MissingValue) -> dict[str, Any]:
    flags = _field(info, "flags")
    usable = host.cpus()
    places = [
        tuple(_text(host, f"{_CPU}/cpu{c}/topology/{name}") for name in ("physical_package_id", "core_id"))
        for c in usable
    ]
    cores = {(socket, core) for socket, core in places if isinstance(core, str)}
    no_topology = {"unavailable": "no topology in sysfs"}
    return {
        "model": _field(info, "model name"),
        "family_model_stepping": [_field(info, k) for k in ("cpu family", "model", "stepping")],
        "microcode": _field(info, "microcode"),
        "usable": list(usable),
        "online": _read(host, f"{_CPU}/online"),
        "physical_cores": len(cores) or no_topology,
        "sockets": len({socket for socket, _ in cores}) or no_topology,
        "numa_nodes": _read(host, "/sys/devices/system/node/online"),
        "caches": _caches(host, usable[0]) if usable else [],
        "last_level_bytes": llc_bytes(host) or {"unavailable": "no caches in sysfs"},
        "flags": sorted(flags.split()) if isinstance(flags, str) else flags,
    }


def _caches(host: Host, cpu: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for index in range(10):
        at = f"{_CPU}/cpu{cpu}/cache/index{index}"
        level, size = _text(host, f"{at}/level"), _text(host, f"{at}/size")
        if isinstance(level, MissingValue) or isinstance(size, MissingValue):
            break
        kind, bytes_ = _read(host, f"{at}/type"), _bytes(size)
        if bytes_ is not None and level.isdigit() and kind != "Instruction":
            shared = _read(host, f"{at}/shared_cpu_list")
            found.append({"level": int(level), "type": kind, "bytes": bytes_, "shared_by": shared})
    return found


def _memory(host: Host) -> dict[str, Any]:
    text = _text(host, "/proc/meminfo")
    if isinstance(text, MissingValue):
        return {"bytes": _as_json(text)}
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE))
    missing = {"unavailable": "not in /proc/meminfo"}
    return {
        name: int(sizes[key]) * 1024 if key in sizes else missing
        for name, key in (("bytes", "MemTotal"), ("swap_bytes", "SwapTotal"))
    }


def _kernel(host: Host) -> dict[str, Any]:
    return {
        "release": _read(host, "/proc/sys/kernel/osrelease"),
        "version": _read(host, "/proc/sys/kernel/version"),
        "command_line": _command_line(_text(host, "/proc/cmdline")),
        "architecture": platform.machine(),
    }


def _command_line(text: str | MissingValue) -> Any:
    """Return the kernel's options that affect timings.

    Other options may contain addresses or secrets and are not kept.
    """
    if isinstance(text, MissingValue):
        return _as_json(text)
    options = text.split(" -- ")[0].split()
    return " ".join(o for o in options if o.partition("=")[0].split(".")[0] in _TIMING_OPTIONS)


def _settings(host: Host) -> dict[str, Any]:
    """Return settings that an administrator may have changed and that affect timings."""
    governors = {_text(host, f"{_CPU}/cpu{c}/cpufreq/scaling_governor") for c in host.cpus()}
    known = sorted(g for g in governors if isinstance(g, str))
    return {
        "clock_source": _read(host, "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "governor": ", ".join(known)
        or {"unavailable": "no cpufreq: the frequency is not this kernel's to set"},
        "turbo": _turbo(host),
        "smt": _read(host, f"{_CPU}/smt/control"),
        "transparent_hugepages": _chosen(host, "/sys/kernel/mm/transparent_hugepage/enabled"),
        "transparent_hugepage_defrag": _chosen(host, "/sys/kernel/mm/transparent_hugepage/defrag"),
        "hugepages": _read(host, "/proc/sys/vm/nr_hugepages"),
        "numa_balancing": _read(host, "/proc/sys/kernel/numa_balancing"),
        "randomize_va_space": _read(host, "/proc/sys/kernel/randomize_va_space"),
        "perf_event_paranoid": _read(host, "/proc/sys/kernel/perf_event_paranoid"),
        "tcp_congestion_control": _read(host, "/proc/sys/net/ipv4/tcp_congestion_control"),
        "isolated_cpus": _read(host, f"{_CPU}/isolated"),
    }


def _turbo(host: Host) -> Any:
    no_turbo = _text(host, f"{_CPU}/intel_pstate/no_turbo")
    if isinstance(no_turbo, str):
        return "off" if no_turbo == "1" else "on"
    boost = _text(host, f"{_CPU}/cpufreq/boost")
    if isinstance(boost, str):
        return "on" if boost == "1" else "off"
    return {"unavailable": "neither intel_pstate/no_turbo nor cpufreq/boost"}


def _mitigations(host: Host) -> Any:
    """Return the mitigation of each vulnerability that this kernel knows."""
    found = {name: _text(host, f"{_CPU}/vulnerabilities/{name}") for name in _VULNERABILITIES}
    known = {name: state for name, state in found.items() if isinstance(state, str)}
    return known or {"unavailable": "the kernel lists no vulnerabilities"}


def _hypervisor(host: Host, info: str | MissingValue) -> dict[str, Any]:
    flags = _field(info, "flags")
    return {
        "present": "hypervisor" in flags.split() if isinstance(flags, str) else flags,
        "type": _read(host, "/sys/hypervisor/type"),
        "vendor": _read(host, "/sys/class/dmi/id/sys_vendor"),
        "product": _read(host, "/sys/class/dmi/id/product_name"),
        "bios": _read(host, "/sys/class/dmi/id/bios_version"),
    }


def _cgroup(host: Host) -> Any:
    """Return the version of the mounted control groups: 'v1', 'v2' or 'hybrid'."""
    mounts = _text(host, "/proc/self/mounts")
    if isinstance(mounts, MissingValue):
        return _as_json(mounts)
    kinds = {words[2] for line in mounts.splitlines() if len(words := line.split()) > 2}
    if {"cgroup", "cgroup2"} <= kinds:
        return "hybrid (v1 controllers, v2 mounted beside)"
    return "v2" if "cgroup2" in kinds else "v1" if "cgroup" in kinds else {"unavailable": "no cgroup mounted"}


def _limits(host: Host) -> Any:
    """Return the soft and hard limits of this process, as the kernel prints them."""
    text = _text(host, "/proc/self/limits")
    if isinstance(text, MissingValue):
        return _as_json(text)
    return parse_limits(text)


def parse_limits(text: str) -> dict[str, str]:
    """Parse /proc/PID/limits: {'open files': '1024 / 4096 files'}. Other lines are ignored."""
    out = {}
    for line in text.splitlines():
        found = re.match(r"Max (.+?)\s{2,}(\S+)\s+(\S+)\s*(\S*)$", line.rstrip())
        if found:
            out[found[1]] = f"{found[2]} / {found[3]} {found[4]}".rstrip()
    return out


def _distribution(host: Host) -> Any:
    text = _text(host, "/etc/os-release")
    if isinstance(text, MissingValue):
        return _as_json(text)
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', text, re.MULTILINE)
    return found[1] if found else {"unavailable": "no PRETTY_NAME in /etc/os-release"}


def _versions(host: Host) -> dict[str, Any]:
    return {
        "nearmetal": __version__,
        "python": platform.python_version(),
        "c_compiler": _first_line(host, ("cc", "gcc"), r"(.+)"),
        "mpi": _mpi(host),
        "libc": " ".join(filter(None, platform.libc_ver())) or {"unavailable": "not glibc"},
    }


def _mpi(host: Host) -> Any:
    version = _first_line(host, ("mpirun", "mpiexec"), r"(.+)")
    if isinstance(version, str):
        if found := re.search(r"\(Open MPI\) (\S+)", version):
            return f"Open MPI {found[1]}"
        if "HYDRA" in version:
            return _first_line(host, ("mpirun", "mpiexec"), r"Version:\s*(\S+)", "MPICH ")
    return version


def _first_line(host: Host, programs: Iterable[str], pattern: str, prefix: str = "") -> Any:
    """Return the version that the first installed of these programs prints for --version; the pattern's group
    selects it.
    """
    for program in programs:
        path = host.which(program)
        if path is None:
            continue
        done = host.run([path, "--version"], timeout=_VERSION_LIMIT)
        if not done.ok:
            return {"unavailable": done.failure()}
        found = re.search(pattern, done.stdout)
        return prefix + found[1].strip() if found else {"unavailable": f"{path} --version: not understood"}
    return {"unavailable": f"none of {', '.join(programs)} is installed"}
