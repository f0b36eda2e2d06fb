"""Control groups on fake trees: both versions, hybrid, containers, delegation."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.environments.instance import require_limits
from nearmetal.errors import RunError
from nearmetal.host import MissingValue, cgroups
from nearmetal.host.cgroups import NO_LIMITS, EffectiveLimits, GroupLimits, Parents
from nearmetal.host.cgroups.limits import SHORTEST_US, quota_us, settings, unified_weight
from nearmetal.host.cgroups.parents import find_parents
from nearmetal.host.cgroups.processes import remove_empty
from nearmetal.host.counters.block_accounts import ACCOUNT, devices, temporary_group
from nearmetal.host.labels import OURS
from nearmetal.host.leftovers import wanted_names
from nearmetal.model.study import Limits

V1_MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
32 25 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 25 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V1_OWN = """\
9:name=systemd:/user.slice
4:memory:/docker/abc/job
3:cpuset:/
2:cpu,cpuacct:/user.slice
0::/user.slice
"""
V2_MOUNTS = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


pytestmark = pytest.mark.usefixtures("notes_base")


def tree(root: Path, own: str, mounts: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": own, "proc/self/mountinfo": mounts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2_group(path: str, *, procs: str = "", top: bool = False, on: str = "") -> dict[str, str]:
    files = {
        f"{path}/cgroup.procs": procs,
        f"{path}/cgroup.controllers": "cpuset cpu io memory pids\n",
        f"{path}/cgroup.subtree_control": on,
    }
    return files if top else {**files, f"{path}/cgroup.type": "domain\n"}


def found(root: Path) -> Parents:
    parents = find_parents(root)
    assert isinstance(parents, Parents), parents
    return parents


def test_version_1_below_our_own_groups_as_the_mounts_show_them(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/user.slice/tasks": "",
        "sys/fs/cgroup/cpuset/tasks": "",
        "sys/fs/cgroup/memory/job/tasks": "",
    }
    parents = found(tree(tmp_path, V1_OWN, V1_MOUNTS, files))
    top = tmp_path / "sys/fs/cgroup"
    assert parents.version1 == {
        "cpu": top / "cpu,cpuacct/user.slice",
        "cpuacct": top / "cpu,cpuacct/user.slice",
        "cpuset": top / "cpuset",
        "memory": top / "memory/job",
    }
    assert parents.unified is None
    made = cgroups.directories(parents, "nearmetal-x", {"cpu", "cpuacct", "memory"})
    assert [p.name for p in cgroups.unique(made)] == ["nearmetal-x"] * 2


def test_mounts_of_a_restoring_criu_are_not_used(tmp_path: Path) -> None:
    """They are gone soon."""
    more = V1_MOUNTS.replace("/sys/fs/cgroup", "/there/.criu.cgyard.ab12cd")
    files = {"sys/fs/cgroup/cpu,cpuacct/user.slice/tasks": "", "sys/fs/cgroup/cpuset/tasks": ""}
    parents = found(tree(tmp_path, V1_OWN, V1_MOUNTS + more, files))
    assert {name: str(path.relative_to(tmp_path)) for name, path in parents.version1.items()} == {
        "cpu": "sys/fs/cgroup/cpu,cpuacct/user.slice",
        "cpuacct": "sys/fs/cgroup/cpu,cpuacct/user.slice",
        "cpuset": "sys/fs/cgroup/cpuset",
    }


@pytest.mark.parametrize(
    ("text", "usable"), [("8:0 Read 5\nTotal 5\n", True), ("Total 0\n", False), ("", False)]
)
def test_version_1_counts_blocks_or_does_without(tmp_path: Path, text: str, usable: bool) -> None:
    """A group that shows no device does not count; in a tree of plain files nothing can switch it on."""
    mounts = "33 25 0:29 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
    group = "sys/fs/cgroup/blkio"
    cpu = {"sys/fs/cgroup/cpu,cpuacct/user.slice/tasks": ""}
    files = {f"{group}/tasks": "", f"{group}/{ACCOUNT}": text, "proc/diskstats": "8 0 sda 1 0 2 0 3 0 4 0\n"}
    parents = found(tree(tmp_path, V1_OWN + "5:blkio:/\n", V1_MOUNTS + mounts, cpu | files))
    assert ("blkio" in parents.controllers) is usable
    assert not list((tmp_path / group).glob("nearmetal-*"))


def test_group_that_a_killed_check_leaves_is_found_by_its_name(tmp_path: Path) -> None:
    with temporary_group(tmp_path) as group:
        assert OURS.fullmatch(group.name) and not wanted_names()(group.name), "this process lives"
    assert wanted_names()(group.name.replace(str(os.getpid()), "4194305")), "no process has this PID"


def test_devices_are_those_that_have_done_something() -> None:
    idle = "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n"
    assert devices(f"{idle}254 0 vda 496127 26659 2 7 184720 2 1 8\n8 1 sda1 0 0 0 0 5 0 9 0\nshort\n") == (
        "254:0",
        "8:1",
    )


def test_version_1_groups_that_are_not_there_cannot_be_used(tmp_path: Path) -> None:
    answer = find_parents(tree(tmp_path, V1_OWN, V1_MOUNTS, {}))
    assert answer == MissingValue("the control groups are not writable for this user")


def test_a_group_outside_what_the_mount_shows_is_not_used(tmp_path: Path) -> None:
    """A container without a cgroup namespace: our path is not below the root of the mount."""
    own = "4:memory:/elsewhere\n"
    mounts = "32 25 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    assert find_parents(tree(tmp_path, own, mounts, {})) == MissingValue("no control groups are mounted")


def test_version_2_root_uses_the_top_group_when_our_own_has_processes(tmp_path: Path) -> None:
    files = v2_group("sys/fs/cgroup", top=True, procs="1\n") | v2_group("sys/fs/cgroup/a.scope", procs="77\n")
    parents = found(tree(tmp_path, "0::/a.scope\n", V2_MOUNTS, files))
    assert parents.unified == tmp_path / "sys/fs/cgroup"
    assert parents.controllers == {"cpu", "cpuacct", "cpuset", "memory", "blkio"}
    assert cgroups.directories(parents, "nearmetal-x", {"memory"}) == {
        "unified": parents.unified / "nearmetal-x"
    }


def test_version_2_user_uses_the_nearest_delegated_group_without_processes(tmp_path: Path) -> None:
    files = (
        v2_group("sys/fs/cgroup", top=True)
        | v2_group("sys/fs/cgroup/user@1000.service", on="cpu memory")
        | v2_group("sys/fs/cgroup/user@1000.service/app.slice", on="cpu memory\n")
        | v2_group("sys/fs/cgroup/user@1000.service/app.slice/t.scope", procs="77\n")
    )
    root = tree(tmp_path, "0::/user@1000.service/app.slice/t.scope\n", V2_MOUNTS, files)
    assert found(root).unified == root / "sys/fs/cgroup/user@1000.service/app.slice"


class Kernel:
    """Moves a process and switches a controller on and off, as the kernel does, in a tree of plain files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("nearmetal.host.cgroups.controllers.write_control", self.write)
        mkdir = Path.mkdir

        def made(path: Path) -> None:
            mkdir(path)
            for file in ("cgroup.procs", "cgroup.subtree_control"):
                (path / file).write_text("")

        monkeypatch.setattr(Path, "mkdir", made)
        monkeypatch.setattr(Path, "rmdir", lambda path: shutil.rmtree(path))

    def write(self, path: Path, text: str) -> None:
        if path.name == "cgroup.procs":
            for other in path.parents[1].rglob("cgroup.procs"):
                kept = [pid for pid in other.read_text().split() if pid != text]
                other.write_text("".join(f"{pid}\n" for pid in kept))
        wanted = set(path.read_text().split()) | {text.lstrip("+")}
        if text.startswith("-"):
            wanted -= {text, text[1:]}
        path.write_text("".join(f"{word}\n" for word in sorted(wanted)))


