"""Backends that wrap a container program, without starting one: command lines, config files, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearmetal.environments import Bind, InstanceRequest, Seat, Tools
from nearmetal.environments.containers import apptainer, bubblewrap, charliecloud, lxc, nspawn
from nearmetal.environments.containers.wrapped import Started, Wrapped, wrapped
from nearmetal.environments.contract import Unavailable
from nearmetal.environments.instance import all_binds
from nearmetal.environments.program import FirstReport
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import runtime
from nearmetal.model.study import Attachment, Environment
from nearmetal.testing.fake_host import Answer, FakeHost

STATE = Path("/run/nearmetal/nearmetal-x-0a-state")
REPORT = FirstReport(
    directory=STATE / "report", argv=("/t/nm-init", "--first-fifo", f"{STATE}/report/first"), descriptor=-1
)

SEAT = Seat(netns="/n", address="a", interface="e", port="p")


def request(scratch: Path = Path("/s"), **more: Any) -> InstanceRequest:
    environment = Environment(
        name="e", backend="b", placements=(), attachment=more.pop("attachment", Attachment.NONE)
    )
    fields: dict[str, Any] = {
        "label": "nearmetal-x-0a",
        "hostname": "nm0a",
        "environment": environment,
        "cpus": (0, 1),
        "seat": None,
        "binds": (),
        "scratch": scratch,
    }
    return InstanceRequest(**{**fields, **more})


def given(**more: Any) -> Wrapped:
    binds = more.pop("binds", BINDS)
    groups = {"cpu": Path("/g/cpu/x"), "cpuacct": Path("/g/cpu/x"), "memory": Path("/g/memory/x")}
    return Wrapped(
        request=request(**more),
        groups=groups,
        overlay=STATE / "overlay",
        state=STATE,
        report=REPORT,
        prefix=("nm-box", "wrap", "--"),
        binds=binds,
    )


def same(path: str, *, writable: bool = True) -> Bind:
    return Bind(Path(path), Path(path), writable=writable)


BINDS = (same("/b c"), same("/t", writable=False), same(str(REPORT.directory)))


def pairs(argv: list[str], option: str) -> list[tuple[str, ...]]:
    return [tuple(argv[i + 1 : i + 3]) for i, word in enumerate(argv) if word == option]


def test_bubblewrap() -> None:
    argv = bubblewrap.container(given())
    assert argv[0] == "bwrap" and argv[-4:] == ["--", *REPORT.argv]
    assert {"--die-with-parent", "--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts"} <= set(argv)
    assert "--unshare-net" not in argv  # nm-box wrap stands in the network already
    assert ("/b c", "/b c") in pairs(argv, "--bind") and pairs(argv, "--ro-bind") == [("/t", "/t")]
    root = argv.index(f"{STATE}/overlay/root")
    assert root < argv.index("/tmp") < argv.index("/b c")  # what is mounted later stands above


def test_nspawn_keeps_colons_in_paths() -> None:
    argv = nspawn.container(given(binds=(Bind(Path("/a:b"), Path("/c:d")), same("/t", writable=False))))
    assert argv[-4:] == ["--", *REPORT.argv]
    assert r"--bind=/a\:b:/c\:d" in argv and "--bind-ro=/t:/t" in argv
    assert argv[argv.index("--hostname") + 1] == "nm0a"
    assert argv[argv.index("--setenv") + 1] == "NEARMETAL_RUN=nearmetal-x-0a"
    assert {"--keep-unit", "--register=no"} <= set(argv)


def test_lxc_configuration() -> None:
    lines = lxc.configuration(given()).splitlines()
    items = [(key, value) for key, _, value in (line.partition(" = ") for line in lines)]
    assert all(key and value for key, value in items)
    values = dict(items)
    assert values["lxc.uts.name"] == "nm0a" and values["lxc.net.0.type"] == "none"
    assert values["lxc.rootfs.path"] == f"dir:{STATE}/overlay/root"
    assert values["lxc.init.cmd"] == " ".join(REPORT.argv)
    # Every group that it makes bears the label, so that nearmetal clean finds it.
    assert values["lxc.cgroup.dir.container"] == "nearmetal-x-0a"
    assert values["lxc.cgroup.dir.monitor"].startswith("nearmetal-x-0a-")
    assert values["lxc.cgroup.dir.monitor.pivot"].startswith("nearmetal-x-0a-")
    mounts = [value for key, value in items if key == "lxc.mount.entry"]
    assert r"/b\040c b\040c none rbind,create=dir 0 0" in mounts
    assert "/t t none rbind,ro,create=dir 0 0" in mounts
    assert lxc.fstab(Path("/a b\nlxc.hook")) == r"/a\040b\012lxc.hook"


def test_first_error_of_lxc_is_reported() -> None:
    output = (
        '\nlxc-start: c: ../src/lxc/start.c: start: 2197 No such file or directory - Failed to exec "/x"\n'
        "lxc-start: c: ../src/lxc/tools/lxc_start.c: main: 306 The container failed to start\n"
    )
    assert lxc.find_lxc_message(output) == 'No such file or directory - Failed to exec "/x"'
    assert lxc.find_lxc_message("") == ""
    spaced = FirstReport(directory=Path("/a"), argv=("/a b/nm-init",), descriptor=-1)
    with pytest.raises(RunError, match="no path with a space"):
        lxc.container(replace(given(), report=spaced))


def test_charliecloud_and_its_way_in() -> None:
    argv = charliecloud.container(given())
    assert argv[: len(charliecloud.CH_RUN)] == list(charliecloud.CH_RUN)
    assert argv[-5:] == [f"{STATE}/overlay/root", "--", *REPORT.argv]
    binds = [argv[i + 1] for i, word in enumerate(argv) if word == "--bind"]
    assert binds == [f"{STATE}/overlay/shm:/dev/shm", "/b c:/b c", "/t:/t", f"{STATE}/report:{STATE}/report"]
    tools = Tools(directory=Path("/t"))
    way = charliecloud.entrance(tools, Started(given=given(), pid=42, phases={}))
    assert way == [
        *("/t/nm-box", "enter", "--pid", "42", "--only", "uts,net"),
        *("--cgroup", "/g/cpu/x", "--cgroup", "/g/memory/x", "--", *charliecloud.CH_RUN),
        *("--join-pid", "42", str(STATE), "--"),
    ]
    unprivileged = Started(given=given(user_namespace="/proc/7/ns/user"), pid=42, phases={})
    shared = ["/t/nm-box", "enter", "--pid", "7", "--user-namespace", "--only", "user", "--"]
    assert charliecloud.entrance(tools, unprivileged) == [*shared, *way]


def test_apptainer_hands_on_only_what_we_have() -> None:
    plain = apptainer.container(given(), lacking=())
    assert plain[0] == "apptainer" and plain[-4:] == [f"{STATE}/overlay/root", *REPORT.argv]
    assert "/t:/t:ro" in plain and "/b c:/b c" in plain and "--drop-caps" not in plain
    less = apptainer.container(given(), lacking=("CAP_SYS_RESOURCE",))
    assert less[less.index("--drop-caps") + 1] == "CAP_SYS_RESOURCE"
    everything = f"Name:\tx\nCapEff:\t{(1 << 41) - 1:016x}\n"
    assert apptainer.lacking_capabilities(everything) == ()
    without = f"CapEff:\t{((1 << 41) - 1) & ~(1 << 24):016x}\n"
    assert apptainer.lacking_capabilities(without) == ("CAP_SYS_RESOURCE",)
    assert (
        apptainer.lacking_capabilities("CapEff:\t0000000000000000\n") == ()
    )  # an ordinary user has none to give


def test_apptainer_without_root_needs_an_image() -> None:
    asked = request(user_namespace="/proc/7/ns/user")
    refused = pytest.raises(UnavailableError, match="without root")
    with refused, apptainer.Apptainer().start(FakeHost(), Tools(directory=Path("/t")), asked):
        pass


@pytest.mark.parametrize("backend", [lxc.Lxc(), nspawn.Nspawn()])
def test_lxc_and_nspawn_say_that_they_need_root(backend: lxc.Lxc | nspawn.Nspawn) -> None:
    host = FakeHost(root=False)
    with (
        pytest.raises(UnavailableError, match="needs root"),
        backend.start(host, Tools(directory=Path("/t")), request()),
    ):
        pass


@pytest.mark.parametrize(
    ("command_line", "path"),
    [(charliecloud.container, "/a:b"), (lambda g: apptainer.container(g, lacking=()), "/a,b")],
)
def test_paths_that_would_end_on_the_command_line_are_refused(command_line: Any, path: str) -> None:
    with pytest.raises(RunError, match=r"accepts? no path|must not contain"):
        command_line(given(binds=(same(path),)))


def test_binds_must_be_there_and_the_tools_are_read_only(tmp_path: Path) -> None:
    tools = Tools(directory=tmp_path / "tools")
    tools.directory.mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    assert all_binds(tools, request(binds=(tmp_path / "link",))) == (same(str(tmp_path)),)
    assert all_binds(tools, request()) == (same(str(tools.directory), writable=False),)
    with pytest.raises(RunError, match="No such file or directory"):
        all_binds(tools, request(binds=(tmp_path / "none",)))


def test_a_bind_inside_another_comes_later_and_has_a_mount_point(tmp_path: Path) -> None:
    tools = Tools(directory=tmp_path / "job" / "tools")
    copy = tmp_path / "copy"
    for directory in (tools.directory, tmp_path / "job" / "results", copy):
        directory.mkdir(parents=True)
    job = tmp_path / "job"
    binds = all_binds(tools, request(binds=(job / "results", job), views=(Bind(copy, job),)))
    assert binds == (
        Bind(copy, job),
        same(str(job / "results")),
        same(str(tools.directory), writable=False),
    )
    assert {p.name for p in copy.iterdir()} == {"results", "tools"}
    (copy / "file").touch()
    with pytest.raises(RunError, match=r"bind .*/job/file/x: .*/copy/file: File exists"):
        all_binds(tools, request(views=(Bind(copy, job), Bind(tmp_path, job / "file" / "x"))))


@pytest.mark.parametrize(
    ("more", "wanted", "unwanted"),
    [
        ({}, ["--new-net"], ["--netns", "--user-namespace"]),
        ({"attachment": Attachment.HOST}, [], ["--new-net", "--netns"]),
        (
            {
                "attachment": Attachment.VETH_BRIDGE,
                "seat": Seat(netns="/n", address="a", interface="e", port="p"),
            },
            ["--netns"],
            ["--new-net"],
        ),
        ({"user_namespace": "/proc/7/ns/user", "cpus": ()}, ["--user-namespace"], ["--cpus"]),
    ],
)
def test_container_program_is_wrapped_by_nm_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: Any, wanted: list[str], unwanted: list[str]
) -> None:
    monkeypatch.setattr(runtime, "runtime_directory", lambda: tmp_path / "runtime")
    tools = Tools(directory=tmp_path)
    with wrapped(tools, request(**more), {"cpu": Path("/g/x")}) as made:
        words = list(made.prefix)
        assert words[-1] == "--" and words[:2] == [tools / "nm-box", "wrap"]
        assert set(wanted) <= set(words) and not set(unwanted) & set(words)
        assert words[words.index("--cgroup") + 1] == "/g/x"
        assert pairs(words, "--read-only")[0][0] == str(tmp_path.resolve())
        assert made.state.name == "nearmetal-x-0a-state" and made.request.scratch == made.state
        assert (made.state / "report/first").is_fifo()
    assert not (tmp_path / "runtime").exists()


def test_a_program_that_is_missing_is_named_with_its_package(tmp_path: Path) -> None:
    tools = Tools(directory=tmp_path)
    host = FakeHost(programs={tools / "nm-box": "/x", tools / "nm-init": "/x"}, missing=("lxc-start",))
    answer = lxc.Lxc().check(host, tools)
    assert answer == Unavailable(reason="lxc-start is not installed", remedy="apt-get install lxc")
    version: dict[tuple[str, ...], Answer] = {("lxc-start", "--version"): "5.0.2"}
    host = FakeHost(programs={"lxc-start": "/x"}, commands=version, missing=(tools / "nm-box",))
    answer = lxc.Lxc().check(host, tools)
    assert isinstance(answer, Unavailable) and "nm-box is missing" in answer.reason
