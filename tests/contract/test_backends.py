"""The contract that every backend keeps, asked of each one that is found here.

Runs as root and as an unprivileged user alike (test_backends_unprivileged.py runs this very file again).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from tests.contract.answers import checked
from tests.contract.not_here import not_here
from tests.patience import one_fits

from nearmetal.environments import Accounted, Backend, Bind, Instance, InstanceRequest, Tools, Unavailable
from nearmetal.environments.holder import user_namespace_holder
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.environments.storage import DISKS, volume, why_not
from nearmetal.errors import RunError, TrialFailedError, UnavailableError
from nearmetal.host import Completed, LocalHost, cgroups
from nearmetal.host.counters.trial import delta, snapshot
from nearmetal.host.leftovers import LeftoverKind, find, remove
from nearmetal.host.processes import labelled as processes
from nearmetal.host.processes.failure import find_error_line
from nearmetal.images.digest import tree_digest
from nearmetal.model.environments.network import Seat
from nearmetal.model.study import Attachment, Environment, Limits, Storage, StorageKind
from nearmetal.node.arms.start_group import started
from nearmetal.node.storage import bound, look, make_inside

pytestmark = [pytest.mark.more, pytest.mark.beside]

HOST = LocalHost()
KINDS = ("mnt", "uts", "ipc", "pid", "net")
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""How a killed command ends: by the signal, or as container programs tell it."""


@dataclass(frozen=True, kw_only=True)
class Rig:
    """One backend, and what it takes to start instances of it here."""

    backend: Backend
    tools: Tools
    directory: Path
    user_namespace: str | None

    def owns(self, *kinds: str) -> bool:
        return self.backend.capabilities.own.issuperset(kinds)

    @property
    def label(self) -> str:
        return f"nearmetal-test{os.getpid()}"

    def environment(self, limits: Limits | None = None, attachment: Attachment | None = None) -> Environment:
        own = Attachment.NONE if self.owns("net") else Attachment.HOST
        return Environment(
            name="tested",
            backend=self.backend.name,
            attachment=attachment or own,
            placements=(),
            limits=limits or Limits(),
            extra_work=0.03 if self.backend.name == "handicap" else 0.0,
        )

    def request(self, slot: str, environment: Environment | None = None, **more: object) -> InstanceRequest:
        scratch = self.directory / f"scratch-{slot}"
        scratch.mkdir()
        fields = {"cpus": HOST.cpus()[-1:], "seat": None, "binds": (), **more}
        return InstanceRequest(
            label=f"{self.label}-{slot}",
            hostname=f"nm{slot}",
            environment=environment or self.environment(),
            scratch=scratch,
            user_namespace=self.user_namespace if self.backend.capabilities.needs_user_namespace else None,
            **fields,  # type: ignore[arg-type]  # the fields that a test varies
        )

    @contextmanager
    def instance(self, slot: str = "a", **more: object) -> Iterator[Instance]:
        with self.backend.start(HOST, self.tools, self.request(slot, **more)) as instance:  # type: ignore[arg-type]
            yield instance


def is_container(name: str) -> bool:
    """Of virtual machines test_guests.py asks: they take seconds to boot."""
    return not get_backend(name).capabilities.virtual


@pytest.fixture(params=[n for n in backend_names() if n not in not_here() and is_container(n)])
def rig(request: pytest.FixtureRequest, tools: Tools, tmp_path: Path) -> Iterator[Rig]:
    """Each backend that works here; in CI, where all of ours must work, one that does not is a failure."""
    backend = get_backend(request.param)
    if backend.name == "docker":
        request.getfixturevalue("docker")
    answer = checked(request.param, tools)
    if isinstance(answer, Unavailable):
        reason = f"{backend.name}: {answer.reason}; {answer.remedy}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    with ExitStack() as stack:
        namespace = None
        if not HOST.is_root():
            label = f"nearmetal-test{os.getpid()}"
            namespace = stack.enter_context(user_namespace_holder(HOST, tools, label)).path
        yield Rig(backend=backend, tools=tools, directory=tmp_path, user_namespace=namespace)


@pytest.mark.core
def test_untested_backend_gives_reason_and_remedy(tools: Tools) -> None:
    """These alone may be missing in CI, and none of them may hide that it could be tested."""
    for name in not_here():
        answer = get_backend(name).check(HOST, tools)
        assert isinstance(answer, Unavailable) and answer.reason and answer.remedy, answer