def job(root: Path) -> Path:
    """The group of a batch job, below a group that root could use as well."""
    files = (
        v2_group("sys/fs/cgroup", top=True)
        | v2_group("sys/fs/cgroup/slurm", on="cpu memory")
        | v2_group("sys/fs/cgroup/slurm/job", procs="7\n77\n")
    )
    return tree(root, "0::/slurm/job\n", V2_MOUNTS, files) / "sys/fs/cgroup/slurm/job"


def test_version_2_instances_of_a_job_stay_in_the_group_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = job(tmp_path)
    parents = found(tmp_path)
    assert parents.unified == own.parent, "any group that has room, for a run that nobody else ends"
    Kernel(monkeypatch)
    before = cgroups.machine_parents()
    with cgroups.inside_own_group(tmp_path) as within:
        assert isinstance(within, Parents) and within.unified == own
        assert within.controllers == {"cpu", "cpuacct", "cpuset", "memory", "blkio"}
        assert cgroups.machine_parents() == within
        (leaf,) = own.glob("nearmetal-worker-*")
        assert (leaf / "cgroup.procs").read_text().split() == ["7", "77"]
        assert (own / "cgroup.procs").read_text() == ""
    assert cgroups.machine_parents() == before
    assert (own / "cgroup.procs").read_text().split() == ["7", "77"] and not leaf.exists()
    assert (own / "cgroup.subtree_control").read_text() == ""


