"""One checkpoint and restore of an instance, by any method of CRIU. A program in the instance verifies its
memory before and after."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ...environments import (
    MEMORY_FILES,
    Backend,
    BeginsEarly,
    Checkpoints,
    Criu,
    Dump,
    Instance,
    InstanceRequest,
    Restore,
    Tools,
)
from ...environments import criu as criu_of
from ...environments.criu_connections import frozen_at
from ...environments.criu_images import image_bytes, made, memory_sent, statistics_of
from ...environments.criu_pages import fetching_pages, lazy_dump, serving_pages
from ...errors import RunError, TrialFailedError
from ...host import Host, Process
from ...host.connection import connected_sockets
from ...host.processes.held import await_ends, await_reaped, holding, holding_mounts, signal_all
from ...lifecycle import CopyRound, Method, Phase, PhaseTimes
from ...model.change import replace
from .hooks import NO_HOOKS, EventHooks
from .pace import PhaseTimer, behind, ignore, pace
from .progress import ProgramProgress
from .verified import LEAST_PASSES, Restored, VerifiedProgram, keeper, require_right

LIMIT = 60.0
"""Seconds after which the event fails if the program does not continue, or if a command does not end."""
_ENDS = 1.0
"""Seconds within which a thawed source whose container program was killed ends, after a few more steps."""
_REAPED = 2.0
"""Seconds to wait until ended processes have been reaped by their parents."""
_LOOK_AGAIN = 0.0005


@dataclass(frozen=True, kw_only=True)
class CheckpointEvent:
    """Starts an instance and a program in it that verifies its own memory; writes the instance to files,
    copies them and restores it.

    request: request for an instance without an address on a network, unless `around` changes its seat.
    memory: bytes of memory that the program holds.
    dirtied: how many of these bytes it writes to, and the bytes of pages that it writes per second (0: as
        fast as it can); None if it writes to all of its memory all the time.
    images, there: empty directories for the files, at the source and at the destination.
    layers: an empty directory for the files that the instance writes to its root.
    record: file in which the program records its progress.
    log: directory for the logs of a failed event.
    limit: seconds after which the event fails if the images are not copied, or the memory not fetched.
    notify: called at the beginning of each phase.
    program: program to run in the instance; None for nm-keeper with `memory`, `record` and `dirtied`.
    around: hooks that are called during the event.
    choose: function that chooses the method when the program runs, called with the instance and with `there`.
        None if `method` is used.
    """

    host: Host
    tools: Tools
    criu: Criu
    backend: Backend
    request: InstanceRequest
    method: Method
    memory: int
    dirtied: tuple[int, int] | None = None
    images: Path
    there: Path
    layers: Path
    record: Path
    log: Path
    limit: float = LIMIT
    notify: Callable[[Phase], None] = ignore
    program: VerifiedProgram | None = None
    around: EventHooks = NO_HOOKS
    choose: Callable[[Instance, Path], Method] | None = None

    def run(self) -> Restored:
        """Checkpoint and restore the instance once.

        Raises TrialFailedError, which says where the program then runs; RunError and UnavailableError.
        """
        with ExitStack() as there, ExitStack() as here:
            event = _EventRun(self, here, there)
            try:
                event.start()
                return event.move()
            except (RunError, TrialFailedError):
                self._keep_logs()
                raise

    def _keep_logs(self) -> None:
        self.log.mkdir(parents=True, exist_ok=True)
        for directory in (self.images, self.there):
            for file in directory.rglob("*.log"):
                with contextlib.suppress(OSError):
                    shutil.copy(file, self.log / f"checkpoint.{directory.name}.{file.name}")


class _EventRun:
    """The state of an event while it happens."""

    def __init__(self, event: CheckpointEvent, here: ExitStack, there: ExitStack) -> None:
        """here, there: stacks whose exit ends the source and the destination."""
        assert isinstance(event.backend, Checkpoints)
        self._event, self._here, self._there = event, here, there
        self._program = event.program or keeper(event.tools, event.memory, event.record, event.dirtied)
        self._backend: Checkpoints = event.backend
        self._source = self._with_layer("source", event.request)
        self._timer = PhaseTimer(notify=event.notify)
        self._phase, self._seconds = self._timer.phase, self._timer.seconds
        self._before = ProgramProgress()
        self._sent = 0
        self._copied: list[CopyRound] = []
        self._fetching_end: socket.socket | None = None
        self._dumping: criu_of.RunningDump | None = None
        self._lazy_dump: Process | None = None
        self._fetcher: Process | None = None
        self._restored: Instance | None = None
        self._left = time.monotonic()
        self._instance: Instance
        self._held: Sequence[int] = ()

    def start(self) -> None:
        """Start the instance and its program. Return when the program has verified all its memory once."""
        e = self._event
        self._instance = self._here.enter_context(e.backend.start(e.host, e.tools, self._source))
        alone = self._backend.command_alone(self._instance, self._program.argv)
        done = e.host.run(alone, timeout=LIMIT, cwd=Path("/"))
        if not done.ok:
            what = f"the program to be checkpointed does not start: {done.failure()}"
            raise TrialFailedError(what, where=str(e.log))
        self._wait(lambda now: now.steps >= 1, "does not start its work")
        self._begun = self._program.mark()
        self._wait(lambda now: now.passes >= 1, "does not start its work")
        self._held = self._here.enter_context(holding(self._instance.pid))
        # Until the end of the event, which waits for no disk before.
        self._there.enter_context(holding_mounts(self._instance.pid))
        e.around.begun()
        if e.choose is not None:
            self._event = replace(e, method=e.choose(self._instance, e.there))

    def move(self) -> Restored:
        """Checkpoint the started instance, and restore it at the destination."""
        e, requested = self._event, self._program.mark()
        try:
            target = self._target()
            restore = self._prepare(target) if target.beside else None
            images, stopped = self._write()
            if self._backend.writes_after_end:
                stopped = self._finish_dump(stopped)
            self._copy(target, restore)
            stopped = self._finish_dump(stopped)
            if e.method.fetches_later:
                self._fetcher = self._connect_fetcher(target)
        except (RunError, OSError) as error:
            raise self._failed(error) from error
        if restore is None:
            self._remove_source()
        try:
            with self._phase(Phase.RESTORE):
                restore = restore or self._prepare(target)
                self._restored = self._there.enter_context(restore(e.there / images.name))
        except (RunError, OSError) as error:
            raise self._failed(error) from error
        with self._phase(Phase.THAW):
            moved = self._wait(
                lambda now: now.steps > self._before.steps, "does not continue in the restored instance"
            )
            resumed = time.monotonic()
        if self._fetcher is not None:
            self._fetch(self._fetcher, images)
        self._remove_source()
        moved = self._wait(
            lambda now: now.passes >= self._before.passes + LEAST_PASSES,
            "does not verify its memory any more",
        )
        require_right(moved, e.log)
        assert self._restored is not None
        e.around.ended(self._restored)
        return Restored(
            phases=PhaseTimes(self._seconds),
            pauses=self._program.pauses(),
            stopped=resumed - stopped,
            size=image_bytes(e.there),
            sent=self._sent,
            copied=tuple(self._copied),
            behind=behind(pace(self._begun, requested), requested, self._program.mark()),
            passes=moved.passes - self._before.passes,
        )

    def _with_layer(self, name: str, request: InstanceRequest) -> InstanceRequest:
        layer = made(self._event.layers / name)
        return replace(request, layer=layer, calls=self._event.layers / "calls")

    def _target(self) -> InstanceRequest:
        """Return the request for the restored instance. The destination is prepared while the source exists
        if the backend can do so, as with lazy pages, and if the source has control groups of its own."""
        e, lazy = self._event, self._event.method.fetches_later
        able = self._backend.restores_beside and bool(self._instance.cgroups)
        request = replace(e.request, scratch=made(e.layers / "scratch"), beside=lazy or able, lazy=lazy)
        return e.around.destination(self._with_layer("target", request))

    def _prepare(self, target: InstanceRequest) -> Restore:
        e = self._event
        restoring = self._backend.restoring(e.host, e.tools, e.criu, target)
        with self._phase(Phase.CONNECT) if target.beside else contextlib.nullcontext():
            e.around.prepare()
            return self._there.enter_context(restoring)

    def _write(self) -> tuple[Path, float]:
        """Write the instance to files. Return their directory, and when it ended or (lazy pages) stopped."""
        e = self._event
        previous = self._write_rounds() if e.method is Method.CRIU_PRECOPY else None
        self._here.callback(self._thaw)
        images = made(e.images / "last")
        dump = Dump(images=images, previous=previous, tracked=previous is not None)
        if e.method is Method.CRIU_LAZY:
            return dump.images, self._write_lazily(dump)
        if e.method is Method.CRIU_PAGESERVER:
            dump = replace(dump, server=self._connect_server(dump.images))
        with self._phase(Phase.FREEZE), self._phase(Phase.DUMP):
            self._left = time.monotonic()
            e.around.leave()
            # CRIU ends the processes last. A container program ends later, while the images are copied.
            self._dumping = dumping = self._start_dump(dump)
            end = time.monotonic() + criu_of.SECONDS
            while (left := await_ends(self._held, 0.0)) and dumping.runs():
                if time.monotonic() > end:
                    dumping.process.kill()
                time.sleep(_LOOK_AGAIN)
            if left:
                dumping.finish()
                left = await_ends(self._held, LIMIT)
            ended = time.monotonic()
            await_reaped(self._held, _REAPED)
        if left:
            raise RunError(f"{left} processes still run after their checkpoint", remedy="nearmetal clean")
        self._before = self._progress()
        return dump.images, ended

    def _finish_dump(self, ended: float) -> float:
        """Wait for the end of the dump. Return when the processes stopped; `ended` if it has been awaited,
        or with lazy pages.

        ended: when they had ended. Both are times of CLOCK_MONOTONIC in seconds.
        """
        if (dumping := self._dumping) is None:
            return ended
        self._dumping = None
        with self._phase(Phase.COPY):
            dumping.finish(self._event.limit)
        if not self._backend.has_statistics:
            del self._seconds[Phase.FREEZE]  # it is a part of the dump that is not known
            return self._program.last_step()
        statistics = statistics_of(dumping.images)
        # The seconds of the dump were counted for both phases.
        self._seconds[Phase.FREEZE] = statistics.freezing
        self._seconds[Phase.DUMP] = max(self._seconds[Phase.DUMP] - statistics.freezing, 0.0)
        self._sent += memory_sent(dumping.images, self._event.method)
        if (frozen := frozen_at(dumping.images)) is not None:
            return time.monotonic() - (time.time() - frozen)
        return ended - (statistics.frozen + statistics.freezing)

    def _start_dump(self, dump: Dump) -> criu_of.RunningDump:
        e = self._event
        argv = self._backend.dump_command(e.tools, e.criu, self._source, self._instance, dump)
        why_stuck = self._backend.watch_dump(self._instance, dump.images)
        started = criu_of.start_dump(
            e.host, e.tools, self._instance, argv, dump.images, e.layers / "dump.err", why_stuck, dump.server
        )
        self._here.callback(started.process.kill)
        return started

    def _write_rounds(self) -> Path:
        """Write and copy the memory in rounds while the program runs. Return the last round's directory."""

        def write(dump: Dump) -> None:
            with self._phase(Phase.CONNECT):
                self._start_dump(dump).finish()
                for memory in (False, True):
                    self._copy_files(dump.images, memory=memory)

        previous, written = criu_of.write_rounds(lambda number: made(self._event.images / str(number)), write)
        self._copied += [CopyRound(left=size) for size in written]
        return previous

    def _connect_server(self, images: Path) -> int:
        """Start a page server for the dump to a directory. Return the descriptor of the dump's end of their
        connection."""
        e, there = self._event, self._event.there / images.name
        there.mkdir()
        with self._phase(Phase.CONNECT):
            near, far = connected_sockets()
            self._here.enter_context(near)
            with far:
                server = serving_pages(e.host, e.tools, e.criu, self._source.label, there, far.fileno())
                self._there.enter_context(server)
        return near.fileno()

    def _write_lazily(self, dump: Dump) -> float:
        """Write everything except the memory, which stays with the stopped processes of the source.

        Return the time of the program's last step, since CRIU does not report when it stopped the processes.
        """
        e = self._event
        near, far = connected_sockets()
        # Kept open even if the program that fetches the memory ends: else the dump would end the source.
        self._fetching_end = self._there.enter_context(far)

        def argv(ready: int) -> list[str]:
            now = replace(dump, ready=ready, server=near.fileno())
            return self._backend.dump_command(e.tools, e.criu, self._source, self._instance, now)

        with self._phase(Phase.DUMP):
            self._left = time.monotonic()
            e.around.leave()
            with near:
                lazy = lazy_dump(e.host, e.tools, self._instance, argv, dump.images, near.fileno())
                self._lazy_dump = self._here.enter_context(lazy)
            # If CRIU is killed, the processes that it holds are stopped, instead of running beside those
            # that were restored.
            signal_all(self._held, signal.SIGSTOP)
        self._before = self._progress()
        return self._program.last_step()

    def _connect_fetcher(self, target: InstanceRequest) -> Process:
        e = self._event
        assert self._fetching_end is not None
        with self._phase(Phase.CONNECT):
            there = e.there / "last"
            fetching = fetching_pages(
                e.host, e.tools, e.criu, target.label, there, self._fetching_end.fileno()
            )
            return self._there.enter_context(fetching)

    def _fetch(self, fetcher: Process, images: Path) -> None:
        """Wait until all memory has been fetched from the source. Raises TrialFailedError if it is lost."""
        assert self._lazy_dump is not None
        with self._phase(Phase.COPY):
            for process, what in (
                (fetcher, "the connection was lost"),
                (self._lazy_dump, "the source failed"),
            ):
                try:
                    status = process.wait(self._event.limit)
                except TimeoutError:
                    status = -1
                if status != 0:
                    raise self._lost(what)
        self._sent += memory_sent(images, Method.CRIU_LAZY)

    def _lost(self, what: str) -> TrialFailedError:
        return TrialFailedError(
            f"{what} before all memory was fetched; the program runs nowhere, since it had gone on at the "
            "destination",
            where=str(self._event.log),
        )

    def _remove_source(self) -> None:
        """Remove everything that is left of the source.

        Raises TrialFailedError if one of its processes still exists, since two copies would then run.
        """
        with self._phase(Phase.REMOVAL), ExitStack() as kept:
            held = [os.dup(fd) for fd in self._held]
            for fd in held:
                kept.callback(os.close, fd)
            self._held = ()
            self._here.close()
            left = await_ends(held, 0.0)
        if left:
            raise TrialFailedError(
                f"{left} processes of the instance run after its checkpoint", remedy="nearmetal clean"
            )

    def _copy(self, target: InstanceRequest, restore: Restore | None) -> None:
        """Copy the writable layer and the image files to the destination, the memory last."""
        e, images = self._event, self._event.images / "last"
        with self._phase(Phase.COPY):
            assert target.layer is not None
            upper = e.layers / "source" / "upper"
            if upper.is_dir():
                self._run_copy([upper], target.layer)
                self._sent += sum(
                    f.lstat().st_size for f in upper.rglob("*") if f.is_file() and not f.is_symlink()
                )
            self._copy_files(images, memory=False)
            if isinstance(restore, BeginsEarly):
                restore.begin(e.there / images.name)
            self._copy_files(images, memory=True)

    def _copy_files(self, images: Path, *, memory: bool) -> None:
        """Copy the files of a dump: those of the memory, or all others.

        Raises RunError if copying fails, or if a copy has another size than its file.
        """
        there = self._event.there / images.name
        there.mkdir(exist_ok=True)
        files = [file for file in images.iterdir() if file.match(MEMORY_FILES) == memory]
        if files:
            self._run_copy(files, there)
        for file in (f for f in files if f.suffix == ".img"):
            found, size = (there / file.name).stat().st_size, file.stat().st_size
            if found != size:
                raise RunError(f"the copy of {file.name} has {found} of {size} bytes", where=str(there))
            self._sent += 0 if file.is_symlink() else size

    def _run_copy(self, origins: Sequence[Path], parent: Path) -> None:
        argv = ["cp", "--archive", *map(str, origins), f"{parent}/"]
        done = self._event.host.run(argv, timeout=self._event.limit)
        if not done.ok:
            raise RunError(f"the checkpoint is not copied: {done.failure()}", where=str(parent))

    def _failed(self, error: RunError | OSError) -> TrialFailedError:
        """Let the source continue if it still exists. Return the error, with where the program now runs."""
        e = self._event
        if self._lazy_dump is not None and self._progress().steps == self._before.steps:
            self._lazy_dump.kill()
            signal_all(self._held, signal.SIGCONT)
        on = False
        if self._thaw():
            e.around.stay()
            program, away = self._program, time.monotonic() - self._left
            on = program.goes_on(away) and await_ends(self._held, _ENDS) > 0 and program.goes_on(away)
        fate = "the program goes on at the source" if on else "the program runs nowhere"
        if isinstance(error, OSError):
            return TrialFailedError(f"{error.strerror}; {fate}", where=str(error.filename or e.log))
        return TrialFailedError(f"{error.what}; {fate}", where=error.where or str(e.log))

    def _thaw(self) -> bool:
        """Thaw the source if it exists, since the kernel ends no frozen process. Return whether it exists."""
        e, exists = self._event, await_ends(self._held, 0.0) > 0
        if exists:
            self._backend.thaw(e.host, e.tools, self._source, self._instance)
        return exists

    def _progress(self) -> ProgramProgress:
        return self._program.progress()

    def _wait(self, reached: Callable[[ProgramProgress], bool], failure: str) -> ProgramProgress:
        """Wait until `reached` holds for the program's progress. Raises TrialFailedError after LIMIT."""
        end = time.monotonic() + LIMIT
        while not reached(now := self._progress()):
            if self._fetcher is not None and self._fetcher.poll() not in (None, 0):
                raise self._lost("the connection was lost")
            if self._restored is not None and not Path(f"/proc/{self._restored.pid}").exists():
                what = "the restored instance has ended; the program runs nowhere"
                raise TrialFailedError(what, where=str(self._event.log))
            if time.monotonic() > end:
                what = f"the program {failure} within {LIMIT:g} s, and is ended"
                raise TrialFailedError(what, where=str(self._event.log))
            time.sleep(_LOOK_AGAIN)
        return now
