"""Checkpoint, restore and move instances of the user's own, with a prediction beforehand.

Nothing that these functions make carries a label of nearmetal: images and restored instances belong to the
user, and outlive nearmetal and `nearmetal clean`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...environments.external import FORMS as FORMS
from ...environments.external import (
    DestinationKind,
    External,
    MovedAway,
    Moves,
    RestoredError,
    Target,
    find_external,
    named,
    require_new,
    write_saved,
)
from ...errors import NearmetalError, RunError
from ...host import Host, LocalHost
from ...host.runtime import scratch_directory, user_state
from ...host.ssh import SshHost, SshWay, ssh_host
from .dumps import (
    described,
    interrupted,
    restore_noted,
    write,
)
from .locks import only_one, only_one_of
from .plans import CHECKPOINT, MIGRATE, MoveOptions, MovePlan, planned, remember, work_of
from .remote import move_to_host
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
            now = restore_noted(host, external, work, directory, saved)
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
            done = move_to_host(host, external, _images_of(target, how, plan), how, plan, remote, warn)
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
            now = restore_noted(host, external, work, images, saved)
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
