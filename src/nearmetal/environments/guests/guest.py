"""Code shared by the backends of virtual machines: a running guest, whose first process is nm-guest, the
command line of its kernel, and the duration of each step of its boot. Nothing here depends on the
hypervisor."""

from __future__ import annotations

import contextlib
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from ...errors import RunError
from ...host import Host, Process, cpio
from ...host.counters.sources import Source, VcpuSource, exit_sources
from ...host.guest_line import Clocks, GuestLine, Hello, answers
from ...host.processes import labelled as processes
from ...host.processes.failure import (
    MOST_SHOWN,
    describe_end,
    describe_failure,
    find_error_line,
    find_message,
)
from ...host.processes.ranks import RankHolds, parse_holdings
from ...host.replies import read_reply
from ...host.untrusted import UntrustedDirectory
from ...model.capabilities import GUEST_ATTACHMENTS, Capabilities
from ...model.environments.network import NetworkSettings
from ...model.record import JsonValue
from ...model.scope import EXITS, VCPU, Scope
from ...model.study import Attachment
from ..contract import FIRST_COMMAND, Bind, GuestBase, InstanceRequest, Tools
from ..program import ProgramInstance, agent_line, read_log

COPY_TIMEOUT = 120.0
DYING_SECONDS = 3.0
MOST_COPIED = 256 << 20
"""Maximum size in bytes of files that are copied into a guest, which keeps them in memory."""
_DEEPEST = 100
"""Most components of a path that is copied out of a guest."""
FRESH = (Path("/tmp"), Path("/run"), Path("/dev/shm"))
"""Directories that are empty in a new guest and private to it. The files of the image there are not
visible."""
LONGEST_COMMAND_LINE = 2047
"""Maximum length of a kernel's command line on x86: COMMAND_LINE_SIZE without the final zero byte."""
CONSOLE, HYPERVISOR_LOG = "console", "hypervisor.txt"
"""Names of files in an instance's directory: output of the guest's console, output of the hypervisor."""
_STEP = re.compile(r"nm-step: ([^\n]*)")
_POINTER = re.compile(r"^[RE]IP=([0-9a-f]{8,16})\b", re.MULTILINE)
_PANIC = re.compile(r"Kernel panic[^\n]*|Out of memory[^\n]*|VFS: [^\n]*")
_FAULT = re.compile(r"(?:BUG: |kernel BUG at |Oops: |(?<![a-z ])[a-z ]+(?:fault|opcode|segment)[:,] )[^\n]*")
"""A kernel's message about a fault. It often explains the panic that follows."""


