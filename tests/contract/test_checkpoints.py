"""Instances of every backend that offers checkpoints are written to files and restored."""

from __future__ import annotations

import ctypes
import os
import pickle
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.contract.answers import checked
from tests.contract.not_here import not_here
from tests.docker_daemon import offer_criu

from nearmetal.environments import (
    Bind,
    Checkpoints,
    Criu,
    Dump,
    Instance,
    InstanceRequest,
    Tools,
    Unavailable,
)
from nearmetal.environments.criu import start_dump
from nearmetal.environments.criu_images import statistics_of
from nearmetal.environments.leftovers import find_all, remove_any
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.errors import RunError
from nearmetal.host import LocalHost
from nearmetal.host.leftovers import LeftoverKind
from nearmetal.host.processes import labelled as processes
from nearmetal.host.processes.held import await_ends, holding, holding_mounts
from nearmetal.host.runtime import scratch_directory
from nearmetal.images import builtin_definition
from nearmetal.images.build import build
from nearmetal.model.environments.environment import Shared
from nearmetal.model.study import Attachment, Environment
from nearmetal.node.criu import IMAGE, find_criu
from nearmetal.node.machine import image_store
from nearmetal.subjects.launches.job import RankJob

pytestmark = [pytest.mark.more, pytest.mark.beside]

HOST = LocalHost()
NAMES = [n for n in backend_names() if n not in not_here() and isinstance(get_backend(n), Checkpoints)]
PARAMETERS = [pytest.param(n, marks=pytest.mark.apart) if n == "lxc" else n for n in NAMES]
"""All of them; those of lxc belong to the long part of the tests."""
MEMORY = 8 << 20


@pytest.fixture(scope="module")
def criu() -> Criu:
    """The one that is installed, or that of the image, which is built once on a machine, as a user would."""
    found = find_criu(HOST)
    if isinstance(found, Unavailable) and HOST.is_root():
        definition = builtin_definition(IMAGE)
        assert definition is not None
        build(HOST, image_store(), definition, progress=lambda _: None)
        found = find_criu(HOST)
    if isinstance(found, Unavailable):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{found.reason}; {found.remedy}")
    return found


@dataclass(frozen=True, kw_only=True)
class Rig:
    """A backend with what a checkpoint of one of its instances takes."""

    backend: Checkpoints
    tools: Tools
    criu: Criu
    request: InstanceRequest
    images: Path
    shared: Path

    @property
    def record(self) -> Path:
        return self.shared / "record"

    def start_keeper(self, instance: Instance) -> None:
        argv = self.backend.command_alone(instance, [self.tools / "nm-keeper", str(MEMORY), str(self.record)])
        done = HOST.run(argv, timeout=600)
        assert done.returncode == 0, done
        self.wait_beyond(0)

    def checkpoint(self, instance: Instance) -> None:
        argv = self.backend.dump_command(
            self.tools, self.criu, self.request, instance, Dump(images=self.images)
        )
        with holding(instance.pid) as held:
            output = self.images.parent / "dump.err"
            why_stuck = self.backend.watch_dump(instance, self.images)
            start_dump(HOST, self.tools, instance, argv, self.images, output, why_stuck).finish()
            assert await_ends(held, 600) == 0

    def read(self) -> tuple[int, ...]:
        try:
            return struct.unpack("=5Q", self.record.read_bytes())
        except (OSError, struct.error):
            return (0,) * 5

    def wait_beyond(self, steps: int) -> tuple[int, ...]:
        end = time.monotonic() + 600
        while (found := self.read())[0] <= steps:
            assert time.monotonic() < end, f"no more than {found} steps"
            time.sleep(0.001)
        return found


