"""Programs that meet a disk in one environment and memory in another are not compared."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from nearmetal.model.change import replace
from nearmetal.model.record import JsonValue
from nearmetal.model.study import CommandWorkload, Design, Environment, Placement, Storage, StorageKind, Study
from nearmetal.node.trial import DiskWrites
from nearmetal.run import run
from nearmetal.run.unlike_storage import storage_remedy, unlike_storage

DD = ("dd", "if=/dev/zero", "of=out", "bs=1M")
NATIVE, BOX, GUEST = (f"{name}/one" for name in ("native", "box", "guest"))


def study(*argv: str, storage: Storage | None = None) -> Study:
    return Study(
        name="s",
        question="",
        environments=tuple(
            Environment(name=n, backend="native", placements=("one",), storage=storage)
            for n in ("native", "box", "guest")
        ),
        placements=(Placement(name="one", instances=1, tasks=1),),
        workloads=(CommandWorkload(name="dd", argv=argv or DD),),
        design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=2),
    )


def writes(seconds: float = 0.1, **arms: int) -> Mapping[str, Mapping[str, DiskWrites]]:
    return {f"{name}/one": {"dd": DiskWrites(bytes=n, seconds=seconds)} for name, n in arms.items()}


def mount(filesystem: str) -> JsonValue:
    return {"path": "/", "filesystem": filesystem, "source": "x", "device": "0:1"}


def test_only_the_environment_that_meets_memory_is_refused() -> None:
    refused = unlike_storage(study(), writes(native=16 << 20, box=17 << 20, guest=0), {})
    assert refused == {GUEST: f"dd writes 16 MiB in each run, to a disk in {NATIVE} and to memory in {GUEST}"}


def test_a_baseline_in_memory_is_unlike_too() -> None:
    refused = unlike_storage(study(), writes(native=0, box=1 << 20, guest=0), {})
    assert refused == {BOX: f"dd writes 1 MiB in each run, to a disk in {BOX} and to memory in {NATIVE}"}


@pytest.mark.parametrize(
    ("seconds", "native", "box", "refused"),
    [
        (0.1, 0, 0, False),  # it only computes
        (0.1, (64 << 10) - 1, 0, False),  # a log
        (0.1, 64 << 10, 0, True),
        (60.0, 5 << 20, 0, False),  # a result after a minute of computing
        (30.0, 5 << 20, 0, True),
        (0.1, 10 << 20, 1 << 20, False),  # some of its files are in memory in both
        (0.1, 10 << 20, (1 << 20) - 1, True),
    ],
)
def test_few_bytes_are_no_reason(seconds: float, native: int, box: int, refused: bool) -> None:
    found = unlike_storage(study(), writes(seconds, native=native, box=box), {})
    assert (BOX in found) == refused


def test_what_the_kernel_does_not_count_is_not_judged() -> None:
    """virtiofs and 9p write to a disk, although nothing is counted."""
    counted = writes(native=16 << 20, box=0, guest=0)
    mounts = {NATIVE: mount("ext4"), BOX: mount("fuse.sshfs"), GUEST: mount("overlay")}
    assert unlike_storage(study(), counted, mounts).keys() == {GUEST}
    assert unlike_storage(study(), counted, {**mounts, NATIVE: mount("virtiofs")}) == {}
    assert unlike_storage(study(), writes(native=16 << 20), mounts) == {}


def test_memory_that_was_requested_is_compared() -> None:
    """A study may compare kinds of storage."""
    told = study("dd", "of={storage}/out", storage=Storage(kind=StorageKind.BIND, path="/var/tmp"))
    tmpfs = Storage(kind=StorageKind.TMPFS)
    environments = [replace(e, storage=tmpfs) if e.name == "box" else e for e in told.environments]
    told = replace(told, environments=tuple(environments))
    counted = writes(native=16 << 20, box=0, guest=0)
    assert unlike_storage(told, counted, {}).keys() == {GUEST}
    beside = replace(told, workloads=study().workloads)
    assert unlike_storage(beside, counted, {}).keys() == {BOX, GUEST}


def test_the_remedy_is_a_command_line_that_runs(tmp_path: Path) -> None:
    (tmp_path / "tool").touch()
    (tmp_path / "in put").touch()
    command = f"nearmetal weigh native qemu --time 40s -- {shlex.join(DD)}"
    remedy = storage_remedy(study(), command, tmp_path, {"out"})
    assert shlex.split(remedy) == [*shlex.split(command)[:8], "if=/dev/zero", "of={storage}/out", "bs=1M"]
    hidden = ("./tool", "--from", "in put", "-v", "9")
    command = f"nearmetal weigh native qemu -- {shlex.join(hidden)}"
    remedy = storage_remedy(study(*hidden), command, tmp_path, set())
    assert shlex.split(remedy) == [
        *("nearmetal", "weigh", "native", "qemu", "--", "sh", "-c"),
        'cd "$NEARMETAL_STORAGE" && exec "$0" "$@"',
        *(str(tmp_path / "tool"), "--from", str(tmp_path / "in put"), "-v", "9"),
    ]
    (workload,) = study(*shlex.split(remedy)[5:]).commands
    assert workload.storage_name


def test_an_argument_may_be_longer_than_a_file_name(tmp_path: Path) -> None:
    script = "true;" * 100
    command = f"nearmetal weigh native qemu -- {shlex.join(('sh', '-c', script))}"
    told = study("sh", "-c", script)
    assert shlex.split(storage_remedy(told, command, tmp_path, set()))[-1] == script
    assert run._written(told, since=0.0) == set()


def test_remedy_names_the_storage_to_write(tmp_path: Path) -> None:
    remedy = storage_remedy(study(), "nearmetal run s.yaml", tmp_path, {"out"})
    assert remedy.startswith("write into {storage}, and let it be on a disk: storage: {kind: bind, path:")
    told = study("dd", "of={storage}/out", storage=Storage())
    remedy = storage_remedy(told, "nearmetal weigh a b -- dd 'of={storage}/out'", tmp_path, set())
    assert remedy.startswith("let every environment have its storage on a disk: storage: {kind: bind,")