def run(instance: Instance, *argv: str, **more: object) -> Completed:
    return HOST.run(instance.command(argv), timeout=600, **more)  # type: ignore[arg-type]


def out(instance: Instance, *argv: str) -> str:
    done = run(instance, *argv)
    assert done.ok, done
    return done.stdout.strip()


def in_instance(instance: Instance, comm: str, within: float = 600.0) -> int:
    """The pid, as the machine counts, of the instance's process of this name, as soon as there is one."""
    end = time.monotonic() + within
    while True:
        for pid in processes.labelled(lambda label: label == instance.label):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == f"{comm}\n":
                    return pid
        assert time.monotonic() < end, f"no {comm} in {instance.label}"
        time.sleep(0.005)


def gone(pid: int, within: float = 600.0) -> bool:
    """Whether the process is no more (a zombie that nobody reaps yet counts as gone)."""
    end = time.monotonic() + within
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.005)


@pytest.mark.core
def test_a_command_hands_back_its_output_and_its_end(rig: Rig) -> None:
    with rig.instance() as instance:
        done = run(instance, "sh", "-c", "echo out; echo err >&2; exit 7")
        assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
        assert run(instance, "sh", "-c", "kill -KILL $$").returncode in KILLED
        missing = run(instance, "no-such-program")
        assert missing.returncode == 127
        assert "no-such-program" in missing.stderr and "No such file or directory" in missing.stderr


@pytest.mark.core
def stat_of(pid: int) -> tuple[int, int]:
    """The parent and the session of a process, as the machine counts."""
    _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    _, parent, _, session = rest.split()[:4]
    return int(parent), int(session)


def test_commands_are_descendants_of_the_first_process_and_in_its_session(rig: Rig) -> None:
    # On bare metal only those of an instance that is going to be checkpointed.
    with rig.instance(layer=None if rig.owns("pid") else rig.directory) as instance:
        process = subprocess.Popen(instance.command(["sleep", "3456"]))
        try:
            command = in_instance(instance, "sleep")
            parent, session = stat_of(command)
            while parent not in (0, 1, instance.pid):
                parent, _ = stat_of(parent)
            assert parent == instance.pid
            assert session == stat_of(instance.pid)[1]
            assert session == instance.pid
            streams = {str(Path(f"/proc/{instance.pid}/fd/{stream}").readlink()) for stream in range(3)}
            assert streams == {"/dev/null"}
        finally:
            process.kill()
            process.wait()


def test_a_command_dies_with_its_caller(rig: Rig) -> None:
    with rig.instance() as instance, subprocess.Popen(instance.command(["sleep", "3456"])) as process:
        command = in_instance(instance, "sleep")
        process.kill()
        if rig.backend.name == "lxc":  # lxc-attach has always left its command running
            os.kill(command, signal.SIGKILL)
        assert gone(command)


def test_environment_and_label_reach_the_command(rig: Rig) -> None:
    with rig.instance() as instance:
        done = run(instance, "printenv", "PLANTED", "NEARMETAL_RUN", env={"PLANTED": "a b"})
        assert done.stdout == f"a b\n{instance.label}\n"


@pytest.mark.core
def test_host_name(rig: Rig) -> None:
    with rig.instance() as instance:
        wanted = instance.hostname if rig.owns("uts") else socket.gethostname()
        assert out(instance, "cat", "/proc/sys/kernel/hostname") == wanted


def test_the_same_binaries_as_the_host(rig: Rig) -> None:
    shell = Path("/bin/sh").resolve()
    with rig.instance() as instance:
        inside = out(instance, "sha256sum", str(shell)).split()[0]
    assert inside == hashlib.sha256(shell.read_bytes()).hexdigest()