@dataclass(frozen=True, kw_only=True)
class GuestInstance(ProgramInstance):
    """A running guest; see contract.RemoteInstance.

    socket: socket of the guest's agent (nm-guest) on the machine.
    scratch: directory of the instance: console, log of the hypervisor, output of FIFO relays.
    process: process of the hypervisor.
    ahead: offsets of the guest's clocks from the machine's when it was ready.
    threads: thread IDs, on the machine, of the guest's CPUs; empty if they are not known.
    rules: file for `nm-box guest --only`, which selects the environment variables that commands in the guest
        get; None if they get all.
    """

    host: Host
    tools: Tools
    socket: Path
    scratch: Path
    process: Process
    ahead: Clocks
    threads: tuple[int, ...] = ()
    rules: Path | None = None

    @contextmanager
    def joined(self, ends: Mapping[str, str], network: NetworkSettings) -> Iterator[None]:
        """See contract.HoldsNetworks."""
        self._run(["nm-guest", "join", tuning(network), *(f"{name}={net}" for name, net in ends.items())])
        try:
            yield
        finally:
            with contextlib.suppress(RunError):  # the guest may have ended
                self._run(["nm-guest", "part", *ends])

    @property
    def sources(self) -> tuple[Source, ...]:
        own = Scope(kind=VCPU, name=self.hostname)
        vcpus = VcpuSource(scope=own, host=self.host, threads=self.threads)
        exits = exit_sources(Scope(kind=EXITS, name=self.hostname), self.host, self.threads)
        return (*((vcpus,) if self.threads else ()), *exits)

    def copy_in(self, paths: Sequence[Path]) -> None:
        self._run(["nm-guest", "put"], cpio.pack(list(members(paths))))

    def copy_binds(self, binds: Sequence[Bind]) -> None:
        """Copy the sources of binds to their targets inside. What the guest writes there stays in the guest.

        Raises RunError.
        """
        if binds:
            self._run(["nm-guest", "put"], cpio.pack(list(bound_members(binds))))

    def copy_out(self, paths: Sequence[Path]) -> None:
        archive = self._run(["nm-guest", "get", *map(str, paths)])
        try:
            given = list(cpio.unpack(archive))
        except ValueError as e:
            raise RunError(f"{self.label}: {e}") from e
        for member in given:
            path = Path("/", member.name)
            asked = any(path.is_relative_to(p) for p in paths) and ".." not in path.parts
            if not asked or len(path.parts) > _DEEPEST:
                raise RunError(f"{self.label} gave {str(path)[:200]}, which was not requested")
            if stat.S_ISREG(member.mode):
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    UntrustedDirectory(path.parent).overwrite(path.name, member.data)
                except (OSError, ValueError) as e:  # ValueError: a zero byte in a name
                    raise RunError(f"{self.label} gave {str(path)[:200]}: {e}") from e

    def carry(self, fifo: Path, *, inward: bool) -> Process:
        what = ["--stdin", str(fifo)] if inward else ["--stdout", str(fifo)]
        what += ["--only", str(self.rules)] if self.rules is not None else []
        output = self.scratch / "carriers.txt"
        return self.host.start(
            [
                *(self.tools / "nm-box", "guest", str(self.socket), *what),
                *("--", "nm-guest", "fill" if inward else "drain", str(fifo)),
            ],
            stdout=output,
            stderr=output,
            env={processes.LABEL_VARIABLE: self.label},
            cwd=Path("/"),
        )

    def on_host(self, nanoseconds: int) -> int:
        return nanoseconds - self.ahead.monotonic

    def rank_holdings(self, mark: str) -> dict[int, RankHolds]:
        return parse_holdings(self._run(["nm-guest", "holdings", mark]).decode(errors="replace"), self.label)

    def network(self, interface: str) -> dict[str, JsonValue]:
        printed = self._run(["nm-guest", "network", interface, *self._namespace])
        return read_reply(printed, dict[str, JsonValue], f"{self.label}, interface {interface}")

    @property
    def _namespace(self) -> tuple[str, ...]:
        """The path, in the guest, of the instance's network namespace as a sequence of one; empty if it is
        that of the agent."""
        return ()

    def trouble(self) -> str:
        if self.process.poll() is None and answers(self.socket):
            return ""
        with contextlib.suppress(TimeoutError):
            self.process.wait(DYING_SECONDS)  # the connection is closed before the process has ended
        return f"guest {self.hostname} has ended: {ended_words(self.scratch, self.process.poll())}"

    def console(self) -> str:
        return read_log(self.scratch / CONSOLE)

    def clocks(self) -> Clocks:
        with GuestLine(self.socket) as line:
            return line.clocks()

    def _run(self, argv: Sequence[str], stdin: bytes = b"") -> bytes:
        with GuestLine(self.socket) as line:
            done = line.run(argv, stdin, timeout=COPY_TIMEOUT)
        if done.status != 0:
            failure = describe_failure(" ".join(argv[:2]), done.status, done.stderr.decode(errors="replace"))
            raise RunError(f"{self.label}: {failure}")
        return done.stdout


@dataclass(frozen=True, kw_only=True)
class EnclosedBox(GuestInstance):
    """An instance inside a guest, or on a machine that is reached by ssh; see contract.EnclosedInstance.

    guest: the guest or the machine.
    first: PID of the instance's first process there.
    inner: command prefix that, there, runs a command in this instance.
    """

    guest: GuestInstance
    first: int
    inner: tuple[str, ...]

    @property
    def _namespace(self) -> tuple[str, ...]:
        return (f"/proc/{self.first}/ns/net",)

    @property
    def inner_agent_line(self) -> str:
        return agent_line(self.hostname, self.inner)


def members(paths: Sequence[Path]) -> Iterator[cpio.Member]:
    """Yield these paths, and everything below those that are directories, for an archive. Only files,
    directories, symbolic links and FIFOs are included.

    Raises RunError if the files are larger than MOST_COPIED together.
    """
    return bound_members([Bind(path, path) for path in paths])


