"""Connects nearmetal to a Xen guest: to its agent by a private network between the guest and dom0, and to its
console, whose output shows why a boot failed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from ...errors import RunError
from ...host import REPORT_FD, Host, Process
from ...host.guest_line import Clocks, GuestLine, Hello
from ...host.processes.running import running_helper
from ..contract import Tools
from ..guests.guest import CONSOLE, console_words, how_far
from ..instance import START_TIMEOUT
from ..program import read_log
from .dom0 import Dom0Access
from .xl import Xl

PORT = 7531
"""TCP port on which the agent listens. It listens only on the private network."""
MAC_PREFIX = "00:16:3e"
"""Prefix of MAC addresses that the Xen project has reserved for guests."""
_LINK_LOCAL = int(IPv4Address("169.254.1.0"))
_PAIRS = (int(IPv4Address("169.254.255.0")) - _LINK_LOCAL) // 4
_CONSOLE_SECONDS = 60.0
_LOOK_AGAIN = 0.05
_LOOK_AT_GUEST = 2.0
"""Seconds between two checks whether the guest still runs. Each check is a call of xl."""
_APART = 20.0
"""Minimum time between two checks, as a multiple of the duration of the first."""
_SHORT = 10.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """The private network between dom0 and the agent of a guest.

    mac: MAC address of the guest's interface.
    dom0, guest: IPv4 addresses of the two ends, in a link-local /30.
    key: hexadecimal key that a client must send to the agent first.
    """

    mac: str
    dom0: str
    guest: str
    key: str


def random_mac() -> str:
    """Return a MAC address for a guest."""
    return ":".join([MAC_PREFIX, *(f"{b:02x}" for b in secrets.token_bytes(3))])


def choose_agent_network(dom0: Host, key: str) -> Line:
    """Choose a private network for the agent of a new guest: a random one that dom0 does not use yet.

    key: value of Line.key.
    Raises RunError if dom0 does not report its addresses, or no free network is found.
    """
    output = dom0.run(["ip", "-4", "-oneline", "address", "show"], timeout=_SHORT).require(
        f"{dom0.name} does not report its addresses"
    )
    used = output.stdout.replace("/", " ").split()
    for _ in range(100):
        first = IPv4Address(_LINK_LOCAL + 4 * secrets.randbelow(_PAIRS))
        if str(first + 1) not in used:
            return Line(mac=random_mac(), dom0=str(first + 1), guest=str(first + 2), key=key)
    raise RunError(f"{dom0.name} has no free link-local addresses")


@contextmanager
def console_read(xl: Xl, name: str, state: Path) -> Iterator[Path]:
    """Copy the console output of a guest to a file until exit. Yields the path of the file.

    name: name of the guest's domain.
    state: state directory of the instance, for the file.
    Raises RunError if the guest has ended or has no console.
    """
    found = xl.find(name)
    if found is None:
        raise RunError(f"guest {name} ended before it was started")
    device = _terminal(xl.dom0, f"/local/domain/{found.id}/console/tty")
    output = state / CONSOLE
    # `xl console` is not used, because it ends at the end of its input. The terminal is raw, without echo.
    reader = xl.dom0.start(["cat", device], stdout=output, stderr=state / "console.err", cwd=Path("/"))
    try:
        yield output
    finally:
        reader.kill()


def _terminal(dom0: Host, key: str) -> str:
    end = time.monotonic() + _CONSOLE_SECONDS
    while True:
        found = dom0.run(["xenstore-read", key], timeout=_SHORT).stdout.strip()
        if found.startswith("/dev/pts/"):
            return found
        if time.monotonic() > end:
            raise RunError(
                "the guest has no console: does xenconsoled run?", remedy="systemctl start xencommons"
            )
        time.sleep(_LOOK_AGAIN)


@dataclass(frozen=True, kw_only=True)
class ConnectedGuest:
    """A guest whose agent answers.

    socket: socket through which commands reach the agent.
    process: process of the multiplexer (nm-box multiplex), which keeps the connection to the agent.
    hello: first message of the agent.
    ahead: offsets of the guest's clocks from the machine's.
    """

    socket: Path
    process: Process
    hello: Hello
    ahead: Clocks


@contextmanager
def connect_agent(
    host: Host,
    tools: Tools,
    at: Dom0Access,
    line: Line,
    console: Path,
    *,
    name: str,
    state: Path,
    timeout: float,
) -> Iterator[ConnectedGuest]:
    """Wait until the agent of a booting guest answers, and keep the connection to it until exit.

    at: connection to the dom0 of the guest.
    console: file with the output of the guest's console.
    name: name of the guest's domain, which is also the label of the multiplexer.
    state: state directory of the instance.
    timeout: time limit in seconds.
    Raises RunError if the guest ends or does not answer in time. The message contains the last output of its
    console.
    """
    where, socket, key = f"tcp:{line.guest}:{PORT}", state / "agent", state / "key"
    if at.ssh is not None:
        where = str(state / "line")
        at.ssh.forward(Path(where), line.guest, PORT)
    key.touch(mode=0o600)
    key.write_text(line.key)
    argv = [tools / "nm-box", "multiplex", "--connect", where, "--key", str(key)]
    argv += ["--seconds", str(round(timeout) + 5), "--listen", str(socket), "--report-fd", str(REPORT_FD)]
    with running_helper(host, argv, name, expect={"listening"}, timeout=START_TIMEOUT) as launched:
        gone = watched(Xl(at.host), name, launched.process, console)
        try:
            with GuestLine(socket, gone) as own:
                hello, ahead = own.hello(timeout), own.clocks()
        except RunError as e:
            output = read_log(console)
            if "ended while it booted" in e.what:
                raise
            raise RunError(
                f"the guest was silent for {timeout:g} s, {how_far(output)}: {console_words(output)}",
                remedy="raise boot_timeout, or give it more memory",
            ) from e
        yield ConnectedGuest(socket=socket, process=launched.process, hello=hello, ahead=ahead)


def watched(xl: Xl, name: str, multiplexer: Process, console: Path) -> Callable[[], str]:
    """Return a function for GuestLine that returns why a guest no longer answers, or '' while it still runs.

    name: name of the guest's domain.
    multiplexer: process of the connection to its agent.
    console: file with the output of its console.
    """
    again = time.monotonic() + _LOOK_AT_GUEST

    def gone() -> str:
        nonlocal again
        begin = time.monotonic()
        if multiplexer.poll() is None and begin < again:
            return ""
        closed = "" if multiplexer.poll() is None else "the line to the guest is closed"
        try:
            found = xl.find(name)
        except RunError:
            return closed  # the state is unknown, so keep waiting
        finally:
            end = time.monotonic()
            # The check must not take the CPU on which guests boot.
            again = end + max(_LOOK_AT_GUEST, _APART * (end - begin))
        if found is not None and not set(found.state) & set("scd"):
            return closed
        return f"the guest ended while it booted: {console_words(read_log(console))}"

    return gone