def test_version_2_job_whose_group_cannot_be_divided_has_no_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = job(tmp_path)

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    with cgroups.inside_own_group(tmp_path) as within:
        assert isinstance(within, MissingValue) and "cannot be divided" in within.reason
        assert cgroups.machine_parents() == within, "never a group that is not the job's"
    assert (own / "cgroup.procs").read_text().split() == ["7", "77"]


def test_version_2_in_a_container_whose_groups_are_all_taken(tmp_path: Path) -> None:
    files = v2_group("sys/fs/cgroup", procs="1\n77\n")
    answer = find_parents(tree(tmp_path, "0::/\n", V2_MOUNTS, files))
    assert isinstance(answer, MissingValue) and "delegate" in answer.reason


def test_missing_cgroup_mounts_are_reported(tmp_path: Path) -> None:
    assert isinstance(find_parents(tree(tmp_path, "", "", {})), MissingValue)
    assert isinstance(find_parents(tmp_path / "no-proc"), MissingValue)


GIB = 1 << 30


def own_process(pid: int, own: str) -> dict[str, str]:
    return {f"proc/{pid}/cgroup": own}


def test_effective_limits_are_the_tightest_of_all_groups_above_on_version_1(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    files = {
        f"{top}/cpu,cpuacct/user.slice/cpu.cfs_quota_us": "-1\n",
        f"{top}/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
        f"{top}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        f"{top}/memory/job/memory.limit_in_bytes": f"{4 * GIB}\n",
        f"{top}/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
        f"{top}/unified/user.slice/pids.max": "300\n",  # hybrid: this hierarchy is of version 2
        f"{top}/unified/pids.max": "max\n",
    }
    root = tree(tmp_path, V1_OWN, V1_MOUNTS, files)
    found = cgroups.effective_limits(root=root)
    assert found == EffectiveLimits(cpus=1.5, memory=2 * GIB, processes=300)
    assert found.words == "1.5 CPUs, 2048 MiB of memory, 300 processes"
    free = {f"{top}/memory/memory.limit_in_bytes": "9223372036854771712\n"}
    assert cgroups.effective_limits(root=tree(root, V1_OWN, V1_MOUNTS, free)).memory == 4 * GIB


def test_effective_limits_are_the_tightest_of_all_groups_above_on_version_2(tmp_path: Path) -> None:
    top = "sys/fs/cgroup/slurm"
    files = {
        f"{top}/cpu.max": "50000 100000\n",
        f"{top}/memory.max": "max\n",
        f"{top}/job/cpu.max": "max 100000\n",
        f"{top}/job/memory.max": f"{GIB}\n",
        f"{top}/job/pids.max": "max\n",
    }
    found = cgroups.effective_limits(root=tree(tmp_path, "0::/slurm/job\n", V2_MOUNTS, files))
    assert found == EffectiveLimits(cpus=0.5, memory=GIB)
    assert cgroups.effective_limits(root=tree(tmp_path, "0::/\n", V2_MOUNTS, {})) == NO_LIMITS


@pytest.mark.parametrize(
    ("group", "more", "alone", "escaped"),
    [
        ("/job", {}, False, ""),
        ("/job/below", {}, False, ""),
        ("/elsewhere", {}, True, "0.5 CPUs, 1024 MiB of memory"),
        ("/elsewhere", {"cpu.max": "50000 100000"}, True, "1024 MiB of memory"),
        ("/elsewhere", {"cpu.max": "50000 100000", "memory.max": f"{GIB}"}, True, ""),
        (
            "/elsewhere",
            {"cpu.max": "50000 100000", "memory.max": f"{GIB}"},
            False,
            "0.5 CPUs, 1024 MiB of memory",
        ),
        ("/elsewhere", {"cpu.max": "90000 100000", "memory.max": f"{GIB}"}, True, "0.5 CPUs"),
    ],
)
def test_limits_hold_below_their_group_or_by_equal_limits_of_the_only_instance(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    more: dict[str, str],
    alone: bool,
    escaped: str,
) -> None:
    monkeypatch.setattr("nearmetal.host.cgroups.caller.machine_parents", lambda: MissingValue("none"))
    files = {"sys/fs/cgroup/job/cpu.max": "50000 100000", "sys/fs/cgroup/job/memory.max": f"{GIB}"}
    files |= {f"sys/fs/cgroup{group}/{name}": text for name, text in more.items()}
    root = tree(tmp_path, "0::/job\n", V2_MOUNTS, files | own_process(77, f"0::{group}\n"))
    assert cgroups.escaped_limits(77, {}, alone=alone, root=root).words == escaped
    monkeypatch.setattr(os, "getpid", lambda: 77)
    bare = {"unified": root / "sys/fs/cgroup/job/nearmetal-x"}
    assert cgroups.escaped_limits(77, bare, alone=False, root=root) == NO_LIMITS, "its programs run there"


def test_version_1_a_limit_of_one_hierarchy_escapes_at_its_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearmetal.host.cgroups.caller.machine_parents", lambda: MissingValue("none"))
    files = {"sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{GIB}\n"}
    own = own_process(77, V1_OWN.replace("/docker/abc/job", "/docker/abc/podman"))
    root = tree(tmp_path, V1_OWN, V1_MOUNTS, files | own)
    assert cgroups.escaped_limits(77, {}, alone=True, root=root).words == "1024 MiB of memory"
    made = {"memory": root / "sys/fs/cgroup/memory/job/nearmetal-x"}
    assert cgroups.escaped_limits(77, made, alone=True, root=root).exist, "made, but not used"


def test_version_2_groups_outside_of_a_limit_get_it_once_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = job(tmp_path)
    for name, text in {"cpu.max": "25000 50000", "memory.max": "max", "pids.max": "90"}.items():
        (own / name).write_text(text)
    inside = f"0::/slurm/nearmetal-check-{os.getpid()}-limits/nearmetal-x\n"
    files = own_process(77, inside) | own_process(78, "0::/slurm\n")
    parents = found(tree(tmp_path, "0::/slurm/job\n", V2_MOUNTS, files))
    assert (parents.unified, parents.limits.words) == (own.parent, "0.5 CPUs, 90 processes")
    Kernel(monkeypatch)
    written: dict[str, str] = {}
    monkeypatch.setattr(
        "nearmetal.host.cgroups.parents.write_control",
        lambda path, text: written.update({path.name: text}) or path.write_text(text),
    )
    within = cgroups.with_limits(parents)
    assert isinstance(within, Parents) and within.unified is not None and within.limited
    assert within.unified.parent == own.parent and OURS.fullmatch(within.unified.name)
    assert (written["cpu.max"], written["pids.max"]) == ("25000 50000", "90") and "memory.max" not in written
    assert "+memory" in written["cgroup.subtree_control"], "each instance is counted and limited there"
    monkeypatch.setattr("nearmetal.host.cgroups.caller.machine_parents", lambda: within)
    assert cgroups.escaped_limits(77, {}, alone=False, root=tmp_path) == NO_LIMITS
    assert cgroups.escaped_limits(78, {}, alone=True, root=tmp_path).words == "0.5 CPUs, 90 processes"


LIMITS = GroupLimits(cpus=(0, 2), cpu_share=0.25, period_us=100_000, memory=1 << 20, weight=256)


def test_settings_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "cpuset.mems").write_text("0-1\n")
    made = {name: tmp_path / f"{name}-group" for name in ("cpu", "memory")} | {
        "cpuset": tmp_path / "cpuset-group"
    }
    assert settings(made, LIMITS) == [
        (tmp_path / "cpuset-group/cpuset.mems", "0-1"),
        (tmp_path / "cpuset-group/cpuset.cpus", "0,2"),
        (tmp_path / "cpu-group/cpu.cfs_period_us", "100000"),
        (tmp_path / "cpu-group/cpu.cfs_quota_us", "25000"),
        (tmp_path / "cpu-group/cpu.shares", "256"),
        (tmp_path / "memory-group/memory.limit_in_bytes", "1048576"),
    ]