@pytest.fixture(params=PARAMETERS)
def rig(request: pytest.FixtureRequest, tools: Tools, criu: Criu, tmp_path: Path) -> Iterator[Rig]:
    backend = get_backend(request.param)
    if backend.name in ("docker", "crun"):
        request.getfixturevalue(backend.name)
        offer_criu(criu)
    answer = checked(request.param, tools)
    if isinstance(answer, Unavailable):
        reason = f"{backend.name}: {answer.reason}; {answer.remedy}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    assert isinstance(backend, Checkpoints)
    label = f"nearmetal-test{os.getpid()}-c"
    for name in ("scratch", "images", "shared"):
        (tmp_path / name).mkdir()
    own = "net" in backend.capabilities.own
    environment = Environment(
        name="tested",
        backend=backend.name,
        attachment=Attachment.NONE if own else Attachment.HOST,
        placements=(),
    )
    if (refused := backend.refuses_checkpoint(HOST, environment)) is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{refused.reason}; {refused.remedy}")
    with scratch_directory(f"{label}-layer") as layer:
        yield Rig(
            backend=backend,
            tools=tools,
            criu=criu,
            request=InstanceRequest(
                label=label,
                hostname="nmc",
                environment=environment,
                cpus=HOST.cpus()[-1:],
                seat=None,
                binds=(tmp_path / "shared",),
                views=(Bind(tmp_path / "shared", VIEW),) if "mnt" in backend.capabilities.own else (),
                scratch=tmp_path / "scratch",
                layer=layer,
            ),
            images=tmp_path / "images",
            shared=tmp_path / "shared",
        )


def test_restored_instance_continues_unchanged(rig: Rig) -> None:
    backend = get_backend(rig.request.environment.backend)
    with backend.start(HOST, rig.tools, rig.request) as instance:
        rig.start_keeper(instance)
        if "mnt" in backend.capabilities.own:
            inside = ["sh", "-c", f"mkdir /tmp/kept && for f in {FILES}; do echo kept > $f; done"]
            assert HOST.run(instance.command(inside), timeout=600).ok
        masked = HOST.run(instance.command(MASKED), timeout=600).stdout
        network = HOST.run(instance.command(NETWORK), timeout=600).stdout
        assert "lo:" in network
        rig.checkpoint(instance)
        if rig.backend.has_statistics:
            found = statistics_of(rig.images)
            assert found.freezing > 0 and found.frozen > 0 and found.written >= MEMORY
        before = rig.read()
        time.sleep(0.05)
        assert rig.read() == before, "it runs after its checkpoint"
    assert not processes.labelled(lambda label: label == rig.request.label)
    restoring = rig.backend.restoring(HOST, rig.tools, rig.criu, rig.request)
    with restoring as restore, restore(rig.images) as instance:
        after = rig.wait_beyond(before[0] + 300)
        passes, wrong, _, strange = after[1:]
        assert passes > before[1] and (wrong, strange) == (0, 0)
        done = HOST.run(instance.command(["sh", "-c", "exit 7"]), timeout=600)
        assert done.returncode == 7
        allowed = HOST.run(instance.command(["cat", "/proc/self/status"]), timeout=600).stdout
        assert HOST.run(instance.command(MASKED), timeout=600).stdout == masked
        assert HOST.run(instance.command(NETWORK), timeout=600).stdout == network
        assert f"Cpus_allowed_list:\t{rig.request.cpus[0]}\n" in allowed
        if "mnt" in backend.capabilities.own:
            kept = HOST.run(instance.command(["cat", *FILES.split()]), timeout=600)
            assert kept.stdout == "kept\n" * len(FILES.split()), kept
            assert HOST.run(instance.command(["touch", str(VIEW / "seen")]), timeout=600).ok
            assert (rig.shared / "seen").exists()
            own = HOST.run(instance.command(["readlink", "/proc/self/ns/net"]), timeout=600).stdout
            assert own.strip() not in ("", str(Path("/proc/self/ns/net").readlink()))
    steps = rig.read()[0]
    time.sleep(0.05)
    assert rig.read()[0] == steps
    assert not processes.labelled(lambda label: label == rig.request.label)