def small_tree(at: Path) -> Path:
    """A tree with a shell, cat, sha256sum and what they load, and nothing else."""
    for directory in ("etc", "tmp", "proc", "sys", "dev", "run", "usr/bin", "bin", "root"):
        (at / directory).mkdir(parents=True)
    for program in ("/bin/sh", "/bin/cat", "/usr/bin/sha256sum"):
        said = HOST.run(["ldd", program], timeout=600).stdout.split()
        for file in {program, *(word for word in said if word.startswith("/"))}:
            (at / file[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, at / file[1:])
            (at / file[1:]).chmod(0o755)
    (at / "etc" / "os-release").write_text("ID=small\n")
    (at / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    return at


@contextmanager
def with_image(rig: Rig, asked: InstanceRequest) -> Iterator[Instance | None]:
    """An instance of an image; None if a backend of another package refuses images, and names the remedy."""
    starting = rig.backend.start(HOST, rig.tools, replace(asked, user_namespace=rig.user_namespace))
    with ExitStack() as stack:
        instance = None
        try:
            instance = stack.enter_context(starting)
        except UnavailableError as e:
            assert not type(rig.backend).__module__.startswith("nearmetal.") and e.remedy
        yield instance


def test_an_image_is_the_root_and_is_never_written_to(rig: Rig, tmp_path: Path) -> None:
    tree = small_tree(tmp_path / "tree")
    before = tree_digest(tree)
    asked = rig.request("a", replace(rig.environment(), image="small"), tree=tree, binds=(tmp_path / "bind",))
    asked = replace(asked, views=(Bind(tmp_path / "bind", Path("/new/view")),))
    (tmp_path / "bind").mkdir()
    with with_image(rig, asked) as instance:
        if instance is None:
            return
        assert out(instance, "/bin/cat", "/etc/os-release") == "ID=small"
        assert out(instance, "/bin/sh", "-c", "echo new >/etc/new && cat /etc/new") == "new"
        assert run(instance, "/bin/sh", "-c", f"echo inside >{tmp_path}/bind/seen").ok
        assert out(instance, "/bin/cat", "/new/view/seen") == "inside"
        assert not run(instance, "/bin/sh", "-c", "test -e /usr/bin/python3").ok
        if not rig.owns("pid"):  # the machine itself, its root changed
            assert out(instance, "/bin/cat", "/proc/1/stat") != ""
    assert (tmp_path / "bind" / "seen").read_text() == "inside\n"
    assert tree_digest(tree) == before
    assert find(rig.label + "-") == ()


def test_an_image_without_its_tree_is_refused(rig: Rig) -> None:
    asked = rig.request("a", replace(rig.environment(), image="small"))
    start = rig.backend.start(HOST, rig.tools, replace(asked, user_namespace=rig.user_namespace))
    with pytest.raises(UnavailableError, match="small"), start:
        pass


def test_links_of_an_image_lead_nowhere_else(rig: Rig, tmp_path: Path) -> None:
    """A bind below a link of the image is made in the instance, not on the machine."""
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = small_tree(tmp_path / "tree")
    bind = tmp_path / "linked" / "bind"
    bind.mkdir(parents=True)
    (tree / str(tmp_path)[1:]).mkdir(parents=True)
    (tree / str(tmp_path)[1:] / "linked").symlink_to(outside)
    asked = rig.request("a", replace(rig.environment(), image="small"), tree=tree, binds=(bind,))
    with suppress(RunError), with_image(rig, asked) as instance:
        if instance is not None:
            run(instance, "/bin/sh", "-c", f"echo inside >{bind}/seen")
    assert list(outside.iterdir()) == []


@pytest.mark.core
@pytest.mark.parametrize("kind", KINDS)
def test_namespaces_are_own_or_the_hosts(rig: Rig, kind: str) -> None:
    with rig.instance() as instance:
        inside = out(instance, "readlink", f"/proc/self/ns/{kind}")
        assert inside == str(Path(f"/proc/{instance.pid}/ns/{kind}").readlink())
        assert (inside != str(Path(f"/proc/self/ns/{kind}").readlink())) == rig.owns(kind)


def test_attachment_host_keeps_the_hosts_network(rig: Rig) -> None:
    with rig.instance(environment=rig.environment(attachment=Attachment.HOST)) as instance:
        assert out(instance, "readlink", "/proc/self/ns/net") == str(Path("/proc/self/ns/net").readlink())


def test_own_network_has_loopback_up_and_nothing_else(rig: Rig) -> None:
    if not rig.owns("net"):
        return  # the host's network: the test above
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(s.getsockname(), 2); print(*[n for _, n in socket.if_nameindex()])"
    )
    with rig.instance() as instance:
        assert out(instance, "/usr/bin/python3", "-c", server) == "lo"
        assert out(instance, "ls", "/sys/class/net") == "lo"


def test_own_processes_only(rig: Rig) -> None:
    if not rig.owns("pid"):
        return
    with rig.instance() as instance:
        pids = [w for w in out(instance, "ls", "/proc").split() if w.isdigit()]
        assert "1" in pids and len(pids) <= 4
        # Some container programs keep a first process of their own above ours.
        assert "nm-init" in out(instance, "sh", "-c", "cat /proc/[12]/comm 2>/dev/null || :").split()


def test_writes_inside_do_not_reach_the_host(rig: Rig) -> None:
    if not rig.owns("mnt"):
        return
    mark = f"{rig.label}-mark"
    with rig.instance() as instance:
        for top in ("/usr", "/etc", "/tmp", "/dev/shm", "/run"):
            assert out(instance, "sh", "-c", f"echo inside > {top}/{mark} && cat {top}/{mark}") == "inside"
            assert not Path(top, mark).exists()
        assert run(instance, "sh", "-c", f"echo x > {rig.tools.directory}/{mark}").returncode != 0
        assert not (rig.tools.directory / mark).exists()


def test_a_bind_is_shared_both_ways_and_does_not_show_the_scratch_mounts(rig: Rig) -> None:
    """The scratch directory lies inside the bound one, as it does in a run."""
    (rig.directory / "from-host").write_text("host")
    with rig.instance(binds=(rig.directory,)) as instance:
        assert out(instance, "cat", str(rig.directory / "from-host")) == "host"
        assert run(instance, "sh", "-c", f"echo inside > {rig.directory}/from-inside").ok
        assert (rig.directory / "from-inside").read_text() == "inside\n"
        assert out(instance, "ls", str(rig.directory / "scratch-a")) == ""
        mounts = out(instance, "cat", "/proc/self/mounts").splitlines()
        below = [line for line in mounts if line.split()[1].startswith(f"{rig.directory}/")]
        assert [m for m in below if not m.split()[1].startswith(str(rig.tools.directory))] == []


def test_a_view_shows_a_directory_at_another_path(rig: Rig) -> None:
    """Over one that has other contents, in a directory that is new inside, and inside another view. A path
    that a container program would cut is refused by its name."""
    there, shm = Path(__file__).parent, Path("/dev/shm", f"{rig.label}-view")
    before = sorted(there.iterdir())
    script = 'cd "$1" && ls && echo inside | tee "$2/from-inside" results/own/deep && cat from-host'

    def said(name: str) -> list[str]:
        source, inner = rig.directory / name, rig.directory / f"{name} inner"
        for directory in (source, inner):
            directory.mkdir()
        (source / "from-host").write_text("host")
        views = (Bind(inner, there / "results" / "own"), Bind(source, there), Bind(source, shm))
        with rig.instance(str(len(name)), views=views) as instance:
            words = out(instance, "sh", "-c", script, "sh", str(there), str(shm)).split()
        assert (source / "from-inside").read_text() == (inner / "deep").read_text() == "inside\n"
        return words

    if not rig.owns("mnt"):  # only root can bind there, over what exists
        if HOST.is_root():
            with rig.instance(views=(Bind(rig.directory, there),)) as instance:
                out(instance, "sh", "-c", 'echo inside >"$1/from-inside"', "sh", str(there))
            assert (rig.directory / "from-inside").read_text() == "inside\n"
            assert sorted(there.iterdir()) == before
        return
    try:
        words = said('a b:c,d"e\\f')
    except RunError as e:
        assert "accepts no path with" in str(e) and 'a b:c,d"e\\f' in str(e) and e.remedy
        words = said("plain")
    assert words == ["from-host", "results", "inside", "host"]
    assert sorted(there.iterdir()) == before and not shm.exists()


def test_cpus_are_those_asked_for(rig: Rig) -> None:
    for slot, cpu in zip("ab", HOST.cpus(), strict=False):
        with rig.instance(slot, cpus=(cpu,)) as instance:
            status = out(instance, "grep", "Cpus_allowed_list", "/proc/self/status")
            assert status.split() == ["Cpus_allowed_list:", str(cpu)]


def test_commands_are_in_the_groups_of_the_instance(rig: Rig) -> None:
    """As the machine sees it: inside, a namespace of control groups may show other paths."""
    with rig.instance() as instance, ExitStack() as stack:
        files = rig.directory / "stdout", rig.directory / "stderr"
        argv = instance.command(["sleep", "3600"])
        asleep = HOST.start(argv, stdout=files[0], stderr=files[1], cwd=Path("/"))
        stack.callback(asleep.kill)
        own = Path(f"/proc/{in_instance(instance, 'sleep')}/cgroup").read_text().splitlines()
        for controller, directory in instance.cgroups.items():
            lines = [line for line in own if controller in line.split(":")[1].split(",")]
            assert directory.name == instance.label
            # A container program may make groups of its own below ours.
            assert [instance.label in line.split("/") for line in lines] == [True], (controller, own)


def test_disk_writes_are_counted_for_the_instance(rig: Rig) -> None:
    size = 4 << 20
    parents = cgroups.machine_parents()
    counting = isinstance(parents, cgroups.Parents) and "blkio" in parents.controllers
    assert counting or not HOST.is_root()
    on_disk = os.major(rig.directory.stat().st_dev) != 0
    with rig.instance(binds=(rig.directory,)) as instance:

        def counted() -> tuple[float | None, float | None]:
            before = snapshot(HOST, instance.cgroups)
            file = rig.directory / "written"
            assert run(instance, "dd", "if=/dev/zero", f"of={file}", f"bs={size}", "count=1", "conv=fsync").ok
            found = delta(before, snapshot(HOST, instance.cgroups), 1.0)
            return found["blocks_out"], found["blocks_in"]

        if counting:
            # While others write a lot, the kernel may write a part of the file before the instance does.
            least = size if on_disk else 0
            _, read = one_fits(counted, lambda found: found[0] is not None and found[0] >= least, attempts=10)
            assert read is not None
        else:
            assert counted() == (None, None)


@pytest.mark.core
def test_limits_are_set_or_refused(rig: Rig) -> None:
    environment = rig.environment(Limits(cpu_quota=0.5, memory=64 << 20))
    grouped = False
    try:
        with rig.instance(environment=environment) as instance:
            grouped = True
            groups = instance.cgroups
            if "unified" in groups:
                quota, period = map(int, (groups["unified"] / "cpu.max").read_text().split())
                memory = int((groups["unified"] / "memory.max").read_text())
                swap, none = groups["unified"] / "memory.swap.max", 0
            else:
                quota = int((groups["cpu"] / "cpu.cfs_quota_us").read_text())
                period = int((groups["cpu"] / "cpu.cfs_period_us").read_text())
                memory = int((groups["memory"] / "memory.limit_in_bytes").read_text())
                swap, none = groups["memory"] / "memory.memsw.limit_in_bytes", memory
            assert not swap.exists() or int(swap.read_text()) == none, "a kernel may not account swap"
            assert quota / period == pytest.approx(0.5)
            assert memory == 64 << 20
            greedy = run(instance, "/usr/bin/python3", "-c", "bytearray(256 << 20)")
            assert greedy.returncode in KILLED
    except UnavailableError as e:
        assert not grouped and "limits cpu and memory" in e.what
        assert not HOST.is_root()


def test_shared_memory_holds_the_segments_of_ranks(rig: Rig) -> None:
    """Container programs have defaults such as 64 MB, with which ranks of one instance do not start."""
    with rig.instance() as instance:
        size = int(out(instance, "df", "--block-size=1", "--output=size", "/dev/shm").split()[-1])
    assert size >= 1 << 30


def test_a_seat_that_does_not_fit_is_refused(rig: Rig) -> None:
    bridged = rig.environment(attachment=Attachment.VETH_BRIDGE)
    with pytest.raises(UnavailableError), rig.instance("a", environment=bridged):
        pass
    if rig.owns("net"):  # the bare machine on a seat is an emulated node
        seat = Seat(netns="/proc/self/ns/net", address="10.99.0.2", interface="eth0", port="port0")
        with pytest.raises(UnavailableError), rig.instance("b", seat=seat):
            pass
    assert find(rig.label + "-") == ()


@pytest.mark.core
def test_phases_add_up(rig: Rig) -> None:
    before = time.monotonic()
    with rig.instance() as instance:
        whole = time.monotonic() - before
        phases = dict(instance.phases)
        first = phases.pop("first_instruction")
        assert 0 < first <= whole
        assert all(v >= 0 for v in phases.values())
        assert sum(phases.values()) == pytest.approx(first)


DAEMON = """
import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(3600)
"""
"""Two forks and a session of its own, as orted does."""


@pytest.mark.core
def test_daemons_left_by_programs_are_removed_with_the_instance(rig: Rig) -> None:
    with rig.instance() as instance:
        quiet = f"import os\nfor fd in (1, 2): os.dup2(0, fd)\n{DAEMON}"
        assert run(instance, "/usr/bin/python3", "-c", quiet).ok
        holds_the_pipes = instance.command(["/usr/bin/python3", "-c", DAEMON])
        # Where a program stands between, it need not wait for who holds the pipe behind it.
        assert HOST.run(holds_the_pipes, timeout=0.5).returncode in (124, 0)
        assert any(left.kind is LeftoverKind.PROCESS for left in find(instance.label))
    assert find(instance.label) == ()
    assert gone(instance.pid, 0.1)
    assert not any(d.exists() for d in instance.cgroups.values())
    assert list((rig.directory / "scratch-a").iterdir()) == []


@pytest.mark.parametrize("rig", ["native", "handicap"], indirect=True)
def test_bare_machine_runs_no_first_process_unless_requested(rig: Rig) -> None:
    """A daemon of its command is found all the same."""

    def own(label: str) -> bool:
        return label == instance.label

    with rig.instance(first_process=False) as instance:
        assert instance.phases == {} and instance.pid == os.getpid() and not processes.labelled(own)
        quiet = f"import os\nfor fd in (1, 2): os.dup2(0, fd)\n{DAEMON}"
        assert run(instance, "/usr/bin/python3", "-c", quiet).ok
        assert in_instance(instance, "python3")
    assert find(instance.label) == ()


@pytest.mark.parametrize("rig", ["native", "handicap"], indirect=True)
def test_groups_of_the_bare_machine_may_stand_for_a_run(rig: Rig) -> None:
    """One instance after the other in them: each leaves no process there."""
    backend = rig.backend
    assert isinstance(backend, Accounted)
    with backend.accounts(rig.request("run")) as groups:
        for name in ("a", "b"):
            with rig.instance(name, first_process=False, groups=groups) as instance:
                assert instance.cgroups == groups
                quiet = f"import os\nfor fd in (1, 2): os.dup2(0, fd)\n{DAEMON}"
                assert run(instance, "/usr/bin/python3", "-c", quiet).ok
                assert in_instance(instance, "python3")
            assert not any(left.kind is LeftoverKind.PROCESS for left in find(instance.label))
            assert all(d.exists() for d in groups.values())
    assert find(rig.label + "-") == ()


@pytest.mark.core
def test_a_failed_start_says_why_and_leaves_nothing(rig: Rig) -> None:
    if not rig.owns("mnt"):
        return
    request = rig.request("a", binds=(Path("/no/such/directory"),))
    refused = pytest.raises(RunError, match=r"(?i)no such file or directory")
    with refused, rig.backend.start(HOST, rig.tools, request):
        pass
    assert find(rig.label + "-") == ()


@pytest.mark.core
def test_signals_reach_the_command(rig: Rig, tmp_path: Path) -> None:
    with rig.instance() as instance:
        script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
        argv = instance.command(["sh", "-c", script])
        stdout = tmp_path / "stdout"
        process = HOST.start(argv, stdout=stdout, stderr=tmp_path / "stderr", cwd=Path("/"))
        try:
            end = time.monotonic() + 600
            while "ready" not in stdout.read_text() and time.monotonic() < end:
                time.sleep(0.005)
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(600) == 5
        finally:
            process.kill()
        assert stdout.read_text() == "ready\ncaught\n"


@pytest.mark.core
def test_the_agent_runs_what_mpirun_hands_over(rig: Rig, tmp_path: Path) -> None:
    with rig.instance() as instance:
        table = tmp_path / "map"
        table.write_text(f"other 1 - - nearmetal-x\n{instance.agent_line}\n")
        agent = [rig.tools / "nm-box", "agent", str(table)]
        words = ["A=1", ";", "export", "A", ";", "printenv", "A", "NEARMETAL_RUN", ";", "exit", "4"]
        done = HOST.run([*agent, "-x", "-q", instance.hostname, *words], timeout=600)
        assert (done.returncode, done.stdout) == (4, f"1\n{instance.label}\n")
        by_program = tmp_path / "by-program"
        by_program.write_text("a = printf %25s.%25s. one%20word\n")
        done = HOST.run([rig.tools / "nm-box", "agent", str(by_program), "a", "true"], timeout=600)
        assert done.stdout == "one word./bin/sh.-c.true."
        stranger = HOST.run([*agent, "stranger", "true"], timeout=600)
        assert stranger.returncode == 111
        assert str(find_error_line(stranger.stderr)) == "nm-box: host is not in the map (stranger)"


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a 1",
        "a x - - l",
        "a 1 - - l",
        "a 1 who - l -",
        "a  1 - - l -",
        "a 1 - - l - ",
        "a 1 - - l who",
        "a -1 - - l -",
        "a 1 - 0,x l -",
        "a = x%20y%2",
    ],
)
def test_the_agent_refuses_a_map_it_does_not_understand(tools: Tools, tmp_path: Path, line: str) -> None:
    table = tmp_path / "map"
    table.write_text(f"{line}\n")
    done = HOST.run([tools / "nm-box", "agent", str(table), "a", "true"], timeout=600)
    assert done.returncode == 111
    error = find_error_line(done.stderr)
    assert error is not None and error.program == "nm-box" and done.stderr.count("\n") == 1


