"""The machines of a placement over several nodes, each reached by ssh. nm-guest runs on each machine and
answers as in a virtual machine, so instances on a machine are handled like instances inside a guest."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..environments import Backend, Enclosed, Instance, InstanceRequest, Tools
from ..environments.guests.guest import GuestInstance, members
from ..environments.instance import START_TIMEOUT
from ..environments.registry import backends_with
from ..errors import RunError, UnavailableError, UsageError
from ..host import REPORT_FD, Host, Process, cpio
from ..host.facts.provenance import cpu_flags, provenance
from ..host.facts.topology import ranges, topology
from ..host.guest_line import Clocks, GuestLine
from ..host.processes import labelled as processes
from ..host.ssh import SshHost, SshWay, ssh_host
from ..inventory import load_inventory
from ..model.inventory import InventoryNode
from ..model.study import RealNodes, Study
from ..network.build import Network
from .copies import Copies, make_scratch
from .machine import Machine
from .placement_node import PlacementNode
from .progress import Progress
from .real_addresses import command
from .real_networks import reached_by, real_networks
from .remote_lock import entered

AGENT = "nm-guest"
SECONDS = 60.0
"""Time limit of one command on a node, and for the agent's first answer."""
HANDED_ON = (
    "OMPI_",
    "PMIX_",
    "PRTE_",
    "PMI_",
    "HYDRA_",
    "MPIR_",
    "MPICH_",
    "UCX_",
    "FI_",
    "HWLOC_",
    "TMPDIR",
)
"""Beginnings of the names of variables that launchers set for daemons and ranks."""
OF_SSH = ("HOME", "USER", "LOGNAME", "PATH", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR")
"""Variables that the ssh client needs. It gets no others, because its configuration may pass variables on to
the node (SendEnv)."""


@dataclass(frozen=True, kw_only=True)
class RealNode(PlacementNode):
    """A machine that is reached by ssh.

    hostname: its own host name, which its ranks report.
    host: runs commands on the node, before and after trials.
    socket: socket of the multiplexer of its agent.
    rules: file with variable_rules(), read by 'nm-box guest --only'.
    process: the multiplexer. Its end ends the agent, and with it everything that the agent has started.
    ahead: offsets of its clocks from those of this machine.
    scratch: directory on both machines, below which the files of trials are.
    copies: the user's own files that were copied to it.
    """

    name: str
    hostname: str
    host: SshHost
    socket: Path
    rules: Path
    process: Process
    ahead: Clocks
    scratch: Path
    copies: Copies

    @contextmanager
    def start(self, backend: Backend, tools: Tools, request: InstanceRequest) -> Iterator[Instance]:
        itself = self.instance(tools, request.label)
        if isinstance(backend, Enclosed):
            with backend.start_inside(itself, tools, request, alone=False) as instance:
                yield instance
        elif backend.capabilities.own:
            raise UnavailableError(
                f"backend {backend.name} starts nothing on nodes that are reached by ssh",
                remedy=backends_with(lambda b: isinstance(b, Enclosed) or b.capabilities.bare),
            )
        else:
            itself.copy_in(request.binds)
            yield itself

    def forget(self, directory: Path) -> None:
        _remove(self.host, directory)

    def instance(self, tools: Tools, label: str) -> NodeInstance:
        """Return an instance that is the node itself: its commands run directly on the node.

        tools: the programs of nearmetal on this machine; nm-box connects to the node.
        label: label of the instance.
        """
        return NodeInstance(
            label=label,
            hostname=self.hostname,
            pid=self.process.pid,
            phases={},
            cgroups={},
            enter=(tools / "nm-box", "guest", str(self.socket), "--only", str(self.rules), "--"),
            host=self.local,
            tools=tools,
            socket=self.socket,
            scratch=self.scratch,
            process=self.process,
            ahead=self.ahead,
            rules=self.rules,
            there=self.host,
            copies=self.copies,
        )


@dataclass(frozen=True, kw_only=True)
class NodeInstance(GuestInstance):
    """An instance that is a node itself.

    there: runs commands on the node.
    copies: the user's own files that were copied to it.
    """

    there: SshHost
    copies: Copies

    def copy_in(self, paths: Sequence[Path]) -> None:
        """Copy paths to the node: those in the scratch directory each time, and others once.

        Existing files on the node are never overwritten, except in the scratch directory. They may be the
        user's own, on a file system that both machines share.

        Raises UnavailableError if a file is there already with other contents.
        """
        if own := [path for path in paths if path.is_relative_to(self.scratch)]:
            super().copy_in(own)
        if others := self.copies.new(path for path in paths if not path.is_relative_to(self.scratch)):
            wanted = self.copies.wanted(others, list(members(others)))
            if wanted:
                self._run(["nm-guest", "put"], cpio.pack(wanted))

    def bring(self) -> None:
        """Copy the tools to the node, unless it has the same ones."""
        directory = self.tools.directory
        files = sorted(path for path in directory.iterdir() if path.is_file())
        sums = "".join(f"{sha256(path.read_bytes()).hexdigest()}  {path}\n" for path in files)
        if not self.there.run(["sha256sum", "--check", "--status"], timeout=SECONDS, stdin=sums).ok:
            super().copy_in([directory])
        self.copies.new([directory])


@dataclass(frozen=True, kw_only=True)
class NodeSet:
    """The machines of the placements of a study; none if the instances run on the machine that measures.

    nodes: in the order in which placements use them, unless it is drawn for each block.
    interface: interface on each node by which ranks reach each other.
    hub_interface, hub_address: interface and address of this machine at which they reach mpirun.
    networks: by name of the arm and whether it is the A/A arm; only for arms with their own network. They
        have a seat on each of the nodes, in their order.
    """

    nodes: tuple[RealNode, ...] = ()
    interface: str = "lo"
    hub_interface: str = ""
    hub_address: str = ""
    networks: Mapping[tuple[str, bool], Network] = field(default_factory=dict)

    def record(self) -> dict[str, dict[str, Any]]:
        """Return the provenance of each node, by name. The versions of Python, libc and nearmetal are left
        out, because they would be those of this process."""
        found: dict[str, dict[str, Any]] = {}
        for node in self.nodes:
            known = provenance(node.host)
            versions = {
                k: v for k, v in known["versions"].items() if k not in ("python", "libc", "nearmetal")
            }
            found[node.name] = {**known, "versions": versions}
        return found


@contextmanager
def real_nodes(
    machine: Machine,
    study: Study,
    tools: Sequence[Tools],
    scratch: Path,
    label: str,
    progress: Progress,
    *,
    force: bool,
) -> Iterator[NodeSet]:
    """Open the nodes of a study until exit.

    tools: the tools of each image, which the nodes need at the same paths.
    scratch: scratch directory of the run, on this machine and on the nodes.
    force: use a node even if another run measures there.

    Raises UsageError if the inventory has too few nodes, BusyError if another run measures on one, and
    UnavailableError, which names the node, if one cannot be used.
    """
    requested = study.design.nodes
    if requested is None:
        yield NodeSet()
        return
    rules = scratch / "variables"
    rules.touch(mode=0o600)  # it holds the values of this process's own variables
    rules.write_bytes(
        variable_rules(os.environ, {name: value for w in study.commands for name, value in w.env.items()})
    )
    config, chosen = _chosen(machine.host, requested, study)
    with ExitStack() as stack:
        opened = []
        for number, entry in enumerate(chosen):
            progress.phase(f"opening node {entry.name}")
            way = SshWay(destination=entry.destination, config=config)
            own = scratch / f"node-{number}"
            own.mkdir()
            try:
                node = stack.enter_context(
                    _opened(machine, entry.name, way, tools, scratch, own, label, rules, force=force)
                )
            except (RunError, UnavailableError) as e:
                raise UnavailableError(
                    f"node {entry.name}: {e.what}", remedy=e.remedy or "nearmetal check --nodes INVENTORY"
                ) from e
            opened.append(node)
        names = [node.hostname for node in opened]
        if len(set(names)) < len(names):
            raise UnavailableError(
                f"two nodes have the host name {max(names, key=names.count)}",
                remedy="name each machine once, and give each a host name of its own",
            )
        _require_cpus(study, requested, opened)
        hub, *reached = reached_by(
            machine.host, requested.interface, [(node.name, node.host) for node in opened]
        )
        networks = stack.enter_context(real_networks(study, label, hub, reached))
        yield NodeSet(
            nodes=tuple(opened),
            interface=requested.interface,
            hub_interface=hub.interface,
            hub_address=hub.address,
            networks=networks,
        )


def variable_rules(environment: Mapping[str, str], own: Mapping[str, str]) -> bytes:
    """Return the rules for nm-box guest --only. They pass on the variables of the study's programs and of
    launchers, but no variable of this process. No I/O.

    environment: variables of this process.
    own: variables of the study's programs.
    """
    rules = [f"+{name}={value}" for name, value in own.items()]
    rules += [f"-{name}={value}" for name, value in environment.items()]
    rules += [f"+{beginning}*" for beginning in (*HANDED_ON, "NEARMETAL_")]
    return b"".join(os.fsencode(rule) + b"\0" for rule in rules)


def _chosen(host: Host, requested: RealNodes, study: Study) -> tuple[str | None, tuple[InventoryNode, ...]]:
    """Return the file for ssh -F, and the nodes that the placements use."""
    inventory = load_inventory(requested.inventory, host)
    known = {node.name: node for node in inventory.nodes}
    for name in requested.names:
        if name not in known:
            raise UsageError(
                f"design.nodes: the inventory has no node {name}",
                where=requested.inventory,
                remedy=f"names: some of {', '.join(list(known)[:8])}",
            )
    names = requested.names or tuple(known)
    wanted = max(p.nodes for p in study.placements)
    if len(names) < wanted:
        raise UsageError(
            f"a placement needs {wanted} nodes, and design.nodes has {len(names)}", where=requested.inventory
        )
    used = names if requested.draw else names[:wanted]
    return inventory.ssh_config, tuple(known[name] for name in used)


@contextmanager
def _opened(
    machine: Machine,
    name: str,
    way: SshWay,
    tools: Sequence[Tools],
    scratch: Path,
    own: Path,
    label: str,
    rules: Path,
    *,
    force: bool,
) -> Iterator[RealNode]:
    """Open one node until exit: connect to it, make the scratch directory there, start the agent, enter the
    run in the node's lock file, and copy the tools.

    own: directory on this machine for files about this node.
    rules: file with variable_rules().
    """
    local = machine.host
    with ExitStack() as stack:
        there = stack.enter_context(ssh_host(local, way, label=f"{label}-{own.name}", scratch=own))
        _require_apart(there, scratch)
        make_scratch(there, scratch)
        stack.callback(_remove, there, scratch)
        _require_alike(machine, there)
        agent = scratch / AGENT
        there.copy(Path(machine.tools / AGENT), str(agent), timeout=SECONDS)
        socket = own / "agent"
        argv = [machine.tools / "nm-box", "multiplex", "--listen", str(socket), "--report-fd", str(REPORT_FD)]
        known = {key: os.environ[key] for key in OF_SSH if key in os.environ}
        launched = local.launch(
            [*argv, "--", *there.words([str(agent), "serve", label])],
            expect={"listening"},
            timeout=START_TIMEOUT,
            env={**known, processes.LABEL_VARIABLE: label},
            inherit=False,
        )
        stack.callback(launched.process.kill)
        with GuestLine(socket) as line:
            line.hello(SECONDS)
            ahead = line.clocks()
            serving = line.run(["sh", "-c", "cat /proc/$PPID/stat"], timeout=SECONDS).stdout.decode()
        stack.enter_context(entered(there, name, agent, serving, label, force=force))
        copies = Copies(there, name)
        stack.callback(copies.remove)
        places = topology(there, _cpus(there))
        node = RealNode(
            local=local,
            name=name,
            hostname=command(there, ["uname", "-n"]).strip(),
            host=there,
            socket=socket,
            rules=rules,
            process=launched.process,
            ahead=ahead,
            cpus=places.order,
            adjacent=places.adjacent,
            scratch=scratch,
            copies=copies,
        )
        for found in dict.fromkeys(tools):
            node.instance(found, label).bring()
        yield node


def _require_apart(there: SshHost, scratch: Path) -> None:
    """Check that the node does not see the scratch directory of this machine. Otherwise the files of a trial
    would be copied onto themselves."""
    token = scratch / f"token-{secrets.token_hex(8)}"
    token.touch()
    try:
        if there.run(["test", "-e", str(token)], timeout=SECONDS).ok:
            raise UnavailableError(
                f"it sees {scratch.parent} of this machine, so it is this machine",
                remedy="run nearmetal on a machine that is not one of the nodes",
            )
    finally:
        token.unlink()


def _require_alike(machine: Machine, there: SshHost) -> None:
    """Check that the node has this machine's MPI, and a processor that runs programs compiled here."""
    mpi = machine.mpi
    here, found = (h.run([mpi.mpirun, "--version"], timeout=SECONDS) for h in (machine.host, there))
    if not found.ok or found.stdout.splitlines()[:1] != here.stdout.splitlines()[:1]:
        raise UnavailableError(
            f"it has no {mpi.title} as {mpi.mpirun}",
            remedy="install the same MPI at the same path on all nodes",
        )
    lacking = sorted(cpu_flags(machine.host) - cpu_flags(there))
    if lacking:
        raise UnavailableError(
            f"its processor lacks {', '.join(lacking[:5])}, which programs compiled here may use",
            remedy="run nearmetal on a machine with the processor of the nodes",
        )


def _require_cpus(study: Study, requested: RealNodes, nodes: Sequence[RealNode]) -> None:
    for place in study.placements:
        needed = place.instances * place.tasks * (place.width or 1)
        for node in nodes if requested.draw else nodes[: place.nodes]:
            if needed > len(node.cpus) and not place.oversubscribe:
                raise UnavailableError(
                    f"placement {place.name} needs {needed} CPUs on each node, and {node.name} gives "
                    f"{len(node.cpus)}",
                    remedy="fewer tasks, or say oversubscribe: true",
                )


def _cpus(there: SshHost) -> tuple[int, ...]:
    """Return the CPUs that commands may use there."""
    status = command(there, ["cat", "/proc/self/status"])
    (line,) = [line for line in status.splitlines() if line.startswith("Cpus_allowed_list:")]
    return ranges(line.partition(":")[2])


def _remove(there: SshHost, scratch: Path) -> None:
    there.run(["rm", "-rf", "--one-file-system", str(scratch)], timeout=SECONDS)
