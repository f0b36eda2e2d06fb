"""Files of a run on a machine that is reached by ssh: its scratch directory, and copies of the user's own
files."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from ..errors import RunError, UnavailableError
from ..host import Host
from ..host.cpio import Member

SECONDS = 60.0
"""Time limit of one command."""
_MAKE = """
umask 077
[ -e "$1" ] || [ -L "$1" ] || mkdir "$1" 2>/dev/null
own=$(find "$1" -prune -type d -user "$(id -u)" ! -perm -0020 ! -perm -0002) || exit 2
[ "$own" = "$1" ] || exit 77
[ ! -e "$2" ] || exit 78
exec mkdir "$2"
"""
_NOT_OURS, _THERE_ALREADY = 77, 78
_OWN = """
while IFS= read -r path; do
    find "$path" -prune -user "$(id -u)" ! -perm -0002
done
"""
_LOOK = """
while IFS= read -r path; do
    if [ -e "$path" ] || [ -L "$path" ]; then echo there; else echo missing; fi
done
"""


def make_scratch(there: Host, scratch: Path) -> None:
    """Make the scratch directory of a run on a machine, and its parent if that is missing.

    The parent may be in /tmp, where anybody can make files. What is run from it must be the user's own.

    Raises UnavailableError if the parent is not a directory that only this user can change, and RunError.
    """
    parent = str(scratch.parent)
    done = there.run(["sh", "-c", _MAKE, "sh", parent, str(scratch)], timeout=SECONDS)
    if done.returncode == _NOT_OURS:
        raise UnavailableError(
            f"{parent} there is not a directory that only this user can change", remedy=f"remove {parent}"
        )
    if done.returncode == _THERE_ALREADY:
        raise UnavailableError(
            "it is the same machine as another node of this run", remedy="name each machine once"
        )
    done.require()


class Copies:
    """Copies of this machine's files on another machine, outside of the run's scratch directory. What was
    there before is never changed."""

    def __init__(self, there: Host, name: str) -> None:
        """name: name of the machine in messages."""
        self._there, self._name = there, name
        self._tops, self._files, self._directories = set[Path](), set[Path](), set[Path]()

    def new(self, paths: Iterable[Path]) -> list[Path]:
        """Return those paths that were in no earlier call, without duplicates."""
        found = [path for path in dict.fromkeys(paths) if path not in self._tops]
        self._tops.update(found)
        return found

    def wanted(self, tops: Sequence[Path], members: Sequence[Member]) -> list[Member]:
        """Return the members that have to be copied, and remember them for remove().

        tops: the paths of new() from which the members were collected.

        Raises UnavailableError if a file exists there with other contents, or if other users can change one
        of the paths there, and RunError.
        """
        at = [Path("/", member.name) for member in members]
        above = [path for top in tops for path in top.parents]
        missing = self._missing(dict.fromkeys([*above, *at]))
        self._check_owner([top for top in tops if top in at and top not in missing])
        self._directories.update(path for path in above if path in missing)
        files = [
            (path, member.data)
            for path, member in zip(at, members, strict=True)
            if stat.S_ISREG(member.mode) and path not in missing
        ]
        changed = self._changed(files)
        wanted = []
        for path, member in zip(at, members, strict=True):
            if path in missing or path in changed:
                (self._directories if stat.S_ISDIR(member.mode) else self._files).add(path)
                wanted.append(member)
        return wanted

    def remove(self) -> None:
        """Remove the copies, and the directories that were made for them and are empty now."""
        deepest = sorted(self._directories, key=lambda path: -len(path.parts))
        for argv, paths in (
            (["rm", "-f", "--"], sorted(self._files)),
            (["rmdir", "--ignore-fail-on-non-empty", "--"], deepest),
        ):
            if paths:
                names = "".join(f"{path}\0" for path in paths)
                self._there.run(["xargs", "-0", *argv], timeout=SECONDS, stdin=names)

    def _check_owner(self, paths: Sequence[Path]) -> None:
        """Check that only this user can change what is at these paths, since programs are run from there."""
        if not paths:
            return
        done = self._there.run(
            ["sh", "-c", _OWN], timeout=SECONDS, stdin="".join(f"{p}\n" for p in paths)
        ).require()
        foreign = [path for path in paths if str(path) not in done.stdout.splitlines()]
        if foreign:
            raise UnavailableError(
                f"{foreign[0]} on {self._name} belongs to another user, or all users may change it",
                remedy=f"remove it there, or work in a directory that {self._name} does not have",
            )

    def _missing(self, paths: Iterable[Path]) -> set[Path]:
        names = [str(path) for path in paths]
        if odd := next((name for name in names if "\n" in name), None):
            raise RunError(f"{odd!r} is not copied: a newline in its name", remedy="rename it")
        done = self._there.run(["sh", "-c", _LOOK], timeout=SECONDS, stdin="".join(f"{n}\n" for n in names))
        answers = done.stdout.splitlines()
        if not done.ok or len(answers) != len(names):
            raise RunError(done.failure())
        return {Path(name) for name, answer in zip(names, answers, strict=True) if answer == "missing"}

    def _changed(self, files: Sequence[tuple[Path, bytes]]) -> set[Path]:
        """Return the files that were copied earlier and now differ from this machine's.

        Raises UnavailableError if a file that was not copied from here has other contents.
        """
        if not files:
            return set()
        sums = "".join(f"{sha256(data).hexdigest()} *{path}\n" for path, data in files)
        done = self._there.run(["sha256sum", "--check"], timeout=SECONDS, stdin=sums, env={"LC_ALL": "C"})
        answers = done.stdout.splitlines()
        if len(answers) != len(files):
            raise RunError(done.failure())
        changed = set()
        for (path, data), answer in zip(files, answers, strict=True):
            if answer.endswith(": OK"):
                continue
            if path in self._files:
                changed.add(path)
            elif _still(path, data):  # else it is being written, such as the records of this run
                raise UnavailableError(
                    f"{path} on {self._name} is another file than here",
                    remedy=f"remove it there, or work in a directory that {self._name} does not have",
                )
        return changed


def _still(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False
