"""Open vSwitch of a run's own: which commands, in which order, and that all is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.errors import UnavailableError
from nearmetal.host.base import Completed
from nearmetal.network.openvswitch import PROGRAMS, SCHEMA, open_vswitch
from nearmetal.testing.fake_host import FakeHost, FakeProcess

ENTER = ("nsenter", "--net=/run/netns/x", "--")


def files(directory: Path, name: str) -> tuple[str, ...]:
    return (
        f"--pidfile={directory}/{name}.pid",
        f"--unixctl={directory}/{name}.ctl",
        f"--log-file={directory}/{name}.log",
        "--verbose=syslog:off",
        "--verbose=console:off",
        "--no-chdir",
    )


class Script:
    """Strict: a command that is not here fails the test."""

    def __init__(
        self, directory: Path, *, kernel: bool, bridge: int = 0, numbers: str = "65534\n\n1\n\n2\n"
    ) -> None:
        dies = (*ENTER, "/bin/setpriv", "--pdeathsig", "KILL", "--")
        database, remote = f"{directory}/conf.db", f"unix:{directory}/db.sock"
        server = (*dies, "/bin/ovsdb-server", database, f"--remote=p{remote}")
        daemon = (*dies, "/bin/ovs-vswitchd", remote)
        self.server, self.daemon = FakeProcess(()), FakeProcess(())
        vsctl = ("/bin/ovs-vsctl", f"--db={remote}", "--timeout=60")
        kind = "system" if kernel else "netdev"
        added = ("--", "add-port", "br0", "port0", "--", "add-port", "br0", "hubport")
        dump = (*ENTER, "/bin/ovs-dpctl", "dump-dps")
        make = (*vsctl, "add-br", "br0", "--", "set", "bridge", "br0", f"datapath_type={kind}", *added)

        def said(argv: tuple[str, ...], code: int, text: str) -> Completed:
            return Completed(argv=argv, returncode=code, stdout="", stderr=text, seconds=0)

        self.host = FakeHost(
            programs={name: f"/bin/{name}" for name in PROGRAMS},
            commands={
                ("/bin/ovsdb-tool", "create", database, str(SCHEMA)): "",
                (*vsctl, "--no-wait", "init"): "",
                dump: said(dump, 0 if kernel else 1, "Protocol not supported"),
                (*vsctl, "--bare", "--columns=ofport", "find", "interface", "ofport>0"): numbers,
                make: said(make, bridge, "ovs-vsctl: no bridge" if bridge else ""),
            },
            processes={
                (*server, *files(directory, "ovsdb-server")): self.server,
                (*daemon, *files(directory, "ovs-vswitchd")): self.daemon,
            },
        )


@pytest.mark.parametrize(("kernel", "datapath"), [(True, "system"), (False, "netdev")])
def test_a_bridge_over_the_ports_and_everything_stopped(tmp_path: Path, kernel: bool, datapath: str) -> None:
    script = Script(tmp_path, kernel=kernel)
    (tmp_path / "db.sock").touch()
    with open_vswitch(script.host, ENTER, tmp_path, ["port0", "hubport"]) as found:
        assert found == datapath
        assert (script.server.poll(), script.daemon.poll()) == (None, None)
    assert script.server.killed and script.daemon.killed
    assert script.host.never_used() == ()


def test_a_bridge_that_is_refused_leaves_no_daemon(tmp_path: Path) -> None:
    script = Script(tmp_path, kernel=False, bridge=1)
    (tmp_path / "db.sock").touch()
    with (
        pytest.raises(
            UnavailableError, match="Open vSwitch does not start: ovs-vsctl ended with 1: no bridge"
        ),
        open_vswitch(script.host, ENTER, tmp_path, ["port0", "hubport"]),
    ):
        pass
    assert script.server.killed and script.daemon.killed


@pytest.mark.parametrize("numbers", ["", "1\n\n2\n", "1\n\n2\n\n[]\n"])
def test_ports_that_have_no_number_are_no_bridge(tmp_path: Path, numbers: str) -> None:
    script = Script(tmp_path, kernel=False, numbers=numbers)
    (tmp_path / "db.sock").touch()
    (tmp_path / "ovs-vswitchd.log").write_text(
        '09:11|01|x|INFO|y\n09:11|02|netdev|WARN|opening "/dev/net/tun" failed: Permission denied\n'
    )
    with (
        pytest.raises(UnavailableError, match='a bridge: opening "/dev/net/tun" failed') as caught,
        open_vswitch(script.host, ENTER, tmp_path, ["port0", "hubport"]),
    ):
        pass
    assert caught.value.remedy == "run as root, or chmod 666 /dev/net/tun"
    assert script.server.killed and script.daemon.killed


def test_a_server_that_ends_is_not_waited_for_and_its_message_is_shown(tmp_path: Path) -> None:
    script = Script(tmp_path, kernel=False)
    script.server.end()
    (tmp_path / "ovsdb-server.err").write_text("starting\novsdb-server: no room\n")
    with (
        pytest.raises(UnavailableError, match="ovsdb-server ended with 0: no room"),
        open_vswitch(script.host, ENTER, tmp_path, ["port0", "hubport"]),
    ):
        pass
    assert not script.daemon.killed and not any("ovs-vswitchd" in argv for argv in script.host.calls)


def test_missing_program_of_open_vswitch_is_named(tmp_path: Path) -> None:
    host = FakeHost(programs={"ovsdb-tool": "/bin/ovsdb-tool", "setpriv": "/bin/setpriv"}, missing=PROGRAMS)
    with (
        pytest.raises(UnavailableError, match=r"not installed \(ovsdb-server is missing\)") as caught,
        open_vswitch(host, ENTER, tmp_path, []),
    ):
        pass
    assert caught.value.remedy == "apt-get install openvswitch-switch"
