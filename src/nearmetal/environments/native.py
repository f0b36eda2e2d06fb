"""Backend native: the bare machine, without namespaces. Control groups are used only to count resources.

An instance has the same first process (nm-init) as those of all other backends if starts are measured, if it
is an emulated node, if it is going to be checkpointed, or if it has an image. An image also gets a mount
namespace, in which the root directory is the tree of the image (tree.py)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..errors import RunError
from ..host import REPORT_FD, Host, MissingValue, cgroups
from ..host.processes import labelled as processes
from ..model.capabilities import BARE_ATTACHMENTS, Capabilities
from ..model.environments.image import HOST
from ..model.study import Attachment, Environment
from . import criu as criu_of
from .contract import Available, Instance, InstanceRequest, Tools, Unavailable
from .criu_connections import connection_options, waiting_options
from .criu_restoring import EarlyRestore, restorer
from .holder import user_namespace_holder
from .instance import (
    START_TIMEOUT,
    BoxInstance,
    await_end,
    control_groups,
    init_name,
    make_instance,
    occupied,
    seconds,
    view_words,
)
from .moving import Criu, Dump, Restore
from .probe import probe, remedy
from .tree import in_tree

ACCOUNTS = frozenset({"cpuacct", "memory", "blkio"})


class Native(criu_of.RestoresConnections):
    """The bare machine, with attachment host or loopback. An instance with a seat is an emulated node. One
    with a layer and attachment none has a network namespace of its own."""

    name = "native"
    capabilities = Capabilities(own=frozenset(), attachments=BARE_ATTACHMENTS)
    costs = criu_of.PROCESS_COSTS

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        parents = cgroups.machine_parents()
        notes = (f"no accounts per instance: {parents.reason}",) if isinstance(parents, MissingValue) else ()
        return probe(self, host, tools, Attachment.HOST, notes=notes)

    def start(
        self, host: Host, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[BoxInstance]:
        return start_native(host, tools, request, period_us=cgroups.DEFAULT_PERIOD_US)

    def accounts(self, request: InstanceRequest) -> AbstractContextManager[Mapping[str, Path]]:
        return control_groups(request, ACCOUNTS)

    restored_at = frozenset({Attachment.HOST})

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        refused = super().refuses_checkpoint(host, environment)
        if refused is None and environment.image != HOST:
            reason = "without a PID namespace only image host is restored"
            return Unavailable(reason=reason, remedy=f"image: {HOST}")
        return refused

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        argv = criu_of.dump_argv(criu, instance.pid, dump, connection_options(tools, request, dump.images))
        return [*self.network_of_dump(request), *argv]

    def network_of_dump(self, request: InstanceRequest) -> tuple[str, ...]:
        """See moving.HoldsConnections."""
        return criu_of.network_of_seat(request)

    @contextmanager
    def restoring(self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest) -> Iterator[Restore]:
        with ExitStack() as last, control_groups(request, ACCOUNTS) as groups, ExitStack() as kept:
            if not groups:
                last.callback(processes.kill_labelled, request.label)
            apart = request.lazy

            def instance(pid: int, phases: Mapping[str, float]) -> BoxInstance:
                return make_instance(
                    tools,
                    request,
                    hostname=os.uname().nodename,
                    pid=pid,
                    namespaces_of=0 if request.seat is None and not apart else pid,
                    groups=groups,
                    phases=phases,
                )

            argv = partial(_restore_argv, tools, criu, request, groups)
            yield EarlyRestore(host, request, argv, instance, kept, apart=apart)


def native_argv(tools: Tools, request: InstanceRequest) -> list[str]:
    """Return the command line of the first process. No I/O.

    If the request has a seat, the instance is an emulated node. The process gets the network of this node,
    and its host name unless the request has a layer.

    If the request has a layer, the instance may be checkpointed. The process then gets a parent that reaps
    its killed children at once: CRIU can restore a process only if its PID is free.
    """
    init = [tools / "nm-init", "--first-fd", str(REPORT_FD), "--socket", init_name(request.label)]
    user = ["--user-namespace", request.user_namespace] if request.user_namespace is not None else []
    if request.layer is not None:
        network = criu_of.network_of_seat(request)
        if _own_network(request):
            network = (tools / "nm-box", "wrap", *user, "--new-net", "--")
        return [*restorer(tools, replace(request, cpus=()), {}), *network, *init]
    if request.seat is None:
        return init
    where = ["--hostname", request.hostname, "--netns", request.seat.netns, *user]
    where += view_words(request)
    return [tools / "nm-box", "start", "--bare", *where, "--report-fd", str(REPORT_FD), "--", *init]


def _own_network(request: InstanceRequest) -> bool:
    """Return whether an instance gets a network namespace that no other process of the machine is in."""
    attachment = request.environment.attachment
    return request.seat is None and request.layer is not None and attachment is Attachment.NONE


def _able(host: Host, tools: Tools, request: InstanceRequest, last: ExitStack) -> InstanceRequest:
    """Return the request with a user namespace, which lasts until `last` is closed, if one is missing to make
    the network namespace of the instance.

    Raises UnavailableError if the kernel forbids it.
    """
    if not _own_network(request) or request.user_namespace is not None or host.is_root():
        return request
    try:
        holder = last.enter_context(user_namespace_holder(host, tools, request.label))
    except RunError as error:
        raise request.refused(f"no network of its own without root: {error.what}", remedy(host)) from error
    return replace(request, user_namespace=holder.path)


@contextmanager
def start_native(
    host: Host, tools: Tools, request: InstanceRequest, *, period_us: int
) -> Iterator[BoxInstance]:
    """Start an instance on the machine itself, until exit.

    period_us: period of the CPU quota in microseconds, if the environment has a quota.
    Raises UnavailableError if the attachment or the image is not supported, or a limit cannot be set.
    Raises RunError.
    """
    attachment = request.environment.attachment
    fits = BARE_ATTACHMENTS if request.seat is None else (Attachment.HOST,)
    if attachment not in fits and not _own_network(request):
        raise request.refused(
            f"{request.environment.backend} has the machine's own network, not {attachment.value}",
            "attachment: host (shared memory) or loopback (TCP)",
        )
    if request.seat is not None and request.environment.image != HOST:
        raise request.refused(
            "an emulated bare node has image host only", f"image: {HOST}, or containers on the nodes"
        )
    own = (
        occupied(request.groups) if request.groups else control_groups(request, ACCOUNTS, period_us=period_us)
    )
    with ExitStack() as last, own as groups:
        if request.environment.image != HOST:
            with in_tree(host, tools, request, groups) as instance:
                yield instance
        elif request.seat is not None or request.first_process or request.layer is not None:
            with _bare(host, tools, _able(host, tools, request, last), groups, last) as instance:
                yield instance
        else:
            if not groups:
                last.callback(processes.kill_labelled, request.label)
            yield make_instance(
                tools,
                request,
                hostname=os.uname().nodename,
                pid=os.getpid(),
                namespaces_of=0,
                groups=groups,
                phases={},
                by_init=False,
            )


@contextmanager
def _bare(
    host: Host, tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], last: ExitStack
) -> Iterator[BoxInstance]:
    """Start an instance with a first process on the machine itself, until exit. With a seat it is in
    the network namespace of an emulated node and, without a layer, in a namespace for its host name.

    last: the caller closes it after it has removed the groups. The end of the first process is awaited then,
        since the process is in none of the groups.
    """
    boxed = request.seat is not None and request.layer is None
    spawning = time.monotonic_ns()
    launched = host.launch(
        native_argv(tools, request),
        expect={"first", "pid"} if boxed else {"first"},
        timeout=START_TIMEOUT,
        env={processes.LABEL_VARIABLE: request.label},
        inherit=False,
    )
    first = launched.facts["first"]
    pid = launched.facts.get("pid", launched.process.pid)
    last.callback(await_end, launched, request.label, groups)
    if request.layer is not None:
        own = processes.descendant(launched.process.pid, "nm-init")
        if own is None:
            raise RunError("the first process of the instance has ended")
        pid = own
    # A restored instance may get the PID while this one is removed.
    first_process = os.pidfd_open(pid)
    last.callback(os.close, first_process)
    try:
        yield make_instance(
            tools,
            request,
            # Without a namespace, ranks report the machine's own host name.
            hostname=None if boxed else os.uname().nodename,
            pid=pid,
            namespaces_of=0 if request.seat is None and not _own_network(request) else pid,
            # On bare metal a command needs no help to start; the detour costs 0.2 ms.
            by_init=request.seat is not None or request.layer is not None,
            groups=groups,
            phases={
                "spawn": seconds(spawning, first),
                # The control group only accounts for the baseline; it is not part of a start on bare metal.
                "first_instruction": seconds(spawning, first),
            },
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(first_process, signal.SIGKILL)


def _restore_argv(
    tools: Tools,
    criu: Criu,
    request: InstanceRequest,
    groups: Mapping[str, Path],
    images: Path,
    hold: Path | None,
) -> list[str]:
    """Return the command line that restores an instance.

    If the request is lazy, the checkpointed processes still hold their PIDs and sockets. The restored ones
    are then put into a new PID namespace, and into the network namespace of the seat or a new one, as if they
    were on another machine.
    """
    more = [*(("--lazy-pages",) if request.lazy else ()), *connection_options(tools, request, images)]
    if hold is not None:
        more += waiting_options(tools, hold, images, "pre-restore")
    return [
        *restorer(tools, request, groups, apart=request.lazy),
        *criu_of.network_of_seat(request),
        *criu_of.restore_argv(criu, images, more),
    ]
