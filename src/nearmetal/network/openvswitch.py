"""An Open vSwitch for one run: database, daemon and bridge, in the run's scratch directory and the network
namespace of the hub or of an emulated node. The machine's own Open vSwitch is not used.

If the kernel has the openvswitch module, packets stay in the kernel. Otherwise the user-space datapath
carries them, which is about ten times slower. The datapath is recorded as the mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..errors import UnavailableError
from ..host import Host, Process
from ..host.processes.failure import describe_failure
from ..host.processes.running import await_true

PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-dpctl", "setpriv")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
REMEDY = "apt-get install openvswitch-switch"
BRIDGE = "br0"
KERNEL, USER_SPACE = "system", "netdev"  # datapath types
_LIMIT = 60.0


@contextmanager
def open_vswitch(
    host: Host, enter: Sequence[str], directory: Path, ports: Sequence[str], bridge: str = BRIDGE
) -> Iterator[str]:
    """Run a bridge between interfaces of a namespace until exit. Yields the type of its datapath, KERNEL or
    USER_SPACE.

    ports: names of the interfaces.
    enter: words in front of a command that runs in the network namespace of the bridge.
    directory: an empty directory with a path short enough for sockets in it.
    bridge: the bridge's name.

    Raises UnavailableError if Open vSwitch is not installed, or does not start.
    """
    programs = _programs(host)
    database, remote = directory / "conf.db", f"unix:{directory}/db.sock"
    vsctl = [programs["ovs-vsctl"], f"--db={remote}", f"--timeout={_LIMIT:g}"]
    with ExitStack() as stack:
        _run(host, [programs["ovsdb-tool"], "create", str(database), str(SCHEMA)])

        def start(name: str, *words: str) -> Process:
            argv = [programs["setpriv"], "--pdeathsig", "KILL", "--", programs[name], *words]
            process = host.start(
                [*enter, *argv, *_own_files(directory, name)],
                stdout=directory / f"{name}.out",
                stderr=directory / f"{name}.err",
                cwd=Path("/"),
            )
            stack.callback(process.kill)
            return process

        server = start("ovsdb-server", str(database), f"--remote=p{remote}")
        if not await_true((directory / "db.sock").exists, _LIMIT, server):
            errors = (directory / "ovsdb-server.err").read_text(errors="replace")
            raise UnavailableError(describe_failure("ovsdb-server", server.poll(), errors), remedy=REMEDY)
        _run(host, [*vsctl, "--no-wait", "init"])
        start("ovs-vswitchd", remote)
        known = host.run([*enter, programs["ovs-dpctl"], "dump-dps"], timeout=_LIMIT, cwd=Path("/"))
        datapath = KERNEL if known.ok else USER_SPACE
        added = [word for port in ports for word in ("--", "add-port", bridge, port)]
        made = ["add-br", bridge, "--", "set", "bridge", bridge, f"datapath_type={datapath}"]
        _run(host, [*vsctl, *made, *added])
        numbers = _run(host, [*vsctl, *_NUMBERS]).split()
        # ovs-vsctl succeeds even if the daemon could not do what was requested.
        if len(numbers) != len(ports) + 1 or not all(n.isdigit() for n in numbers):
            raise _no_bridge(directory / "ovs-vswitchd.log")
        yield datapath


_NUMBERS = ("--bare", "--columns=ofport", "find", "interface", "ofport>0")


def _no_bridge(log: Path) -> UnavailableError:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    troubles = [line.rpartition("|")[2] for line in lines if "|WARN|" in line or "|ERR|" in line]
    tun = any("/dev/net/tun" in t for t in troubles)
    return UnavailableError(
        f"Open vSwitch could not make a bridge: {troubles[0] if troubles else 'its log gives no reason'}",
        remedy="run as root, or chmod 666 /dev/net/tun" if tun else "a kernel with CONFIG_TUN",
    )


def _programs(host: Host) -> dict[str, str]:
    found = {name: path for name in PROGRAMS if (path := host.which(name)) is not None}
    lacking = [name for name in PROGRAMS if name not in found]
    if lacking:
        raise UnavailableError(f"Open vSwitch is not installed ({lacking[0]} is missing)", remedy=REMEDY)
    return found


def _own_files(directory: Path, name: str) -> tuple[str, ...]:
    return (
        f"--pidfile={directory}/{name}.pid",
        f"--unixctl={directory}/{name}.ctl",
        f"--log-file={directory}/{name}.log",
        "--verbose=syslog:off",
        "--verbose=console:off",
        "--no-chdir",
    )


def _run(host: Host, argv: Sequence[str]) -> str:
    return (
        host.run(argv, timeout=2 * _LIMIT, cwd=Path("/"))
        .require("Open vSwitch does not start", remedy=REMEDY, error=UnavailableError)
        .stdout
    )
