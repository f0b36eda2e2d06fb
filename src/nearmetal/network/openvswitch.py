"""An Open vSwitch for one run: database, daemon and bridge, in the run's scratch directory and the network
namespace of the hub or of an emulated node. The machine's own Open vSwitch is not used.

If the kernel has the openvswitch module, packets stay in the kernel. Otherwise the user-space datapath
carries them, which is about ten times slower. The datapath is recorded as the mode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..errors import UnavailableError
from ..host import Host

PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-dpctl", "setpriv")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
REMEDY = "apt-get install openvswitch-switch"
BRIDGE = "br0"
KERNEL, USER_SPACE = "system", "netdev"  # datapath types
_LIMIT = 60.0
_LOOK_AGAIN = 0.005

Enter = Callable[[Sequence[str]], list[str]]
"""Returns the command line that runs a command in the network namespace of the bridge."""


@contextmanager
def open_vswitch(
    host: Host, enter: Enter, directory: Path, ports: Sequence[str], bridge: str = BRIDGE
) -> Iterator[str]:
    """Run a bridge over these interfaces of a namespace until exit. Yields the type of its datapath.

    directory: an empty directory with a path short enough for sockets in it.
    bridge: the bridge's name.

    Raises UnavailableError if Open vSwitch is not installed, or does not start.
    """
    programs = _programs(host)
    database, remote = directory / "conf.db", f"unix:{directory}/db.sock"
    vsctl = [programs["ovs-vsctl"], f"--db={remote}", f"--timeout={_LIMIT:g}"]
    with ExitStack() as stack:
        _run(host, [programs["ovsdb-tool"], "create", str(database), str(SCHEMA)])
        server = [
            *(programs["ovsdb-server"], str(database), f"--remote=p{remote}"),
            *_own_files(directory, "ovsdb-server"),
        ]
        _started(
            stack, host, enter([programs["setpriv"], *_DIES_WITH_US, *server]), directory, "ovsdb-server"
        )
        _await(directory / "db.sock", directory, "ovsdb-server")
        _run(host, [*vsctl, "--no-wait", "init"])
        daemon = [programs["ovs-vswitchd"], remote, *_own_files(directory, "ovs-vswitchd")]
        _started(
            stack, host, enter([programs["setpriv"], *_DIES_WITH_US, *daemon]), directory, "ovs-vswitchd"
        )
        known = host.run(enter([programs["ovs-dpctl"], "dump-dps"]), timeout=_LIMIT, cwd=Path("/"))
        datapath = KERNEL if known.ok else USER_SPACE
        added = [word for port in ports for word in ("--", "add-port", bridge, port)]
        made = ["add-br", bridge, "--", "set", "bridge", bridge, f"datapath_type={datapath}"]
        _run(host, [*vsctl, *made, *added])
        numbers = _run(host, [*vsctl, *_NUMBERS]).split()
        # ovs-vsctl succeeds even if the daemon could not do what was requested.
        if len(numbers) != len(ports) + 1 or not all(n.isdigit() for n in numbers):
            raise _no_bridge(directory / "ovs-vswitchd.log")
        yield datapath


_DIES_WITH_US = ("--pdeathsig", "KILL", "--")
_NUMBERS = ("--bare", "--columns=ofport", "find", "interface", "ofport>0")


def _no_bridge(log: Path) -> UnavailableError:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    troubles = [line.rpartition("|")[2] for line in lines if "|WARN|" in line or "|ERR|" in line]
    tun = any("/dev/net/tun" in t for t in troubles)
    return UnavailableError(
        f"Open vSwitch makes no bridge: {troubles[0] if troubles else 'its log does not say why'}",
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


def _started(stack: ExitStack, host: Host, argv: Sequence[str], directory: Path, name: str) -> None:
    process = host.start(
        argv, stdout=directory / f"{name}.out", stderr=directory / f"{name}.err", cwd=Path("/")
    )
    stack.callback(process.kill)


def _run(host: Host, argv: Sequence[str]) -> str:
    done = host.run(argv, timeout=2 * _LIMIT, cwd=Path("/"))
    if not done.ok:
        raise UnavailableError(f"Open vSwitch does not start: {done.failure()}", remedy=REMEDY)
    return done.stdout


def _await(file: Path, directory: Path, name: str) -> None:
    end = time.monotonic() + _LIMIT
    while not file.exists():
        if time.monotonic() > end:
            errors = (directory / f"{name}.err").read_text(errors="replace").strip().splitlines()
            raise UnavailableError(
                f"{name} does not start: {errors[-1][:300] if errors else 'no output'}",
                remedy=REMEDY,
            )
        time.sleep(_LOOK_AGAIN)