KILLED_TOOL = """
import sys, time
from pathlib import Path
from nearmetal.environments import InstanceRequest, Tools
from nearmetal.environments.holder import user_namespace_holder
from nearmetal.environments.registry import get_backend
from nearmetal.host import LocalHost
from nearmetal.model.study import Attachment, Environment
name, tools, scratch, label = sys.argv[1:]
tools = Tools(directory=Path(tools))
host = LocalHost()
def go(user):
    request = InstanceRequest(
        label=label, hostname="nmkilled", cpus=host.cpus()[:1], seat=None, binds=(), scratch=Path(scratch),
        user_namespace=user, environment=Environment(name="e", backend=name, placements=(), extra_work=0.03,
            attachment=Attachment.NONE if "net" in get_backend(name).capabilities.own else Attachment.HOST))
    with get_backend(name).start(host, tools, request) as instance:
        host.run(instance.command(["sh", "-c", "sleep 600 >/dev/null 2>&1 &"]), timeout=600)
        print(instance.pid, flush=True)
        time.sleep(3600)
if host.is_root() or not get_backend(name).capabilities.needs_user_namespace:
    go(None)
else:
    with user_namespace_holder(host, tools, label) as holder:
        go(holder.path)
"""


def outlives(pid: int) -> bool:
    """Whether a process may be left until clean ends it: Podman's pause process of a user, which only holds
    the user namespace."""
    try:
        return os.geteuid() != 0 and Path(f"/proc/{pid}/comm").read_text() == "podman pause\n"
    except OSError:
        return True