def test_no_file_waits_for_the_disk_while_the_mounts_of_an_ended_instance_are_held(
    rig: Rig, tmp_path: Path
) -> None:
    backend = get_backend(rig.request.environment.backend)
    if "mnt" not in backend.capabilities.own:
        pytest.skip(f"instances of {backend.name} have the root of the machine")
    kind = HOST.run(["stat", "--file-system", "--format", "%T", str(tmp_path)], timeout=600).stdout.strip()
    if kind == "tmpfs":
        pytest.skip(f"{tmp_path} is on no disk")
    (tmp_path / "layer").mkdir()
    request = replace(rig.request, layer=tmp_path / "layer")
    file = tmp_path / "written"
    end = time.monotonic() + 600
    while True:
        with ExitStack() as held:
            with backend.start(HOST, rig.tools, request) as instance:
                held.enter_context(holding_mounts(instance.pid))
                file.write_bytes(os.urandom(MEMORY))
            if unwritten(file) == 0 and time.monotonic() < end:
                continue  # it is in memory, or the kernel wrote it for its own reasons
            assert unwritten(file) > 0
        if unwritten(file) == 0:
            return  # as without the hold
        assert time.monotonic() < end, "an instance that ends lets no file be written: the hold is not needed"


def unwritten(file: Path) -> int:
    """Return how many pages of a file are only in memory, by cachestat(2)."""
    whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    with file.open("rb") as opened:
        if ctypes.CDLL(None, use_errno=True).syscall(451, opened.fileno(), whole, found, 0) != 0:
            pytest.skip("Linux 6.5 tells which pages are written")
    return found[1] + found[2]


def test_checkpoint_with_a_running_command_fails_and_the_instance_continues(rig: Rig) -> None:
    """Its caller would wait for a command that goes on elsewhere: the checkpoint fails and the instance goes
    on."""
    backend = get_backend(rig.request.environment.backend)
    with backend.start(HOST, rig.tools, rig.request) as instance:
        rig.start_keeper(instance)
        with subprocess.Popen(instance.command(["sleep", "3456"])) as caller:
            end = time.monotonic() + 600
            while "sleep" not in names(instance.label) and time.monotonic() < end:
                time.sleep(0.005)
            with pytest.raises(RunError, match="no checkpoint: "):
                rig.checkpoint(instance)
            rig.backend.thaw(HOST, rig.tools, rig.request, instance)
            rig.wait_beyond(rig.read()[0])
            caller.kill()


