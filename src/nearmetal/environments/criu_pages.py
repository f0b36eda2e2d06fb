"""Runs the programs of CRIU that send memory to each other: dumps that serve it, page servers, and programs
that fetch it. They inherit a connection (host.connection), because CRIU has no authentication."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from ..errors import RunError
from ..host import Host, Process
from ..host.processes import labelled as processes
from ..host.processes.helper import wait_readable
from .contract import Instance, Tools
from .criu import (
    DUMP_LOG,
    LAZY_LOG,
    LOOK_AT_CRIU,
    PAGE_SERVER_LOG,
    SECONDS,
    ConfirmedFinding,
    bound_to_tool,
    why_dump_is_stuck,
)
from .criu_images import first_error
from .moving import Criu
from .program import log_failure

_END_SECONDS = 10.0


@contextmanager
def background(
    host: Host,
    label: str,
    argv: Callable[[int], Sequence[str]],
    log: Path,
    what: str,
    why_stuck: Callable[[int], str] = lambda _: "",
    *,
    server: int,
) -> Iterator[Process]:
    """Run a CRIU command in the background until exit. Yields as soon as it reports that it is ready.

    argv: returns the command line, given the file descriptor for the report.
    log: file to which CRIU writes its log.
    what: beginning of the error message if it fails.
    why_stuck: returns why the command will never be ready, given its PID; '' if it may be.
    server: descriptor of the connection to the CRIU at the other place, which the command inherits.
    Raises RunError if the command ends, or is not ready within SECONDS.
    """
    reader, writer = os.pipe()
    said = log.with_suffix(".err")
    try:
        try:
            process = host.start(
                argv(writer),
                stdout=said,
                stderr=said,
                env={processes.LABEL_VARIABLE: label},
                cwd=Path("/"),
                pass_fds=(writer, server),
            )
        finally:
            os.close(writer)
        try:
            end, stuck = time.monotonic() + SECONDS, ConfirmedFinding(partial(why_stuck, process.pid))
            while not (ready := wait_readable(reader, LOOK_AT_CRIU)):
                if process.poll() is not None or stuck.look() or time.monotonic() > end:
                    break
            if not ready or not os.read(reader, 1):
                if not stuck.found:
                    with contextlib.suppress(TimeoutError):
                        process.wait(_END_SECONDS)
                why = stuck.found or first_error(log) or log_failure("criu", process.poll(), said)
                raise RunError(f"{what}: {why}", where=str(log))
            yield process
        finally:
            process.kill()
    finally:
        os.close(reader)


def serving_pages(
    host: Host, tools: Tools, criu: Criu, label: str, images: Path, server: int
) -> AbstractContextManager[Process]:
    """Run CRIU's page server at the destination until exit. It receives the memory of one dump, and writes it
    to files in a directory.

    server: descriptor of the connection to the dump.
    """
    where = ["--images-dir", str(images), "--ps-socket", str(server), "--log-file", PAGE_SERVER_LOG, "-v2"]

    def argv(ready: int) -> list[str]:
        return bound_to_tool(tools, label, [*criu.argv, "page-server", *where, "--status-fd", str(ready)])

    return background(host, label, argv, images / PAGE_SERVER_LOG, "no page server", server=server)


def fetching_pages(
    host: Host, tools: Tools, criu: Criu, label: str, images: Path, server: int
) -> AbstractContextManager[Process]:
    """Run `criu lazy-pages` at the destination until exit. It fetches memory pages from the source for
    restored processes, and ends as soon as it has fetched all of them.

    server: descriptor of the connection to the dump.
    """
    where = ["--images-dir", str(images), "--page-server", "--ps-socket", str(server)]
    where += ["--log-file", LAZY_LOG, "-v2"]

    def argv(ready: int) -> list[str]:
        return bound_to_tool(tools, label, [*criu.argv, "lazy-pages", *where, "--status-fd", str(ready)])

    return background(host, label, argv, images / LAZY_LOG, "memory cannot be fetched", server=server)


def lazy_dump(
    host: Host,
    tools: Tools,
    instance: Instance,
    argv: Callable[[int], Sequence[str]],
    images: Path,
    server: int,
) -> AbstractContextManager[Process]:
    """Run a dump of an instance until exit that leaves the memory at the source. Yields when its files are
    complete; the dump ends when all memory has been fetched.

    argv: returns the command line from Checkpoints.dump_command(), given the descriptor Dump.ready.
    server: Dump.server. If all copies of the other end are closed, the dump ends, and the source with it.
    """
    return background(
        host,
        instance.label,
        lambda ready: bound_to_tool(tools, instance.label, argv(ready)),
        images / DUMP_LOG,
        "no checkpoint",
        partial(why_dump_is_stuck, instance.pid, images),
        server=server,
    )