@pytest.mark.core
def test_after_kill_9_of_the_tool_clean_leaves_nothing(rig: Rig) -> None:
    """A box dies with the tool, whatever runs in it; of a native instance the first process dies, and find()
    names the rest."""
    label = f"{rig.label}-killed"
    scratch = rig.directory / "scratch"
    scratch.mkdir()
    argv = [
        sys.executable,
        "-c",
        KILLED_TOOL,
        rig.backend.name,
        str(rig.tools.directory),
        str(scratch),
        label,
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/") as tool:
        assert tool.stdout is not None
        pid = int(tool.stdout.readline())
        assert any(left.kind is LeftoverKind.PROCESS for left in find(label))
        tool.kill()
    assert gone(pid)
    if rig.owns("pid"):
        end = time.monotonic() + 600
        left = [int(item.detail) for item in find(label) if item.kind is LeftoverKind.PROCESS]
        while not all(outlives(pid) for pid in left) and time.monotonic() < end:
            time.sleep(0.005)
            left = [int(item.detail) for item in find(label) if item.kind is LeftoverKind.PROCESS]
        assert [pid for pid in left if not outlives(pid)] == []
    for item in find(label):
        remove(item)
    assert find(label) == ()


def test_ten_instances_at_once(rig: Rig) -> None:
    with ExitStack() as stack:
        standing = [stack.enter_context(rig.instance(f"i{n}")) for n in range(10)]
        assert len({i.pid for i in standing}) == 10
        for i in standing:
            assert out(i, "printenv", "NEARMETAL_RUN") == i.label
    assert find(rig.label + "-") == ()


def test_instances_side_by_side_and_the_times_of_their_stop(rig: Rig) -> None:
    requests = [rig.request(f"s{n}") for n in range(4)]
    starts = [partial(rig.backend.start, HOST, rig.tools, request) for request in requests]
    with started(starts, together=True, time_stop=True) as group:
        assert [i.label for i in group.instances] == [r.label for r in requests]
        for i, seconds in zip(group.instances, group.seconds, strict=True):
            assert 0 < i.phases["first_instruction"] <= seconds
            assert out(i, "printenv", "NEARMETAL_RUN") == i.label
    assert group.stopped is not None
    assert 0 < group.stopped.ended <= group.stopped.removed
    assert find(rig.label + "-") == ()


def test_an_instance_that_is_gone_before_its_stop_is_a_failed_trial(rig: Rig) -> None:
    start = partial(rig.backend.start, HOST, rig.tools, rig.request("g"))
    with (
        pytest.raises(TrialFailedError, match="ended before it was stopped"),
        started([start], together=True, time_stop=True) as group,
    ):
        os.kill(group.instances[0].pid, signal.SIGKILL)
        assert gone(group.instances[0].pid)
    assert find(rig.label + "-") == ()


@pytest.mark.parametrize("kind", [StorageKind.OVERLAY, StorageKind.BIND, StorageKind.TMPFS, StorageKind.LOOP])
def test_storage_is_what_it_says(rig: Rig, kind: StorageKind) -> None:
    place = str(rig.directory) if kind in (StorageKind.BIND, StorageKind.LOOP) else None
    size = 8 << 20 if kind in (StorageKind.TMPFS, StorageKind.LOOP) else None
    storage = Storage(kind=kind, path=place, size=size)
    if why_not(HOST, storage, own_root=rig.owns("mnt")) is not None:
        assert not HOST.is_root() and kind is not StorageKind.BIND
        return
    asked = rig.request("v")
    with volume(
        HOST,
        storage,
        label=asked.label,
        directory=rig.directory / "mounts",
        shared=None,
        own_root=rig.owns("mnt"),
    ) as v:
        (request,) = bound([asked], [v])
        with rig.backend.start(HOST, rig.tools, request) as instance:
            make_inside(HOST, [instance], [v])
            found = look(HOST, instance, v, storage)
            assert found["path"] == str(v.path) and found["device"]
            assert run(instance, "sh", "-c", f"echo inside > {v.path}/mark").ok
            outside = v.path / "mark"
            assert (outside.read_text() if not v.inside else outside.exists()) in ("inside\n", False)
            if size is not None:
                full = run(instance, "dd", "if=/dev/zero", f"of={v.path}/big", "bs=1M", "count=16")
                assert not full.ok and "No space left" in full.stderr
    assert not v.path.exists()
    assert not any(rig.label in path.name for path in DISKS.iterdir())


def test_a_command_tells_its_first_instruction(rig: Rig) -> None:
    fifo = rig.directory / "exec"
    os.mkfifo(fifo, 0o600)
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        with rig.instance(binds=(rig.directory,)) as instance:
            begin = time.monotonic_ns()
            done = run(instance, rig.tools / "nm-init", "--once-fifo", str(fifo))
            assert done.ok, done
            first = json.loads(os.read(reader, 100))["first"]
            assert begin < first < time.monotonic_ns()
    finally:
        os.close(reader)


def test_tools_that_are_missing_are_named(tmp_path: Path) -> None:
    for name in backend_names():
        answer = get_backend(name).check(HOST, Tools(directory=tmp_path))
        assert isinstance(answer, Unavailable)
        assert "nm-box is missing" in answer.reason and answer.remedy


def test_a_box_that_cannot_do_its_work_says_so_in_one_line(tools: Tools, tmp_path: Path) -> None:
    broken = Tools(directory=tmp_path)
    shutil.copy(tools / "nm-init", tmp_path)
    Path(broken / "nm-box").write_text(
        "#!/bin/sh\necho 'unshare: Operation not permitted (x)' >&2\nexit 111\n"
    )
    Path(broken / "nm-box").chmod(0o755)
    answer = get_backend("namespaces").check(HOST, broken)
    assert isinstance(answer, Unavailable)
    assert answer.reason == "nm-box ended with 111: unshare: Operation not permitted (x)"
    assert answer.remedy


def test_kill_9_of_the_container_program_is_an_end_that_leaves_nothing(rig: Rig) -> None:
    """Of whatever stands above the first process: the program, or where there is none nm-box."""
    with rig.instance() as instance:
        above = int(Path(f"/proc/{instance.pid}/stat").read_text().rpartition(")")[2].split()[1])
        if above == os.getpid():
            return
        os.kill(above, signal.SIGKILL)
        assert gone(instance.pid)
        assert not run(instance, "true").ok
    assert find(instance.label) == ()
    assert list((rig.directory / "scratch-a").iterdir()) == []