def test_settings_of_version_2() -> None:
    group = Path("/g/nearmetal-x")
    assert settings({"unified": group}, LIMITS) == [
        (group / "cpuset.cpus", "0,2"),
        (group / "cpu.max", "25000 100000"),
        (group / "cpu.weight", "25"),
        (group / "memory.max", "1048576"),
    ]


def test_limited_memory_is_not_swapped_out(tmp_path: Path) -> None:
    """Where the kernel accounts swap, which its files show."""
    swap, with_swap = tmp_path / "memory.swap.max", tmp_path / "memory.memsw.limit_in_bytes"
    swap.touch()
    with_swap.touch()
    assert settings({"unified": tmp_path}, LIMITS)[-1] == (swap, "0")
    assert settings({"memory": tmp_path}, LIMITS)[-1] == (with_swap, "1048576")
    for made in ({"unified": tmp_path}, {"memory": tmp_path}):
        assert settings(made, GroupLimits()) == []


@pytest.mark.parametrize("made", [{"unified": Path("/g/x")}, {"cpu": Path("/g/x"), "memory": Path("/h/x")}])
def test_no_limit_writes_nothing(made: dict[str, Path]) -> None:
    assert settings(made, GroupLimits()) == []


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (256, 25), (1024, 100), (262_144, 10_000)])
def test_weights_of_version_2_keep_the_ratio(shares: int, weight: int) -> None:
    assert unified_weight(shares) == weight