def bound_members(binds: Sequence[Bind]) -> Iterator[cpio.Member]:
    """Yield the sources of binds like members(), with the names of their targets."""
    waiting, size = [(bind.source, bind.target, bind.source) for bind in reversed(binds)], 0
    while waiting:
        path, inside, top = waiting.pop()
        try:
            found = path.lstat()
            name = str(inside).lstrip("/")
            if stat.S_ISDIR(found.st_mode):
                yield cpio.directory(name, stat.S_IMODE(found.st_mode))
                waiting += [(p, inside / p.name, top) for p in sorted(path.iterdir(), reverse=True)]
            elif stat.S_ISREG(found.st_mode):
                size += found.st_size
                if size > MOST_COPIED:
                    raise RunError(
                        f"{top} is too large: at most {MOST_COPIED >> 20} MiB are copied into a guest",
                        remedy="start nearmetal in a directory that holds only what the program needs, or put"
                        " the program into the guest's image",
                    )
                data = UntrustedDirectory(path.parent).read_bytes(path.name, found.st_size)
                yield cpio.file(name, data, stat.S_IMODE(found.st_mode))
            elif stat.S_ISLNK(found.st_mode):
                yield cpio.link(name, str(path.readlink()))
            elif stat.S_ISFIFO(found.st_mode):
                yield cpio.fifo(name, stat.S_IMODE(found.st_mode))
        except FileNotFoundError:
            continue  # a temporary file that has been removed since


def entered_guest(tools: Tools, socket: Path) -> tuple[str, ...]:
    """Return the command prefix that, on the machine, runs a command in a guest.

    socket: socket of the guest's agent.
    """
    return (tools / "nm-box", "guest", str(socket), "--")


def require_base(request: InstanceRequest) -> GuestBase:
    """Return request.base.

    Raises UnavailableError if it is None, or if the environment shares namespaces with the machine, which
    guests cannot.
    """
    if request.base is None:
        raise request.refused("no kernel for a guest", "nearmetal image build debian-kernel")
    if request.environment.share:
        raise request.refused(
            "a guest shares no namespace with the machine", "take share out of the environment"
        )
    return request.base


def require_attachment(request: InstanceRequest, capabilities: Capabilities) -> None:
    """Check that guests of a backend support the attachment of a request, and that the request has a seat
    exactly if the attachment needs one.

    capabilities: capabilities of the backend.
    Raises UnavailableError if one of these checks fails.
    """
    attachment = request.environment.attachment
    if attachment not in GUEST_ATTACHMENTS:
        host = "it has no interface in common with the machine"
        ipvlan = "ipvlan delivers by the addresses of the machine's own interface"
        raise request.refused(
            f"a guest cannot have attachment {attachment.value}: "
            f"{host if attachment is Attachment.HOST else ipvlan}",
            "attachment: veth-bridge, or none",
        )
    if not attachment.seated and attachment not in capabilities.attachments:
        raise request.refused(
            f"backend {request.environment.backend} has no attachment {attachment.value}",
            "attachment: veth-bridge, or none",
        )
    if attachment.seated != (request.seat is not None):
        raise request.refused(
            f"attachment {attachment.value} "
            f"{'needs an' if request.seat is None else 'takes no'} address on a network",
            "none, loopback and user take no address; all others need one for each instance",
        )


@dataclass(frozen=True, kw_only=True)
class GuestInterface:
    """The network interface inside a guest, eth0.

    mac, address, mask, mtu: MAC address, IPv4 address, netmask and MTU of the seat, which the guest takes
        over.
    routes: routes with a gateway: 'NETWORK/PREFIX:GATEWAY'.
    """

    mac: str
    address: str
    mask: str
    mtu: int
    routes: tuple[str, ...] = ()

    def words(self) -> str:
        """Return the value of the parameter nm.net on the kernel's command line."""
        prefix = IPv4Network(f"0.0.0.0/{self.mask}").prefixlen
        return ",".join(["eth0", f"{self.address}/{prefix}", str(self.mtu), *self.routes])


def tuning(network: NetworkSettings) -> str:
    """Format the settings that nm-guest applies to its interface and routes: 'NAME=VALUE,...', with rto_min
    in ms (kernels/guest/tune.c)."""
    words = [f"rto_min={round(network.rto_min * 1000)}"] if network.rto_min is not None else []
    words += [f"congestion_control={network.congestion_control}"] if network.congestion_control else []
    words += [f"queue_length={network.queue_length}"] if network.queue_length is not None else []
    return ",".join([*words, *(f"{name}={int(on)}" for name, on in network.offloads.requested().items())])


