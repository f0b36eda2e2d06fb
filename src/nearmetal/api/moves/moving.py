"""Checkpoint, restore and move instances of the user's own, with a prediction beforehand.

Nothing that these functions make carries a label of nearmetal: images and restored instances belong to the
user, and outlive nearmetal and `nearmetal clean`.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...environments.criu import PAGE_SERVER_LOG
from ...environments.criu_images import memory_sent
from ...environments.external import FORMS as FORMS
from ...environments.external import (
    DestinationKind,
    Dumps,
    External,
    MovedAway,
    Moves,
    RestoredError,
    Saved,
    Target,
    Work,
    WrittenError,
    find_external,
    forget_restored,
    named,
    require_new,
    sizes_of,
    sync_images,
    take_back,
    write_handed_over,
    write_images,
    write_restored,
    write_saved,
)
from ...errors import NearmetalError, RunError
from ...host import Host, LocalHost
from ...host.runtime import scratch_directory, user_state
from ...host.ssh import SshHost, SshWay, ssh_host
from ...lifecycle import Method
from ...model.change import replace
from .dumps import (
    again,
    begin_checkpoint,
    described,
    interrupted,
    removed_if_failed,
    runs,
    stopped_dump,
    write,
    written,
)
from .hosts import RemoteImages, images_on, move_lazily, reason_of
from .locks import only_one, only_one_of
from .plans import ASK_SECONDS, CHECKPOINT, MIGRATE, MoveOptions, MovePlan, planned, remember, work_of
from .restore_plans import (
    RESTORE,
    RestorePlan,
    UntrustedError,
    planned_restore,
    read,
    remember_restore,
    require_trust,
    untrusted_plan,
)

__all__ = [
    "MoveOptions",
    "MovePlan",
    "MoveResult",
    "RestorePlan",
    "UntrustedError",
    "checkpoint",
    "migrate",
    "plan_checkpoint",
    "plan_migrate",
    "plan_restore",
    "restore",
]

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class MoveResult:
    """A finished checkpoint, restore or move. Times are in seconds.

    action: CHECKPOINT, RESTORE or MIGRATE.
    now: name of the instance as it runs now; empty if it does not run.
    total: duration of the whole action, without its prediction.
    downtime: None if it is not known.
    size: bytes of the images, or bytes that were sent; None if it is not known.
    images: directory of the images that are left; None if there are none.
    plan: the prediction.
    """

    action: str
    now: str
    total: float
    downtime: float | None
    size: int | None
    images: str | None
    plan: MovePlan | RestorePlan


def plan_checkpoint(instance: str, to: Path, how: MoveOptions) -> MovePlan:
    host = LocalHost()
    return planned(host, find_external(host, instance), _directory(to), how, CHECKPOINT)


def plan_migrate(instance: str, to: str, how: MoveOptions) -> MovePlan:
    host = LocalHost()
    external = find_external(host, instance)
    external.inspect(host)
    with _reached(host, external, to) as (target, remote):
        return planned(host, external, target, how, MIGRATE, remote)


def plan_restore(directory: Path, into: str | None = None, *, trust: bool = False) -> RestorePlan:
    """Return the predicted duration of a restore, and what would prevent it. See restore()."""
    host = LocalHost()
    with only_one_of(directory):
        try:
            if not trust:
                require_trust(directory)
        except UntrustedError as e:
            return untrusted_plan(directory, into, e)
        saved, external = read(host, directory, into, complete=False)
        return planned_restore(host, directory, saved, external)


def checkpoint(
    instance: str, to: Path, how: MoveOptions, say: Say = lambda _: None, warn: Say = lambda _: None
) -> MoveResult:
    """Write an instance to a new directory. The instance ends then, unless how.keep_running is set.

    say: called with a message for the user when the writing begins.
    warn: called with a warning, if there is one.

    Raises UsageError, UnavailableError, and RunError, which says whether the instance still runs.
    """
    host = LocalHost()
    external, target = find_external(host, instance), _directory(to)
    with _alone(external):
        plan = planned(host, external, target, how, CHECKPOINT)
        if plan.warning and not how.keep_running:
            warn(plan.warning)
        say(f"writing {plan.instance} to {to}")
        require_new(to)
        saved = described(host, external, plan.method)
        work, begin = work_of(how, external), time.monotonic()
        frozen = write(host, external, work, saved, to)
        end = time.monotonic()
        total, downtime = end - begin, end - frozen
        size = write_saved(to, saved)
    remember(plan, target, total, downtime)
    return MoveResult(
        action=CHECKPOINT,
        now=external.name if how.keep_running else "",
        total=total,
        downtime=downtime,
        size=size,
        images=str(to),
        plan=plan,
    )


def restore(
    directory: Path, into: str | None = None, say: Say = lambda _: None, *, trust: bool = False
) -> MoveResult:
    """Restore an instance from a directory that checkpoint() has written. The images stay there.

    into: name of the instance after the restore, such as another QMP socket; None for the name that it had.
    trust: whether a checkpoint of somebody else is restored too.

    Raises UntrustedError, UsageError, UnavailableError and RunError.
    """
    host = LocalHost()
    with ExitStack() as stack:
        stack.enter_context(only_one_of(directory))
        if not trust:
            require_trust(directory)
        saved, external = read(host, directory, into, complete=True)
        work = work_of(MoveOptions(), external)
        external.require_programs(host, work)
        stack.enter_context(_alone(external))
        say(f"restoring {external.name} from {directory}")
        plan = planned_restore(host, directory, saved, external)
        begin = time.monotonic()
        try:
            now = _restored(host, external, work, directory, saved)
        except KeyboardInterrupt as e:
            raise interrupted(external, directory) from e
        total = time.monotonic() - begin
    remember_restore(plan, total)
    return MoveResult(
        action=RESTORE,
        now=now,
        total=total,
        downtime=None,
        size=None,
        images=str(directory),
        plan=plan,
    )


def migrate(
    instance: str, to: str, how: MoveOptions, say: Say = lambda _: None, warn: Say = lambda _: None
) -> MoveResult:
    """Move an instance to a waiting QEMU, to another host, or through a directory on this machine.

    to: the QMP socket of the waiting QEMU, the host, or the directory; see Target.parse().
    say: called with a message for the user when the move begins.
    warn: called with the risk of the method before the move begins, if it has one, and with what the user
        must know of its course.

    Raises UsageError, UnavailableError, and RunError, which says whether the instance still runs.
    """
    host = LocalHost()
    external = find_external(host, instance)
    with ExitStack() as stack:
        stack.enter_context(_alone(external))
        external.inspect(host)
        target, remote = stack.enter_context(_reached(host, external, to))
        if target.way is DestinationKind.SOCKET:
            stack.enter_context(_alone(named(f"qmp:{target.text}")))
        plan = planned(host, external, target, how, MIGRATE, remote)
        for warning in filter(None, (plan.method.risk, plan.warning)):
            warn(warning)
        say(f"moving {plan.instance} by {plan.method} to {to}")
        images = None
        if isinstance(external, Moves):
            done = external.migrate(host, work_of(how, external, plan.method), target, plan.method)
        elif remote is not None:
            done = _to_host(host, external, target, how, plan, remote, warn)
        else:
            done, images = _by_directory(host, external, target, how, plan)
        if done.warning:
            warn(done.warning)
    remember(plan, target, done.total, done.downtime)
    return MoveResult(
        action=MIGRATE,
        now=done.now,
        total=done.total,
        downtime=done.downtime,
        size=done.sent,
        images=images,
        plan=plan,
    )


def _alone(external: External) -> AbstractContextManager[None]:
    """Lock an instance against other commands. An instance that is named by a socket is locked by the
    absolute path of the socket.

    Raises BusyError if another command has locked it.
    """
    kind, _, rest = external.name.partition(":")
    at_socket = DestinationKind.SOCKET in external.moves_by
    return only_one(f"{kind}:{Path(rest).absolute()}" if at_socket else external.name)


def _by_directory(
    host: Host, external: External, target: Target, how: MoveOptions, plan: MovePlan
) -> tuple[MovedAway, str]:
    """Move an instance on this machine, by a checkpoint and a restore. Returns the move, and the directory of
    the images."""
    images = _images_of(target, how, plan)
    require_new(images)
    saved = described(host, external, plan.method)
    work, begin = work_of(how, external), time.monotonic()
    frozen = write(host, external, work, saved, images)
    size = write_saved(images, saved)
    try:
        with only_one_of(images):
            now = _restored(host, external, work, images, saved)
    except RestoredError:
        raise
    except KeyboardInterrupt as e:
        raise interrupted(external, images) from e
    except NearmetalError as e:
        raise RunError(
            f"{external.name} runs nowhere: {e.what}", where=e.where or str(images), remedy=e.remedy
        ) from e
    end = time.monotonic()
    return MovedAway(now=now, total=end - begin, downtime=end - frozen, sent=size), str(images)


def _to_host(
    host: Host,
    external: External,
    target: Target,
    how: MoveOptions,
    plan: MovePlan,
    remote: SshHost,
    warn: Say,
) -> MovedAway:
    """Move an instance to another machine, by images or by memory that CRIU sends. The images on this machine
    are removed.

    warn: called with a message for the user if the move goes on in spite of Ctrl-C, or leaves files there.
    """
    images = _images_of(target, how, plan).absolute()
    require_new(images)
    saved = described(host, external, plan.method)
    work, begin = work_of(how, external), time.monotonic()
    now = ""
    try:
        with images_on(host, remote, work, warn) as there:
            if plan.method.fetches_later:
                assert isinstance(external, Dumps)
                begin_checkpoint(images, saved)
                with removed_if_failed(host, external, images):
                    now, stopped = move_lazily(host, external, work, saved, images, there, warn)
            else:
                frozen = _send(host, external, work, saved, images, there)
                now = _on_remote(host, external, work, images, saved, there)
                stopped = time.monotonic() - frozen
            size = sizes_of(images) + memory_sent(images, saved.method)
        shutil.rmtree(images, ignore_errors=True)
    except KeyboardInterrupt as e:
        if not now:
            raise
        raise RunError(
            f"interrupted; {external.name} was moved, and runs as {now} at {remote.name}",
            remedy=f"remove {images}, if it is still there",
        ) from e
    total = time.monotonic() - begin
    return MovedAway(now=f"{now} at {remote.name}", total=total, downtime=stopped, sent=size)


def _send(
    host: Host, external: External, work: Work, saved: Saved, images: Path, there: RemoteImages
) -> float:
    """Write an instance to images that can be copied, or its memory directly to the other machine. Returns
    the monotonic time at which its last dump began."""
    if saved.method is Method.CRIU_PAGESERVER:
        assert isinstance(external, Dumps)
        begin_checkpoint(images, saved)
        there.kept = True  # the memory is on the other machine only, from the end of the dump on
        try:
            with removed_if_failed(host, external, images):
                port = there.serve_pages(work.criu(there.remote), images / PAGE_SERVER_LOG)
                frozen = time.monotonic()
                ending = replace(work, before_end=there.sync_words())
                write_images(external, host, ending, images, saved.method, server=port)
                sync_images(host, images)
        except WrittenError as e:
            raise written(e, images, there) from e
        except BaseException as e:
            there.kept = not runs(host, external)
            if isinstance(e, (KeyboardInterrupt, OSError)):
                raise stopped_dump(host, external, images, there, why=e) from e
            raise
        return frozen

    def round_written(directory: Path) -> None:
        there.send(images, directory.name)

    frozen = write(host, external, replace(work, round_written=round_written), saved, images)
    write_saved(images, saved)
    return frozen


def _on_remote(
    host: Host, external: External, work: Work, images: Path, saved: Saved, there: RemoteImages
) -> str:
    """Copy images to another machine, and restore the instance there. If that fails, it is restored here.
    Returns its name on the other machine.

    Raises RunError, which says where the instance runs, or where its images are if it does not run.
    """
    remote, asked = there.remote, False
    try:
        there.send(images)
        write_handed_over(images, remote.name, there.path)
        asked = True
        now = external.restore(remote, work, there.path, saved)
    except RestoredError:
        raise
    except (NearmetalError, OSError, KeyboardInterrupt) as error:
        if asked and isinstance(error, KeyboardInterrupt):
            raise interrupted(external, images, there) from error
        e = error if isinstance(error, NearmetalError) else RunError(reason_of(error))
        if asked and (not remote.connected() or not remote.run(["true"], timeout=ASK_SECONDS).ok):
            raise RunError(
                f"the connection to {remote.name} is lost, and it is not known whether {external.name} "
                f"runs there: {e.what}",
                where=str(images),
                remedy=f"find out there; if it does not run: {again(images, there)}",
            ) from error
        back = _back(host, external, work, images, saved, there, e)
        raise RunError(
            f"{external.name} was not moved to {remote.name}, and continues here as {back}: {e.what}",
            remedy="the same programs, libraries and files there, and a free PID" if asked else e.remedy,
        ) from error
    there.kept = False
    return now


def _back(
    host: Host,
    external: External,
    work: Work,
    images: Path,
    saved: Saved,
    there: RemoteImages,
    why: NearmetalError,
) -> str:
    """Restore an instance on this machine, because it could not be restored on the other one. Returns its
    name.

    why: the error on the other machine.

    Raises RunError if it cannot be restored here either.
    """
    try:
        take_back(images)
        if there.kept:
            there.fetch(images)
            write_saved(images, replace(saved, method=Method.CRIU))
            there.kept = False
        with only_one_of(images):
            back = _restored(host, external, work, images, saved)
    except RestoredError:
        raise
    except NearmetalError as second:
        raise RunError(
            f"{external.name} runs nowhere: {why.what}; and here: {second.what}",
            where=str(images),
            remedy=again(images, there) if there.kept else second.remedy,
        ) from why
    except KeyboardInterrupt as e:
        raise interrupted(external, images, there) from e
    shutil.rmtree(images, ignore_errors=True)
    return back


def _restored(host: Host, external: External, work: Work, images: Path, saved: Saved) -> str:
    """Restore an instance on this machine from images, and note there that it was restored, so that no second
    copy is. Returns its name."""
    write_restored(images, external.name, finished=False)
    try:
        now = external.restore(host, work, images.absolute(), saved)
    except RestoredError:
        write_restored(images, external.name)
        raise
    except NearmetalError:
        forget_restored(images)
        raise
    write_restored(images, now)
    return now


def _images_of(target: Target, how: MoveOptions, plan: MovePlan) -> Path:
    if target.way is DestinationKind.DIRECTORY:
        return Path(target.text)
    if how.images is not None:
        return how.images
    name = re.sub(r"\W+", "-", plan.instance).strip("-")
    return user_state() / "nearmetal" / "checkpoints" / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}"


def _directory(to: Path) -> Target:
    return Target(way=DestinationKind.DIRECTORY, text=str(to))


@contextmanager
def _reached(host: Host, external: External, to: str) -> Iterator[tuple[Target, SshHost | None]]:
    """Yield the destination of a move, and a connection to the host if images are copied to one; None in its
    place if not.

    Hypervisors that move guests by themselves make their own connection.
    """
    target = Target.parse(to)
    by_copy = DestinationKind.HOST in external.moves_by and not isinstance(external, Moves)
    if target.way is not DestinationKind.HOST or not by_copy:
        yield target, None
        return
    label = f"nearmetal-check-{os.getpid()}-move"
    with (
        scratch_directory(label) as scratch,
        ssh_host(host, SshWay(destination=target.text), label=label, scratch=scratch) as remote,
    ):
        yield target, remote