def names(label: str) -> set[str]:
    found = set()
    for pid in processes.labelled(lambda other: other == label):
        try:
            found.add(Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:
            continue
    return found


def test_what_cannot_be_checkpointed_is_refused_with_a_remedy(rig: Rig) -> None:
    environment = rig.request.environment
    assert rig.backend.refuses_checkpoint(HOST, environment) is None
    shared = replace(environment, share=(Shared.PID,))
    inside = replace(environment, inside="guest")
    seated = replace(environment, attachment=Attachment.MACVLAN)
    for wrong in (shared, inside, seated):
        answer = rig.backend.refuses_checkpoint(HOST, wrong)
        assert isinstance(answer, Unavailable) and answer.reason and answer.remedy


KILLED_TOOL = """
import pickle, sys, time
from nearmetal.environments.registry import get_backend
from nearmetal.host import Completed, LocalHost, cgroups
rig = pickle.loads(sys.stdin.buffer.read())
name, tools, criu, request, images = rig
restoring = get_backend(name).restoring(LocalHost(), tools, criu, request)
with restoring as restore, restore(images) as instance:
    print(instance.pid, flush=True)
    time.sleep(3600)
"""


def test_a_restored_instance_dies_with_the_tool(rig: Rig) -> None:
    backend = get_backend(rig.request.environment.backend)
    with backend.start(HOST, rig.tools, rig.request) as instance:
        rig.start_keeper(instance)
        rig.checkpoint(instance)
    steps = rig.read()[0]
    given = pickle.dumps((backend.name, rig.tools, rig.criu, rig.request, rig.images))
    argv = [sys.executable, "-c", KILLED_TOOL]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as tool:
        assert tool.stdin is not None and tool.stdout is not None
        tool.stdin.write(given)
        tool.stdin.close()
        assert int(tool.stdout.readline()) > 0
        rig.wait_beyond(steps)
        tool.kill()
    for item in find_all(HOST, rig.request.label):
        inside = item.kind is LeftoverKind.PROCESS and item.name == rig.request.label
        if not inside or "pid" not in backend.capabilities.own:
            remove_any(HOST, item)
    end = time.monotonic() + 600
    while found := processes.labelled(lambda label: label == rig.request.label):
        assert time.monotonic() < end, found
        time.sleep(0.005)
    for item in find_all(HOST, rig.request.label):
        remove_any(HOST, item)
    assert find_all(HOST, rig.request.label) == ()


KERNEL = "ep:class=S"
MASKED = ["sh", "-c", "ls -A /proc/acpi /proc/scsi /sys/firmware; touch /proc/acpi/x /sys/firmware/x"]
"""Lists directories that runc masks. A program must not find more in them after a restore."""
NETWORK = [
    "sh",
    "-c",
    "grep -o lo: /proc/net/dev; grep -om1 127.0.0.1 /proc/net/fib_trie; grep cgroup /proc/mounts",
]
"""Shows whether the loopback interface is there and up, and the mounts of control groups."""
VIEW = Path("/new/view")
FILES = "/etc/nearmetal-kept /tmp/kept/file /run/nearmetal-kept /dev/shm/nearmetal-kept"
"""Written by an instance to its root and to each tmpfs of its own."""


@contextmanager
def rank(rig: Rig, instance: Instance) -> Iterator[RankJob]:
    """nm-micro as a rank in the instance, which counts a perf event, at the FIFOs of a job outside."""
    # Alone, without a daemon of MPI, whose connections CRIU would have to hold.
    alone_in_mpi = ["env", "OMPI_MCA_ess_singleton_isolated=1", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self"]
    words = ["--tokens", str(rig.shared), "--events", "task_clock", KERNEL]
    alone = rig.backend.command_alone(instance, [*alone_in_mpi, rig.tools / "nm-micro", *words])
    log = rig.shared / "log"
    log.mkdir()
    with RankJob(rig.shared, 1, log) as job:
        # Its caller ends as soon as the rank runs; for a job, the launch goes on.
        argv = ("sh", "-c", f"{shlex.join(alone)} && exec sleep 3600")
        job.launch(HOST, argv, {})
        job.ready()
        yield job


def test_checkpoint_of_a_rank_with_perf_events_is_refused_and_it_continues(rig: Rig) -> None:
    backend = get_backend(rig.request.environment.backend)
    with backend.start(HOST, rig.tools, rig.request) as instance, rank(rig, instance) as job:
        before = job.slice(0, 1)
        if backend.name in ("docker", "podman"):
            assert before.used["task_clock"] is None, "its seccomp profile allows perf events"
            return
        assert before.used["task_clock"]
        with pytest.raises(RunError, match="no checkpoint: "):
            rig.checkpoint(instance)
        rig.backend.thaw(HOST, rig.tools, rig.request, instance)
        assert job.slice(0, 1).used["task_clock"]


def test_a_new_sys_keeps_the_security_modules(tools: Tools) -> None:
    """CRIU, which looks there, would otherwise find other modules at a restore than at the dump."""
    look = "ls /sys/class/net; stat --file-system --format %t /sys/kernel/security"
    made = f"mount -t securityfs none /sys/kernel/security && exec {tools / 'nm-box'} wrap --new-net -- sh -c"
    done = HOST.run(["unshare", "--mount", "sh", "-c", f"{made} '{look}'"], timeout=600, cwd=Path("/"))
    assert done.stdout == "lo\n73636673\n", done.stderr