def command_line(
    request: InstanceRequest,
    tools: Tools,
    *,
    root: str,
    port: str,
    console: str,
    place: GuestInterface | None = None,
    upper: str = "",
    swap: str = "",
    more: Sequence[str] = (),
) -> str:
    """Return the command line of a guest's kernel, with the parameters of nm-guest (kernels/guest/guest.h).

    root, port, upper, swap: values of nm.root, nm.port, nm.upper and nm.swap; empty to omit the parameter.
    console: value of console=.
    place: network interface of the guest; None for a guest without one.
    more: further parameters.
    Raises UnavailableError if the line is longer than a kernel accepts, or a parameter contains a space or a
    quotation mark.
    """
    given = {
        "name": request.hostname,
        "root": root,
        "upper": upper,
        "swap": swap,
        "tools": str(tools.directory.resolve()),
        "net": place.words() if place is not None else "",
        "tune": tuning(request.environment.network) if place is not None else "",
        "port": port,
    }
    # With panic=-1 the guest reboots, and so ends, at once after a panic. The panic is noticed without delay.
    words = [f"console={console}", "panic=-1", "net.ifnames=0", *more]
    words += [f"nm.{name}={value}" for name, value in given.items() if value]
    text = " ".join(words)
    if len(text) > LONGEST_COMMAND_LINE or any(set(w) & set(" \t\n\"'") for w in words):
        raise request.refused(
            f"the kernel's command line would be {len(text)} long, or has a space in a word",
            "fewer routes, or a cache directory of a shorter and plainer path",
        )
    return text


def boot_phases(begin: int, spawned: int, hello: Hello, ahead: Clocks) -> dict[str, float]:
    """Return the duration of each step of a boot in seconds.

    begin: time of the request.
    spawned: start of the hypervisor's process. Both times are CLOCK_MONOTONIC of the machine, in ns.
    hello: report of nm-guest, with the times of the steps by the guest's clock.
    ahead: offsets of the guest's clocks. The kernel is taken to start when the guest's clock is zero.
    """
    at = {name: value - ahead.monotonic for name, value in hello.at.items()}
    marks = {
        "prepare": spawned,
        "firmware": -ahead.monotonic,
        "kernel": at["init"],
        "modules": at["modules"],
        "root": at["root"],
        "network": at["network"],
        "agent": at["agent"],
    }
    out, last = {}, begin
    for name, mark in marks.items():
        out[name] = max(mark - last, 0) / 1e9
        last = max(mark, last)
    return {**out, "first_instruction": (last - begin) / 1e9}


def first_command(socket: Path) -> dict[str, float]:
    """Run the first command in a guest, which does nearly nothing, and return its duration in seconds by the
    key FIRST_COMMAND.

    Raises RunError.
    """
    begin = time.monotonic_ns()
    with GuestLine(socket) as line:
        line.run(["nm-guest", "network", "lo"], timeout=COPY_TIMEOUT)
    return {FIRST_COMMAND: (time.monotonic_ns() - begin) / 1e9}


def console_words(text: str) -> str:
    """Return the line of a guest's console output that best explains why the guest ended."""
    error, panic = find_error_line(text), _PANIC.search(text)
    if error is not None:
        return str(error)
    if panic:
        fault = _FAULT.search(text[: panic.start()])
        reasons = [found[0].strip()[:MOST_SHOWN] for found in (fault, panic) if found is not None]
        return "; ".join(reasons)
    lines = [line.strip() for line in _STEP.sub("", text.replace("\r", "")).splitlines() if line.strip()]
    return lines[-1][:MOST_SHOWN] if lines else "its console is empty"


def ended_words(state: Path, status: int | None) -> str:
    """Return why a hypervisor ended: a message from its log or, if there is none, from the guest's console.

    state: directory of the instance.
    status: exit status of the hypervisor; None if it is not known.
    """
    message = find_message(read_log(state / HYPERVISOR_LOG))
    if not message:
        return console_words(read_log(state / CONSOLE))
    return f"its hypervisor {describe_end(status)}: {message}" if status else message


def how_far(text: str, registers: str = "") -> str:
    """Return which step of the boot a guest has reached that does not answer, such as 'in its kernel'.

    The step is taken from the console output or, if this says nothing, from the instruction pointer: the
    addresses of a kernel are in the upper half of the address space (Documentation/arch/x86/x86_64/mm.rst).

    text: output of the console.
    registers: registers of the guest's first CPU, as QEMU prints them; empty if unknown.
    """
    if steps := _STEP.findall(text):
        return f"in its init, at {steps[-1].strip()}"
    if "nm-guest" in text:
        return "in its init"
    at = _POINTER.search(registers)
    if at is None:
        return "in its kernel" if text.strip() else "in its firmware, or in a kernel that prints nothing"
    return "in its kernel" if int(at[1], 16) >> 63 else "in its firmware, or where its kernel begins"


def host_cpus_of(request: InstanceRequest, vcpus: int) -> tuple[int, ...]:
    """Return the CPU of the machine for each vCPU, in order; empty if the instance may use all CPUs."""
    return tuple(request.cpus[i % len(request.cpus)] for i in range(vcpus)) if request.cpus else ()
