"""Backends without starting anything: tokens, the agent's line, names, remedies, refusals."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nearmetal import plugins
from nearmetal.environments import Bind, InstanceRequest, Tools, registry
from nearmetal.environments.containers.namespaces import start_argv
from nearmetal.environments.instance import init_name, make_instance, require_host_image
from nearmetal.environments.native import Native
from nearmetal.environments.probe import remedy
from nearmetal.errors import UnavailableError
from nearmetal.host import Host, LocalHost, MissingValue
from nearmetal.model.capabilities import ENTRY_POINTS
from nearmetal.model.environments.network import Seat
from nearmetal.model.study import Attachment, Environment

SEAT = Seat(netns="/run/netns/nearmetal-x-a", address="10.99.0.2", interface="eth0", port="port0")


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(directory=tmp_path)


def request(tmp_path: Path, **more: Any) -> InstanceRequest:
    fields: dict[str, Any] = {
        "label": "nearmetal-x-0a",
        "hostname": "nm0a",
        "environment": environment(),
        "cpus": (0, 1),
        "seat": None,
        "binds": (),
        "scratch": tmp_path / "scratch",
    }
    return InstanceRequest(**{**fields, **more})


def environment(attachment: Attachment = Attachment.HOST, image: str = "host") -> Environment:
    return Environment(name="e", backend="b", placements=(), attachment=attachment, image=image)


def test_start_tokens_rootful(tmp_path: Path, tools: Tools) -> None:
    asked = request(
        tmp_path,
        seat=SEAT,
        environment=environment(Attachment.VETH_BRIDGE),
        binds=(Path("/usr"),),
        views=(Bind(Path("/usr/bin"), Path("/data")),),
    )
    assert start_argv(tools, asked, (Path("/g/cpu"), Path("/g/memory"))) == [
        *(f"{tmp_path}/nm-box", "start", "--root-overlay", f"{tmp_path}/scratch", "--hostname", "nm0a"),
        *("--netns", SEAT.netns, "--cgroup", "/g/cpu", "--cgroup", "/g/memory"),
        *("--bind", "/usr/bin", "--at", "/data"),
        *("--bind-read-only", str(tmp_path), "--bind", "/usr", "--cpus", "0,1"),
        *("--report-fd", "3", "--", f"{tmp_path}/nm-init", "--first-fd", "3"),
        *("--socket", init_name("nearmetal-x-0a")),
    ]


def test_tools_below_a_bind_are_not_bound_again(tmp_path: Path, tools: Tools) -> None:
    argv = start_argv(tools, request(tmp_path, binds=(tmp_path.parent,)), ())
    assert "--bind-read-only" not in argv


def test_binds_are_resolved_since_links_mean_something_else_inside(tmp_path: Path, tools: Tools) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    argv = start_argv(tools, request(tmp_path, binds=(tmp_path / "link",)), ())
    assert argv[argv.index("--bind") + 1] == str(tmp_path / "real")


@pytest.mark.parametrize(
    ("attachment", "own"), [(Attachment.HOST, False), (Attachment.LOOPBACK, True), (Attachment.NONE, True)]
)
def test_network_without_a_seat(tmp_path: Path, tools: Tools, attachment: Attachment, own: bool) -> None:
    argv = start_argv(tools, request(tmp_path, environment=environment(attachment)), ())
    assert ("--new-net" in argv) == own and "--netns" not in argv


@pytest.mark.parametrize("attachment", list(Attachment))
def test_seat_and_attachment_must_agree(tmp_path: Path, tools: Tools, attachment: Attachment) -> None:
    seat = None if attachment.seated else SEAT
    with pytest.raises(UnavailableError, match=attachment.value):
        start_argv(tools, request(tmp_path, environment=environment(attachment), seat=seat), ())


def test_tokens_and_agent_line_of_a_boxed_instance(tmp_path: Path, tools: Tools) -> None:
    groups = {
        "cpu": Path("/g/cpu,cpuacct/x"),
        "cpuacct": Path("/g/cpu,cpuacct/x"),
        "memory": Path("/g/memory/x"),
    }
    asked = request(tmp_path, user_namespace="/proc/7/ns/user")
    box = make_instance(tools, asked, pid=42, namespaces_of=42, groups=groups, phases={})
    assert box.command(["a", "b c"]) == [
        *(f"{tmp_path}/nm-box", "enter", "--pid", "42", "--label", "nearmetal-x-0a", "--by-init"),
        *(init_name("nearmetal-x-0a"), "--user-namespace"),
        *("--cpus", "0,1", "--cgroup", "/g/cpu,cpuacct/x", "--cgroup", "/g/memory/x", "--", "a", "b c"),
    ]
    init = init_name("nearmetal-x-0a")
    assert box.agent_line == f"nm0a 42 user 0,1 nearmetal-x-0a {init} /g/cpu,cpuacct/x /g/memory/x"


def test_tokens_and_agent_line_of_a_native_instance(tmp_path: Path, tools: Tools) -> None:
    asked = request(tmp_path, cpus=(), user_namespace="/proc/7/ns/user")
    native = make_instance(tools, asked, pid=42, namespaces_of=0, groups={}, phases={})
    assert native.command(["true"]) == [
        *(f"{tmp_path}/nm-box", "enter", "--pid", "0", "--label", "nearmetal-x-0a", "--by-init"),
        *(init_name("nearmetal-x-0a"), "--", "true"),
    ]
    assert native.agent_line == f"nm0a 0 - - nearmetal-x-0a {init_name('nearmetal-x-0a')}"


def test_other_images_than_the_hosts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="trixie"):
        require_host_image(request(tmp_path, environment=environment(image="trixie")))


@pytest.mark.parametrize("attachment", [Attachment.NONE, Attachment.VETH_BRIDGE])
def test_native_has_no_network_of_its_own(tmp_path: Path, tools: Tools, attachment: Attachment) -> None:
    asked = request(tmp_path, environment=environment(attachment))
    with (
        pytest.raises(UnavailableError, match="machine's own network"),
        Native().start(LocalHost(), tools, asked),
    ):
        pass


def test_our_backends_are_found_and_loaded_by_entry_point() -> None:
    found = {name: registry.get_backend(name) for name in registry.backend_names()}
    assert {"native", "namespaces", "handicap"} <= found.keys()
    assert all(backend.name == name for name, backend in found.items())


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("namespace", "did you mean 'namespaces'?"), ("zzz", "there are handicap, namespaces, native")],
)
def test_an_unknown_backend_is_answered_with_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, asked: str, meant: str
) -> None:
    ours = {name: EntryPoint(name, "x:y", ENTRY_POINTS) for name in ("native", "namespaces", "handicap")}
    monkeypatch.setattr(plugins, "points", lambda _: ours)
    with pytest.raises(UnavailableError) as caught:
        registry.get_backend(asked)
    assert caught.value.remedy == meant


def test_a_backend_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "no_such_module:X", ENTRY_POINTS)
    monkeypatch.setattr(plugins, "points", lambda _: {"broken": broken})
    with pytest.raises(UnavailableError, match="'broken' of no_such_module:X does not load: No module named"):
        registry.get_backend("broken")


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"kernel/unprivileged_userns_clone": b"0\n"}, "sysctl -w kernel.unprivileged_userns_clone=1"),
        ({"user/max_user_namespaces": b"0\n"}, "sysctl -w user.max_user_namespaces=10000"),
        (
            {"user/max_user_namespaces": b"9000\n", "kernel/apparmor_restrict_unprivileged_userns": b"1\n"},
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({}, "run as root, or let this user make user namespaces"),
    ],
)
def test_the_remedy_names_the_setting_that_forbids(files: dict[str, bytes], line: str) -> None:
    host = SimpleNamespace(
        is_root=lambda: False,
        read=lambda path: files.get(path.removeprefix("/proc/sys/"), MissingValue("no such file")),
    )
    assert remedy(cast(Host, host)) == line
