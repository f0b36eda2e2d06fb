"""runc, crun, podman and docker without starting anything: bundles, words, settings, what is kept."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearmetal.environments import Bind, InstanceRequest, Tools, leftovers
from nearmetal.environments.containers.docker import container_words as docker_words
from nearmetal.environments.containers.docker_image import look_at, overlays
from nearmetal.environments.containers.oci import bundle
from nearmetal.environments.containers.podman import Store, container_options, settings
from nearmetal.environments.instance import require_fitting
from nearmetal.environments.program import FirstReport, entered_by_call
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import Host, LocalHost, cgroups
from nearmetal.host.leftovers import LeftoverKind
from nearmetal.model.environments.network import Seat
from nearmetal.model.study import Attachment, Environment, Limits

SEAT = Seat(netns="/run/netns/nearmetal-x-a", address="10.99.0.2", interface="eth0", port="port0")
BINDS = (
    Bind(Path("/from,here"), Path("/data")),
    Bind(Path("/tools"), Path("/tools"), writable=False),
)


def request(attachment: Attachment = Attachment.NONE, **more: Any) -> InstanceRequest:
    environment = Environment(
        name="e", backend="b", placements=(), attachment=attachment, limits=more.pop("limits", Limits())
    )
    fields: dict[str, Any] = {"hostname": "nm0a", "seat": None, "cpus": (0, 1), **more}
    return InstanceRequest(
        label="nearmetal-x-0a", environment=environment, binds=(), scratch=Path("/scratch"), **fields
    )


def a_bundle(asked: InstanceRequest, groups: str | None = "nearmetal-x-0a") -> dict[str, Any]:
    report = FirstReport(directory=Path("/r"), argv=("/tools/nm-init", "--first-fifo", "/r/f"), descriptor=-1)
    return bundle(asked, report, Path("/root"), BINDS, groups)


@pytest.mark.parametrize(
    ("attachment", "seat", "network"),
    [
        (Attachment.HOST, None, []),
        (Attachment.LOOPBACK, None, [{"type": "network"}]),
        (Attachment.VETH_BRIDGE, SEAT, [{"type": "network", "path": SEAT.netns}]),
    ],
)
def test_a_bundle_has_the_network_that_was_asked_for(
    attachment: Attachment, seat: Seat | None, network: list[dict[str, str]]
) -> None:
    namespaces = a_bundle(request(attachment, seat=seat))["linux"]["namespaces"]
    assert [n for n in namespaces if n["type"] == "network"] == network
    assert {n["type"] for n in namespaces} >= {"pid", "ipc", "uts", "mount"}


def test_a_bundle_binds_after_what_is_fresh_and_carries_the_label() -> None:
    found = a_bundle(request())
    places = [m["destination"] for m in found["mounts"]]
    assert places.index("/data") > max(places.index(p) for p in ("/tmp", "/run", "/dev/shm", "/proc"))
    (tools,) = (m for m in found["mounts"] if m["destination"] == "/tools")
    assert tools["options"] == ["rbind", "ro"]
    assert "NEARMETAL_RUN=nearmetal-x-0a" in found["process"]["env"]
    assert found["process"]["args"][0] == "/tools/nm-init"


def test_a_bundle_leaves_control_groups_alone_where_the_runtime_is_to() -> None:
    assert a_bundle(request())["linux"]["cgroupsPath"] == "nearmetal-x-0a"
    assert not {"cgroupsPath", "resources"} & a_bundle(request(), None)["linux"].keys()


@pytest.mark.parametrize(
    ("attachment", "seat", "network"),
    [
        (Attachment.HOST, None, "host"),
        (Attachment.NONE, None, "none"),
        (Attachment.MACVLAN, SEAT, f"ns:{SEAT.netns}"),
    ],
)
def test_words_of_podman(attachment: Attachment, seat: Seat | None, network: str) -> None:
    asked = request(attachment, seat=seat)
    store = Store.of(asked)
    words = container_options(asked, store, BINDS, groups="/nearmetal-x-0a")
    assert words[words.index("--network") + 1] == network
    assert words[words.index("--cgroup-parent") + 1] == "/nearmetal-x-0a"
    assert words[-2:] == ["--rootfs", str(store.overlay / "root")]
    assert 'type=bind,"src=/tools","dst=/tools",readonly' in words
    assert 'type=bind,"src=/from,here","dst=/data"' in words
    assert "--cgroup-parent" not in container_options(asked, store, (), groups=None)


def test_a_podman_container_that_is_checkpointed_has_its_own_network_and_options_of_criu(
    tmp_path: Path,
) -> None:
    asked = request(layer=tmp_path)
    store = Store.of(asked)
    words = container_options(asked, store, BINDS, groups=None)
    assert words[words.index("--network") + 1] == f"ns:{store.directory / 'net'}"
    assert words[words.index("--annotation") + 1].startswith("org.criu.config=")
    assert store.label != asked.label, "those restored from it would be killed with Podman's processes"
    beside = Store.of(replace(asked, label="nearmetal-123456-100r-checkpoint", beside=True))
    assert store != beside and len(str(beside.short)) <= 50, "Podman refuses a longer path"


def test_podman_is_given_limits_that_it_may_set_and_the_runtime_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 1 << 30))
    highest = int(Path("/proc/sys/kernel/pid_max").read_text())
    text = settings("nearmetal-x-0a", path="/bin", runc="/s/runc")
    assert f'"nofile=1024:{1 << 30}"' in text and f'"nproc=1024:{highest}"' in text
    assert 'runtime = "/s/runc"' in text and "NEARMETAL_RUN=nearmetal-x-0a" in text
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    text = settings("x", path="/bin", runc=None)
    assert "default_ulimits = []" in text and "runtime =" not in text


def test_docker_holds_to_limits_by_itself_where_it_takes_no_group() -> None:
    asked = request(limits=Limits(cpu_quota=0.5, cpu_shares=256, memory=64 << 20))
    common: dict[str, Any] = {"image": "i", "mounts": ["--mount", "m"], "seat": None}
    own = docker_words(asked, BINDS, groups=None, **common)
    words = ("--cpus", "--cpu-shares", "--memory", "--memory-swap", "--cpuset-cpus")
    assert [own[own.index(w) + 1] for w in words] == ["0.5", "256", "67108864", "67108864", "0,1"]
    assert own[-3:] == ["--mount", "m", "i"]
    grouped = docker_words(asked, BINDS, groups="/g", **common)
    assert "--cpus" not in grouped and grouped[grouped.index("--cgroup-parent") + 1] == "/g"
    assert 'type=bind,"src=/tools","dst=/tools",readonly' in grouped


@pytest.mark.parametrize(
    ("attachment", "seat", "network"),
    [
        (Attachment.HOST, None, "host"),
        (Attachment.NONE, None, "none"),
        (Attachment.MACVLAN, "nearmetal-x-0a-seat", "container:nearmetal-x-0a-seat"),
    ],
)
def test_docker_joins_the_network_of_the_container_in_its_seat(
    attachment: Attachment, seat: str | None, network: str
) -> None:
    words = docker_words(request(attachment), BINDS, image="i", mounts=[], groups=None, seat=seat)
    assert words[words.index("--network") + 1] == network
    assert ("--hostname" in words) == (seat is None)  # Docker refuses it beside another's network


def test_a_skeleton_holds_the_top_of_a_tree_and_nothing_below(tmp_path: Path) -> None:
    tree, state = tmp_path / "tree", tmp_path / "state"
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "home").mkdir(mode=0o750)
    (tree / "proc/1").mkdir(parents=True)
    (tree / "bin").symlink_to("usr/bin")
    (tree / "file").touch()
    found = look_at(tree)
    assert found.full == ("usr",) and dict(found.links) == {"bin": "usr/bin"}
    assert found.skeleton() == look_at(tree).skeleton()
    with tarfile.open(fileobj=io.BytesIO(found.skeleton())) as tar:
        assert {m.name for m in tar} == {"bin", "dev", "home", "proc", "run", "sys", "tmp", "usr"}
    option, mount = overlays(found, state)
    assert option == "--mount" and f"lowerdir={tree}/usr,upperdir={state}/upper/usr" in mount
    with pytest.raises(RunError, match="must not contain comma"):
        overlays(look_at(tree), tmp_path / "a,b")


def test_the_first_braces_are_ours(tmp_path: Path) -> None:
    words = entered_by_call(Tools(directory=tmp_path), request(), Path("/calls"), ["runc", "exec", "c"])
    assert words[1:7] == ("call", "/calls", "--", "runc", "exec", "c")
    assert words[-4:] == ("0,1", "--call", "{}", "--")


def test_a_name_too_long(tmp_path: Path) -> None:
    require_fitting(request(hostname="a" * 63))
    with pytest.raises(UnavailableError, match="longer than 63"):
        require_fitting(request(hostname="a" * 64))


def test_paths_of_groups_for_a_runtime() -> None:
    version1 = {"cpu": Path("/sys/fs/cgroup/cpu/x")}
    assert (cgroups.path_for_runtime(version1, "x"), cgroups.path_from_top(version1, "x")) == ("x", "/x")


class Keeper:
    name = "keeper"

    def __init__(self) -> None:
        self.names = ["nearmetal-0a1b2c-0", "mine", "nearmetal-0a1b2c"]

    def instance_names(self, host: Host) -> tuple[str, ...]:
        return tuple(self.names)

    def remove_instance(self, host: Host, name: str) -> None:
        self.names.remove(name)


def test_only_labels_of_ours_are_taken_from_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Keeper()
    monkeypatch.setattr(leftovers, "_managers", lambda: (keeper,))
    monkeypatch.setattr(leftovers, "find", lambda prefix, spare: ())
    found = leftovers.find_all(LocalHost())
    assert [(i.kind, i.name, i.detail) for i in found] == [
        (LeftoverKind.CONTAINER, "nearmetal-0a1b2c-0", "keeper"),
        (LeftoverKind.CONTAINER, "nearmetal-0a1b2c", "keeper"),
    ]
    for item in found:
        leftovers.remove_any(LocalHost(), item)
    assert keeper.names == ["mine"]


def test_quiet_search_reads_notes_instead_of_asking_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quiet(Keeper):
        def recorded_instances(self, host: Host) -> tuple[str, ...]:
            return ("nearmetal-0a1b2d",)

    monkeypatch.setattr(leftovers, "_managers", lambda: (Keeper(), Quiet()))
    monkeypatch.setattr(leftovers, "find", lambda prefix, spare: ())
    both = ["nearmetal-0a1b2c-0", "nearmetal-0a1b2c"]
    assert [i.name for i in leftovers.find_all(LocalHost())] == both * 2
    assert [i.name for i in leftovers.find_all(LocalHost(), quietly=True)] == [*both, "nearmetal-0a1b2d"]
