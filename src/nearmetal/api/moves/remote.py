"""Moves an instance to another machine, by images or by memory that CRIU sends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ...environments.criu import PAGE_SERVER_LOG
from ...environments.criu_images import memory_sent
from ...environments.external import (
    Dumps,
    External,
    MovedAway,
    RestoredError,
    Saved,
    Work,
    WrittenError,
    require_new,
    sizes_of,
    sync_images,
    take_back,
    write_handed_over,
    write_images,
    write_saved,
)
from ...errors import NearmetalError, RunError
from ...host import Host
from ...host.removal import discard_tree
from ...host.ssh import SshHost
from ...lifecycle import Method
from ...model.change import replace
from .dumps import (
    again,
    begin_checkpoint,
    described,
    interrupted,
    removed_if_failed,
    restore_noted,
    runs,
    stopped_dump,
    write,
    written,
)
from .hosts import RemoteImages, images_on, move_lazily, reason_of
from .locks import only_one_of
from .plans import ASK_SECONDS, MoveOptions, MovePlan, work_of


def move_to_host(
    host: Host,
    external: External,
    images: Path,
    how: MoveOptions,
    plan: MovePlan,
    remote: SshHost,
    warn: Callable[[str], object],
) -> MovedAway:
    """Move an instance to another machine, by images or by memory that CRIU sends. The images on this machine
    are removed.

    images: new directory for the images on this machine.
    warn: called with a message for the user if the move goes on in spite of Ctrl-C, or leaves files there.
    """
    images = images.absolute()
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
                now = restore_on_remote(host, external, work, images, saved, there)
                stopped = time.monotonic() - frozen
            size = sizes_of(images) + memory_sent(images, saved.method)
        discard_tree(images)
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
                server = there.serve_pages(work.criu(there.remote), images / PAGE_SERVER_LOG)
                write_handed_over(images, there.remote.name, there.path)  # it says where the memory is
                frozen = time.monotonic()
                ending = replace(work, before_end=there.sync_words())
                write_images(external, host, ending, images, saved.method, server=server.fileno())
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


def restore_on_remote(
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
            back = restore_noted(host, external, work, images, saved)
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
    discard_tree(images)
    return back
