"""The working directory of the user's programs, as every run of them finds it.

A program that writes there would find its own files in the next run. It gets a copy of the directory on the
same file system, which is bound over the directory and reset before each run, on bare metal too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path, PurePath

from ..environments import Bind, Tools
from ..errors import RunError, TrialFailedError
from ..host import Host
from ..host.mounts import own_mounts
from ..host.namespaces import detach, mount
from ..host.outside import outside_directory, refused_parent
from ..host.removal import discard_tree
from ..model.record import JsonValue
from ..units import show
from .reset_tree import Mark, ResetTree, mark_of, walk

MOST_ENTRIES, MOST_BYTES = 50_000, 4 << 30
"""Size of the largest directory that is copied, if a quarter of the free space is not less."""
_NAMED = 5
"""Number of written files that a note names."""


class View(StrEnum):
    """How the programs of a run see their working directory.

    DIRECTORY: itself, since no program writes there. COPY: a copy that is reset before each run. SHARED:
    itself, and each run finds what the runs before have written.
    """

    DIRECTORY = "directory"
    COPY = "copy"
    SHARED = "shared"


class WorkingDirectory:
    """The working directory of a run on one machine, and its view. Everything is removed when `stack` is
    closed.

    path: the directory.
    view: how programs see it, as far as it is known.
    written: names that programs were seen to write there.
    """

    def __init__(self, host: Host, tools: Tools, path: Path, label: str, stack: ExitStack) -> None:
        self.path = path
        self.view = View.DIRECTORY
        self.written: tuple[str, ...] = ()
        self._host, self._tools, self._label, self._stack = host, tools, label, stack
        self._tree: ResetTree | None = None

    @property
    def source(self) -> Path:
        """The directory that is bound at `path`."""
        return self.path if self._tree is None else self._tree.tree

    @property
    def views(self) -> tuple[Bind, ...]:
        """What is bound over the directory: the copy, if there is one."""
        return () if self._tree is None else (Bind(self.source, self.path),)

    @property
    def over(self) -> tuple[str, ...]:
        """Options of `nm-box enter` by which a command on bare metal sees the view; empty if it is the
        directory itself."""
        return () if self._tree is None else ("--bind", str(self.source), "--at", str(self.path))

    def record(self) -> dict[str, JsonValue]:
        """Return the view and the names that were written, for the description of a run."""
        return {"path": str(self.path), "view": self.view.value, "written": list(self.written)}

    def prepare(self) -> None:
        """Bring the directory into the state in which each run begins.

        Raises TrialFailedError if this fails.
        """
        if self._tree is None:
            return
        try:
            self._tree.reset()
        except (RunError, OSError) as e:
            raise TrialFailedError(f"{self.path} cannot be made as it was before the run: {e}") from e

    def reopen(self, known: Mapping[str, JsonValue], hidden: Path) -> None:
        """Show the view that the run had before it was interrupted.

        known: result of record(); empty for a run of an older version.
        hidden: directory that programs do not see.
        Raises RunError if a copy is needed and cannot be made.
        """
        written = known.get("written")
        self.written = tuple(str(name) for name in written) if isinstance(written, list) else ()
        self.view = View(str(known.get("view", View.SHARED)))
        if self.view is View.COPY:
            try:
                self._tree = self._copy(self._stack, hidden)
            except OSError as e:
                raise RunError(f"{self.path} cannot be copied: {e.strerror}") from e

    def choose(self, run: Callable[[Sequence[str]], None], hidden: Path) -> str:
        """Let programs run once, see whether they write to the directory, and choose the view accordingly.

        run: runs the programs; called once, with a command prefix.
        hidden: directory that programs do not see, such as that of the results.
        Returns a note for the user; empty if each run begins in the same state.
        """
        with ExitStack() as trial:
            prefix, written = self._watched(trial, hidden)
            run(prefix)
            self.written = written()
            if self.written and self._tree is not None:
                self._stack.enter_context(trial.pop_all())
        if not self.written:
            self._tree = None
            return ""
        why = "only root can show them a copy; run as root, or give them their `files`"
        if self._host.is_root() and self._tree is None:
            try:
                self._tree = self._copy(self._stack, hidden)
            except (RunError, OSError) as e:
                why = str(e)
        self.view = View.SHARED if self._tree is None else View.COPY
        if self.view is View.COPY:
            return ""
        names = ", ".join(self.written[:_NAMED]) + (", ..." if len(self.written) > _NAMED else "")
        return f"each run finds what the runs before it have written to {self.path} ({names}): {why}"

    def _watched(self, trial: ExitStack, hidden: Path) -> tuple[Sequence[str], Callable[[], tuple[str, ...]]]:
        """Return a command prefix, and a function that returns what commands with it have written."""
        if self._host.is_root():
            if (layer := self._overlay(trial)) is not None:
                over = ("--bind", str(layer / "merged"), "--at", str(self.path))
                return self._enter(*over), partial(self._in_layer, layer / "upper")
            with suppress(RunError, OSError):
                tree = self._tree = self._copy(trial, hidden)
                return self._enter(*self.over), lambda: tuple(n for n in tree.reset() if n != ".")
        before = self._marks()
        return (), lambda: tuple(n for n, mark in self._marks().items() if before.get(n) != mark)

    def _in_layer(self, upper: Path) -> tuple[str, ...]:
        """Return what the upper layer of an overlay holds, except directories that exist below it."""
        found = sorted(walk(upper))
        return tuple(n for n, s in found if not (stat.S_ISDIR(s.st_mode) and (self.path / n).is_dir()))

    def _enter(self, *options: str) -> tuple[str, ...]:
        box = self._tools / "nm-box"
        return (box, "enter", "--pid", "0", "--label", self._label, *options, "--")

    def _marks(self) -> dict[str, Mark]:
        found: dict[str, Mark] = {}
        with suppress(OSError), closing(walk(self.path)) as everything:
            for name, status in islice(everything, MOST_ENTRIES):
                found[name] = mark_of(status)
        return {name: mark for name, mark in found.items() if not mark.is_directory}

    def _too_large(self) -> str | None:
        """Return why the directory is not copied; None if it may be."""
        free = os.statvfs(self.path)
        most = min(MOST_BYTES, free.f_bavail * free.f_frsize // 4)
        size = 0
        with closing(walk(self.path)) as everything:
            for entries, (_, status) in enumerate(everything, 1):
                size += status.st_blocks * 512
                if entries > MOST_ENTRIES:
                    return f"it has more than {MOST_ENTRIES} files, too many to copy"
                if size > most:
                    return f"it has more than {show(most, 'B', binary=True)}, too much to copy"
        return None

    def _copy(self, stack: ExitStack, hidden: Path) -> ResetTree:
        """Copy the directory. Raises RunError, OSError."""
        if (why := self._too_large()) is not None:
            raise RunError(why)
        place = stack.enter_context(self._place())
        paths = [p for p in (hidden, place) if p != self.path and p.is_relative_to(self.path)]
        tree = ResetTree(
            host=self._host,
            original=self.path,
            place=place,
            hidden=tuple(PurePath(p.relative_to(self.path)) for p in paths),
        )
        tree.fill()
        return tree

    @contextmanager
    def _place(self, suffix: str = "view", *, within: bool = True) -> Iterator[Path]:
        """Make a directory on the file system of the working directory, beside it or, if that is not
        possible, in it.

        Raises RunError if there is no such place.
        """
        device, above = self.path.stat().st_dev, self.path.parent
        tried = [above] if above.stat().st_dev == device and refused_parent(above) is None else []
        for parent in (*tried, *([self.path] if within else [])):
            with ExitStack() as stack:
                try:
                    place = stack.enter_context(outside_directory(parent / f"{self._label}-{suffix}"))
                except RunError:
                    continue
                yield place
                return
        raise RunError(f"no directory can be made beside {self.path}")

    def _overlay(self, stack: ExitStack) -> Path | None:
        """Mount an overlay over the directory, until the stack is closed. Its upper layer then tells what was
        written. Return the parent of 'merged' and 'upper'; None if this file system holds no overlay."""
        if any(m.point != str(self.path) and Path(m.point).is_relative_to(self.path) for m in own_mounts()):
            return None  # an overlay does not show what is mounted below
        with ExitStack() as own:
            try:
                place = own.enter_context(self._place("hand", within=False))
                for name in ("upper", "work", "merged"):
                    (place / name).mkdir()
                _like(self.path, place / "upper")
                with _opened(self.path) as lower, _opened(place) as own_place:
                    options = f"lowerdir={lower},upperdir={own_place}/upper,workdir={own_place}/work"
                    mount("overlay", place / "merged", "overlay", options=options)
                own.callback(discard_tree, place / "work")
                own.callback(detach, place / "merged")
            except (RunError, OSError):
                return None
            stack.enter_context(own.pop_all())
        return place


@contextmanager
def _opened(directory: Path) -> Iterator[str]:
    """Yield a path of a directory in which an overlay finds no colon and no comma."""
    fd = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _like(original: Path, directory: Path) -> None:
    status = original.stat()
    os.chown(directory, status.st_uid, status.st_gid)
    directory.chmod(stat.S_IMODE(status.st_mode))