def test_limits_in_force_are_read_back(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    texts = {"cpu.cfs_quota_us": "25000", "cpu.cfs_period_us": "100000", "cpu.shares": "256"}
    for name, text in {**texts, "memory.limit_in_bytes": "1048576"}.items():
        (one / name).write_text(f"{text}\n")
    held = {"cpu_quota": 0.25, "cpu_shares": 256.0, "memory": 1048576.0}
    assert cgroups.read_back({"cpu": one, "memory": one}) == held
    (one / "cpu.cfs_quota_us").write_text("-1\n")
    (one / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    free = {"cpu_quota": None, "cpu_shares": 256.0, "memory": None}
    assert cgroups.read_back({"cpu": one, "memory": one}) == free
    two = tmp_path / "two"
    two.mkdir()
    for name, text in {"cpu.max": "25000 100000", "cpu.weight": "25", "memory.max": "1048576"}.items():
        (two / name).write_text(f"{text}\n")
    assert cgroups.read_back({"unified": two}) == held
    (two / "cpu.max").write_text("max 100000\n")
    assert cgroups.read_back({"unified": two})["cpu_quota"] is None
    assert cgroups.read_back({}) == {}


def test_a_limit_that_the_kernel_made_another_is_an_error() -> None:
    limits = Limits(cpu_quota=0.5, cpu_shares=300, memory=(1 << 20) + 5)
    require_limits(limits, {"cpu_quota": 0.5, "cpu_shares": 296.96, "memory": float(1 << 20)})
    require_limits(Limits(), {})
    for name, found in (("cpu_quota", 0.4), ("cpu_shares", 1024.0), ("memory", None)):
        held = {"cpu_quota": 0.5, "cpu_shares": 300.0, "memory": float(1 << 20), name: found}
        with pytest.raises(RunError, match=f"limit {name}"):
            require_limits(limits, held)


@given(share=st.floats(0.001, 512), period=st.integers(1, 1_000_000))
def test_quota_is_the_share_and_what_the_kernel_takes(share: float, period: int) -> None:
    quota, used = quota_us(share, period)
    assert quota >= SHORTEST_US and used >= max(period, SHORTEST_US)
    assert quota / used == pytest.approx(share, rel=1e-3)


def test_create_replaces_an_old_group_and_remove_is_harmless_twice(tmp_path: Path) -> None:
    group = tmp_path / "nearmetal-x"
    group.mkdir()
    cgroups.create({"memory": group}, GroupLimits())
    assert group.is_dir()
    cgroups.remove((group,))
    cgroups.remove((group,))
    assert not group.exists()


def test_a_limit_that_is_refused_says_where(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"memory\.max"):
        cgroups.create({"unified": tmp_path / "x"}, GroupLimits(memory=5))


def test_a_group_that_cannot_be_removed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "file").touch()
    with pytest.raises(RunError, match="not empty"):
        cgroups.remove((tmp_path / "x",), timeout=0.01)


def test_groups_that_a_program_made_below_ours_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "x" / "payload" / "init").mkdir(parents=True)
    cgroups.remove((tmp_path / "x", tmp_path / "never-made"), timeout=0.01)
    assert not (tmp_path / "x").exists()


def test_own_group_is_found_in_every_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("9:name=systemd:/\n4:cpu,cpuacct:/a/b\n2:pids:/\n0::/u\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "30 20 0:1 / /cg/systemd rw - cgroup cgroup rw,name=systemd\n"
        "31 20 0:2 /a /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 20 0:3 / /cg/unified rw - cgroup2 cgroup2 rw\n"
    )
    wanted = ("cg/systemd", "cg/cpu/b", "cg/unified/u")
    assert cgroups.own_everywhere(tmp_path) == tuple(tmp_path / w for w in wanted)


def test_group_that_is_not_empty_is_kept(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    (full / "child").mkdir(parents=True)
    assert remove_empty((empty, full, tmp_path / "never-made")) == [full]
    assert not empty.exists()
