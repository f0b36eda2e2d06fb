"""Checkpoint, restore and move instances of the user's own, with a prediction beforehand.

Nothing that these functions make carries a label of nearmetal: images and restored instances belong to the
user, and outlive nearmetal and `nearmetal clean`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..environments.external import (
    External,
    MovedAway,
    Moves,
    RestoredError,
    Saved,
    Target,
    Way,
    Work,
    WrittenError,
    find_external,
    named,
    read_saved,
    require_new,
    write_saved,
)
from ..errors import NearmetalError, RunError, UsageError
from ..host import Host, LocalHost
from ..host.runtime import scratch_directory, user_state
from ..host.ssh import SshHost, SshWay, ssh_host
from .move_plans import CHECKPOINT, MIGRATE, REMOTE, SECONDS, How, MovePlan, planned, remember, work_of

__all__ = [
    "How",
    "MovePlan",
    "MoveResult",
    "checkpoint",
    "migrate",
    "plan_checkpoint",
    "plan_migrate",
    "restore",
]

Said = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class MoveResult:
    """A finished checkpoint, restore or move. Times are in seconds.

    now: name of the instance as it runs now; empty if it does not run.
    total: from the request.
    downtime: None if it is not known.
    size: bytes of the images, or bytes that were sent; None if it is not known.
    images: directory of the images that are left; None if there are none.
    plan: the prediction; None of a restore.
    """

    action: str
    now: str
    total: float
    downtime: float | None
    size: int | None
    images: str | None
    plan: MovePlan | None


def plan_checkpoint(instance: str, to: Path, how: How) -> MovePlan:
    """Return what is expected of a checkpoint."""
    host = LocalHost()
    return planned(host, find_external(host, instance), _directory(to), how, CHECKPOINT)


def plan_migrate(instance: str, to: str, how: How) -> MovePlan:
    """Return what is expected of a move."""
    host = LocalHost()
    external = find_external(host, instance)
    external.inspect(host)
    with _reached(host, external, to) as (target, remote):
        return planned(host, external, target, how, MIGRATE, remote)


def checkpoint(instance: str, to: Path, how: How, say: Said = lambda _: None) -> MoveResult:
    """Write an instance to a new directory. It ends, unless how.keep_running.

    Raises UsageError, UnavailableError, and RunError, which says whether the instance goes on.
    """
    host = LocalHost()
    external, target = find_external(host, instance), _directory(to)
    plan = planned(host, external, target, how, CHECKPOINT)
    require_new(to)
    say(f"writing {plan.instance} to {to}")
    work, begin = work_of(how, external), time.monotonic()
    saved = _written(host, external, work, plan, to)
    total = time.monotonic() - begin
    size = write_saved(to, saved)
    remember(plan, target, total, total)
    return MoveResult(
        action=CHECKPOINT,
        now=external.name if how.keep_running else "",
        total=total,
        downtime=total,
        size=size,
        images=str(to),
        plan=plan,
    )


def restore(directory: Path, into: str | None = None, say: Said = lambda _: None) -> MoveResult:
    """Restore an instance from a directory that checkpoint() has written. The images stay.

    into: its name after the restore, such as another QMP socket; None for the one that it had.
    Raises UsageError, UnavailableError and RunError.
    """
    host = LocalHost()
    saved = read_saved(directory)
    external = named(saved.name if into is None else into)
    if external.name.partition(":")[0] != saved.name.partition(":")[0]:
        raise UsageError(
            f"{directory} contains {saved.name}, which does not become {external.name}",
            remedy=f"--into {saved.name}",
        )
    work = work_of(How(), external)
    external.require_programs(host, work)
    say(f"restoring {external.name} from {directory}")
    begin = time.monotonic()
    now = external.restore(host, work, directory.absolute(), saved)
    return MoveResult(
        action="restore",
        now=now,
        total=time.monotonic() - begin,
        downtime=None,
        size=None,
        images=str(directory),
        plan=None,
    )


def migrate(instance: str, to: str, how: How, say: Said = lambda _: None) -> MoveResult:
    """Move an instance: to a waiting QEMU, to another host, or by a directory to this machine.

    Raises UsageError, UnavailableError, and RunError, which says whether the instance goes on.
    """
    host = LocalHost()
    external = find_external(host, instance)
    external.inspect(host)
    with _reached(host, external, to) as (target, remote):
        plan = planned(host, external, target, how, MIGRATE, remote)
        say(f"moving {plan.instance} by {plan.method} to {to}")
        if isinstance(external, Moves):
            done, images = (
                external.migrate(host, work_of(how, external, plan.method), target, plan.method),
                None,
            )
        else:
            done, images = _by_images(host, external, target, how, plan, remote)
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


def _by_images(
    host: Host, external: External, target: Target, how: How, plan: MovePlan, remote: SshHost | None
) -> tuple[MovedAway, str | None]:
    """Move by a checkpoint. Returns the directory of the images unless they were removed."""
    images = _images_of(target, how, plan)
    work, begin = work_of(how, external), time.monotonic()
    require_new(images)
    saved = _written(host, external, work, plan, images)
    size = write_saved(images, saved)
    if remote is None:
        try:
            now = external.restore(host, work, images.absolute(), saved)
        except RestoredError:
            raise
        except NearmetalError as e:
            raise RunError(
                f"{external.name} runs nowhere: {e.what}", where=e.where or str(images), remedy=e.remedy
            ) from e
        except KeyboardInterrupt as e:
            raise _interrupted(external, images) from e
    else:
        now = _on_remote(host, external, work, images.absolute(), saved, remote)
        shutil.rmtree(images)
    total = time.monotonic() - begin
    moved = MovedAway(now=now, total=total, downtime=total, sent=size)
    return moved, None if remote is not None else str(images)


def _written(host: Host, external: External, work: Work, plan: MovePlan, images: Path) -> Saved:
    """Write an instance to a new directory.

    If that fails, what was written is removed, unless it is complete.
    """
    with _removed_if_failed(images):
        try:
            own = external.checkpoint(host, work, images.absolute())
        except WrittenError as e:
            write_saved(images, Saved(name=external.name, method=plan.method, own=e.own))
            raise
    return Saved(name=external.name, method=plan.method, own=own)


def _interrupted(external: External, images: Path) -> RunError:
    return RunError(
        f"interrupted; whether {external.name} was restored already is not known",
        where=str(images),
        remedy=f"if it does not run: nearmetal restore {shlex.quote(str(images))}",
    )


def _on_remote(
    host: Host, external: External, work: Work, images: Path, saved: Saved, remote: SshHost
) -> str:
    """Copy images to another machine and restore there. If that fails, it is restored here."""
    there = None
    try:
        there = _sent(host, images, remote)
        now = external.restore(remote, work, there, saved)
    except KeyboardInterrupt as e:
        raise _interrupted(external, images) from e
    except RestoredError:
        raise
    except NearmetalError as e:
        if not remote.connected() or not remote.run(["true"], timeout=SECONDS).ok:
            raise RunError(
                f"the connection to {remote.name} is lost, and it is not known whether {external.name} "
                f"runs there: {e.what}",
                where=str(images),
                remedy=f"find out there; if it does not run: nearmetal restore {images}",
            ) from e
        try:
            back = external.restore(host, work, images, saved)
        except NearmetalError as second:
            raise RunError(
                f"{external.name} runs nowhere: {e.what}; and here: {second.what}",
                where=str(images),
                remedy=second.remedy,
            ) from e
        shutil.rmtree(images)
        raise RunError(
            f"{external.name} was not moved to {remote.name}, and continues here as {back}: {e.what}",
            remedy="the same programs, libraries and files there, and a free PID",
        ) from e
    finally:
        if there is not None and remote.connected():
            remote.run(["rm", "-r", "-f", str(there)], timeout=SECONDS)
    return f"{now} at {remote.name}"


def _sent(host: Host, images: Path, remote: SshHost) -> Path:
    """Copy a directory to a new one on another machine."""
    made = remote.run(["mktemp", "--directory", REMOTE], timeout=SECONDS)
    if not made.ok:
        raise RunError(f"no directory on {remote.name}: {made.failure()}")
    there = made.stdout.strip()
    unpack = shlex.join(remote.words(["tar", "--directory", there, "--extract", "--file", "-"]))
    pack = shlex.join(["tar", "--directory", str(images), "--create", "--file", "-", "."])
    # With pipefail, since a tar that cannot read a file here writes zeros, and the other one is content.
    done = host.run(["bash", "-o", "pipefail", "-c", f"{pack} | {unpack}"], timeout=SECONDS)
    if not done.ok:
        remote.run(["rm", "-r", "-f", there], timeout=SECONDS)
        raise RunError(f"the images are not copied to {remote.name}: {done.failure()}")
    return Path(there)


def _images_of(target: Target, how: How, plan: MovePlan) -> Path:
    if target.way is Way.DIRECTORY:
        return Path(target.text)
    if how.images is not None:
        return how.images
    name = re.sub(r"\W+", "-", plan.instance).strip("-")
    return user_state() / "nearmetal" / "checkpoints" / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}"


def _directory(to: Path) -> Target:
    return Target(way=Way.DIRECTORY, text=str(to))


@contextmanager
def _removed_if_failed(images: Path) -> Iterator[None]:
    """Remove torn images, and keep CRIU's logs, since the error names them."""
    try:
        yield
    except WrittenError:
        raise
    except BaseException:
        for file in images.iterdir():
            if file.suffix != ".log":
                file.unlink()
        if not any(images.iterdir()):
            images.rmdir()
        raise


@contextmanager
def _reached(host: Host, external: External, to: str) -> Iterator[tuple[Target, SshHost | None]]:
    """Open a connection to another host if images go there.

    Hypervisors that move by themselves make their own connection, and need none of ours.
    """
    target = Target.parse(to)
    if target.way is not Way.HOST or Way.HOST not in external.moves_by or isinstance(external, Moves):
        yield target, None
        return
    label = f"nearmetal-check-{os.getpid()}-move"
    with (
        scratch_directory(label) as scratch,
        ssh_host(host, SshWay(destination=target.text), label=label, scratch=scratch) as remote,
    ):
        yield target, remote
