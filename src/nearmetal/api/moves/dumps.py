"""Writes an instance of the user's own to images, and says what becomes of it if that fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...environments.external import (
    External,
    RestoredError,
    Saved,
    Work,
    WrittenError,
    again_line,
    describe,
    forget_restored,
    remove_images,
    sync_images,
    write_begun,
    write_restored,
    write_saved,
)
from ...errors import NearmetalError, RunError
from ...host import Host
from ...lifecycle import Method
from ...model.change import replace
from .hosts import RemoteImages, reason_of


def described(host: Host, external: External, method: Method) -> Saved:
    """Return the description of a checkpoint that is about to be made."""
    facts = external.inspect(host)
    machine = describe(host, facts.processes) if method.by_criu else {}
    return Saved(name=external.name, method=method, own=external.needs(host), machine=machine)


def write(host: Host, external: External, work: Work, saved: Saved, images: Path) -> float:
    """Write an instance to a new directory. Returns the monotonic time at which the last dump began. Until
    then the instance runs.

    If that fails, the images are removed, unless they are complete or the instance has ended.
    """
    frozen = time.monotonic()

    def round_written(directory: Path) -> None:
        nonlocal frozen
        work.round_written(directory)
        frozen = time.monotonic()

    try:
        with removed_if_failed(host, external, images):
            begin_checkpoint(images, saved)
            noting = replace(work, round_written=round_written)
            external.checkpoint(host, noting, images.absolute(), saved.method)
            _sync(host, external, images)
    except WrittenError as e:
        write_saved(images, saved)
        raise written(e, images) from e
    except (KeyboardInterrupt, OSError) as e:
        raise stopped_dump(host, external, images, why=e) from e
    return frozen


def _sync(host: Host, external: External, images: Path) -> None:
    """Flush all images to the disk: those of an instance that continues, and what was written after the end
    of one. Raises RunError."""
    try:
        sync_images(host, images)
    except RunError as e:
        if runs(host, external):
            raise RunError(
                f"no checkpoint of {external.name}, which continues: {e.what}", remedy=e.remedy
            ) from e
        raise RunError(
            f"{external.name} has ended, and {e.what}",
            where=str(images),
            remedy=f"before the machine stops: copy the directory to another disk, or {again(images, None)}",
        ) from e


def restore_noted(host: Host, external: External, work: Work, images: Path, saved: Saved) -> str:
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


def begin_checkpoint(images: Path, saved: Saved) -> None:
    """Write the description of a checkpoint that begins. Raises RunError if it cannot be written."""
    try:
        write_begun(images, saved)
    except OSError as e:
        raise RunError(
            f"no checkpoint of {saved.name}, which continues: {e.strerror}",
            where=str(images),
            remedy="a directory with room that can be written to",
        ) from e


def written(error: WrittenError, images: Path, there: RemoteImages | None = None) -> RunError:
    return RunError(error.what, where=str(images), remedy=f"when it has ended: {again(images, there)}")


def stopped_dump(
    host: Host,
    external: External,
    images: Path,
    there: RemoteImages | None = None,
    *,
    why: KeyboardInterrupt | OSError,
) -> RunError:
    """Return the error of a dump that Ctrl-C or an error of the file system has ended."""
    reason = reason_of(why)
    if runs(host, external):
        return RunError(f"{reason}; {external.name} continues")
    what = f"{reason}; {external.name} does not run"
    return RunError(what, where=str(images), remedy=again(images, there))


def interrupted(external: External, images: Path, there: RemoteImages | None = None) -> RunError:
    return RunError(
        f"interrupted; whether {external.name} was restored already is not known",
        where=str(images),
        remedy=f"if it does not run: {again(images, there)}",
    )


def again(images: Path, there: RemoteImages | None) -> str:
    """Return the command line that restores from images. If their memory is on the other machine only, the
    text also says what to copy."""
    copy = ""
    if there is not None and there.kept:
        copy = f"copy what is in {there.remote.name}:{there.path} there too, then "
    return f"{copy}{again_line(images)}"


@contextmanager
def removed_if_failed(host: Host, external: External, images: Path) -> Iterator[None]:
    """Remove incomplete images if the body fails. CRIU's logs are kept, since the error names them.

    If the instance has ended, nothing is removed, because the images may be all that is left of it.
    """
    try:
        yield
    except WrittenError:
        raise
    except BaseException:
        if runs(host, external):
            remove_images(images)
        raise


def runs(host: Host, external: External) -> bool:
    try:
        external.inspect(host)
    except NearmetalError:
        return False
    return True
