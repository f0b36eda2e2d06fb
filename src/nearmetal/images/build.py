"""Builds an image: runs mmdebstrap, removes files that were copied from this machine, and clamps time stamps
so that builds of one day are equal."""

from __future__ import annotations

import contextlib
import io
import math
import re
import shlex
import shutil
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ..errors import RunError, UnavailableError
from ..host import Host
from ..host.processes import labelled as processes
from ..host.removal import discard_tree, remove_tree
from ..host.untrusted import UntrustedDirectory
from ..model.environments.image import Expired, ImageDefinition
from .build_errors import disk_full, failure
from .digest import clamp_times, entries, tree_bytes, tree_digest
from .python_packages import NEEDED, pip_options, python_packages
from .sources import archive_lines, resolved_suite
from .store import Image, ImageStore, TreeDescription, definition_key, making_label

BUILD_SECONDS = 3600.0
#: Measured on two cores with a near archive: a bare tree, and each named package with those that it needs, of
#: Debian and of PyPI.
_BASE_SECONDS, _PACKAGE_SECONDS, _PIP_SECONDS = 30.0, 10.0, 40.0
HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
#: Files that mmdebstrap copies from this machine.
OF_THIS_MACHINE = ("etc/resolv.conf", "etc/hostname")
ARCHIVES = "var/cache/apt/archives"
_DPKG_STATUS, _DPKG_LIMIT = "var/lib/dpkg/status", 32 << 20
"""The list of installed packages, and its largest size: more than a thousand bytes for each of 30,000."""
#: A line of mmdebstrap's log that names the current step.
_STEP = re.compile(r"^I: (.*?)\.*$", re.MULTILINE)
_LOOK_AGAIN = 0.1
#: Least free bytes on a disk; a download may fill it between two checks.
_NEARLY_FULL = 16 << 20
#: Seconds for which a build on a nearly full disk may print nothing. "apt-get update" can wait for ever for
#: a helper that met the full disk.
_SILENT_SECONDS = 60.0


def build(
    host: Host, store: ImageStore, definition: ImageDefinition, *, progress: Callable[[str], None]
) -> Image:
    """Return the image of a definition. It is built if the store does not contain it.

    progress: is called with a message at every step.
    Raises UnavailableError if this machine cannot build images, BusyError while another process builds this
    image, DiskFullError, and RunError with the error of the failed step. A failed build leaves nothing but
    the packages that it has downloaded, for the next attempt.
    """
    key = definition_key(definition, resolved_suite(host, definition))
    found = store.find(definition.name, key)
    if found is not None:
        store.point(definition.name, key)
        return found
    require_builder(host)
    with store.making(definition.name, key) as work:
        epoch = today()
        progress(f"image {definition.name}: asking which archives there are")
        tree, log = work / "tree", work / "build.log"
        kept = store.directory / "packages" / key
        argv = build_argv(host, definition, work, kept, resolved_suite(host, definition))
        try:
            _run(host, definition.name, argv, log, making_label(key), epoch, progress)
        finally:
            _keep_packages(tree, kept)
        if not host.is_root():
            _unpack(host, definition.name, work)
        progress(f"image {definition.name}: computing the digest")
        image = store.adopt(definition.name, key, work, finished(tree, definition.suite, epoch))
        discard_tree(kept)
        return image


def build_seconds(definition: ImageDefinition) -> float:
    """Return the estimated time of a build in seconds, from the number of packages in the definition."""
    named = _PACKAGE_SECONDS * len(definition.packages) + _PIP_SECONDS * len(definition.pip)
    return _BASE_SECONDS + named


def today() -> int:
    """Return the last midnight UTC in Unix seconds: the latest time stamp of files in an image that is
    built."""
    return int(time.time()) // 86400 * 86400


def require_builder(host: Host) -> None:
    """Check that mmdebstrap can run.

    Raises UnavailableError if it cannot.
    """
    if host.which("mmdebstrap") is None:
        raise UnavailableError("mmdebstrap is not installed", remedy="apt-get install mmdebstrap")
    if not host.is_root() and host.which("newuidmap") is None:
        raise UnavailableError(
            "without root, images are built in a user namespace, which needs newuidmap",
            remedy="apt-get install uidmap, or run as root",
        )


def wanted_packages(definition: ImageDefinition) -> tuple[str, ...]:
    """Return the packages that a build asks for, each once: those of the definition, and those that pip needs
    if there are Python packages."""
    return tuple(dict.fromkeys((*definition.packages, *(NEEDED if definition.pip else ()))))


def build_argv(host: Host, definition: ImageDefinition, work: Path, kept: Path, suite: str) -> list[str]:
    """Return the command line that builds the tree of an image: work/tree for root, work/tree.tar for other
    users.

    kept: directory with packages that an earlier attempt has downloaded.
    suite: name of the suite, from resolved_suite().
    """
    root = host.is_root()
    options = [f"--variant={definition.variant}", f"--format={'directory' if root else 'tar'}"]
    if wanted := wanted_packages(definition):
        options.append(f"--include={','.join(wanted)}")
    options += pip_options(definition.pip)
    if packages := shlex.join(map(str, sorted(kept.glob("*.deb")))):  # trusted: of the store
        options += [f'--setup-hook=mkdir -p "$1"/{ARCHIVES}', f"--setup-hook=copy-in {packages} /{ARCHIVES}"]
    if definition.expired is Expired.ACCEPT:
        options.append('--aptopt=Acquire::Check-Valid-Until "false"')
    target = work / ("tree" if root else "tree.tar")
    # All processes of the build die with nearmetal. As root, they are in a PID namespace, so none can escape.
    guard = ["setpriv", "--pdeathsig", "KILL", "--"]
    if root:
        guard += ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    mode = f"--mode={'root' if root else 'unshare'}"
    return [*guard, "mmdebstrap", mode, *options, suite, str(target), *archive_lines(host, definition)]


def _run(
    host: Host, name: str, argv: list[str], log: Path, label: str, epoch: int, progress: Callable[[str], None]
) -> None:
    # INITRD: kernel packages make no initramfs (initramfs-tools); nearmetal makes one for each guest.
    env = {"SOURCE_DATE_EPOCH": str(epoch), "LC_ALL": "C", "INITRD": "No", processes.LABEL_VARIABLE: label}
    process = host.start(argv, stdout=log, stderr=log, env=env, cwd=Path("/"))
    end, shown, full_since = time.monotonic() + BUILD_SECONDS, "", math.inf
    try:
        while (code := process.poll()) is None:
            now, steps = time.monotonic(), _STEP.findall(_read_log(log))
            if steps and steps[-1] != shown:
                shown, full_since = steps[-1], math.inf
                progress(f"image {name}: {shown}")
            if shutil.disk_usage(log.parent).free < _NEARLY_FULL:
                full_since = min(full_since, now)
            if now > full_since + _SILENT_SECONDS:
                raise disk_full(name, "not built")
            if now > end:
                raise RunError(f"image {name}: not built within {BUILD_SECONDS:g} s, at: {shown}")
            time.sleep(_LOOK_AGAIN)
    finally:
        process.kill()
    if code != 0:
        remedy = "check the names of suite and packages, and whether the archive can be reached"
        raise failure(name, "not built", Path(argv[0]).name, code, _read_log(log), remedy)


def _read_log(log: Path) -> str:
    return log.read_text(errors="replace")  # trusted: of mmdebstrap, outside of the tree


def _keep_packages(tree: Path, kept: Path) -> None:
    """Move the packages that a failed build has downloaded to a directory for the next attempt. After a
    complete build, mmdebstrap has removed them."""
    root = UntrustedDirectory(tree, as_root=True)
    with contextlib.suppress(OSError):
        found = [name for name in root.names(ARCHIVES) if name.endswith(".deb")]
        if found:
            kept.mkdir(parents=True, exist_ok=True)
        for name in found:
            (root.real_path(ARCHIVES) / name).rename(kept / name)


def _unpack(host: Host, name: str, work: Path) -> None:
    """Unpack work/tree.tar to work/tree, for users other than root. All files then belong to this user, who
    is root of the instances' user namespace."""
    (work / "tree").mkdir()
    argv = ["tar", "--extract", "--file", str(work / "tree.tar"), "--directory", str(work / "tree")]
    done = host.run(
        [*argv, "--no-same-owner", "--same-permissions", "--exclude=./dev/*"],
        timeout=BUILD_SECONDS,
        env={"LC_ALL": "C"},
    )
    if not done.ok:
        raise failure(name, "not unpacked", argv[0], done.returncode, done.stderr)
    (work / "tree.tar").unlink()


def finished(tree: Path, origin: str, epoch: int | None) -> TreeDescription:
    """Complete a new tree, and return its description.

    Devices are removed, and /etc/hosts is written if it is missing. In a tree that was built here, files that
    were copied from this machine are removed, and time stamps are clamped.

    origin: as in TreeDescription.
    epoch: latest time stamp of files in the tree, in Unix seconds; None for a tree that was not built here.
    Raises OSError for a tree that cannot be completed or read in a reasonable time.
    """
    root = UntrustedDirectory(tree, as_root=True)
    if epoch is not None:
        for name in OF_THIS_MACHINE:
            root.unlink(name)
    remove_devices(tree)
    if root.stat("etc/hosts") is None:
        root.make_directory("etc")
        root.unlink("etc/hosts")  # a link to nothing
        root.write_bytes("etc/hosts", HOSTS.encode(), 0o644)
    if epoch is not None:
        clamp_times(tree, epoch)
    return TreeDescription(
        digest=tree_digest(tree),
        origin=origin,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        size=tree_bytes(tree),
        packages=(*packages(tree), *python_packages(tree)),
    )


def remove_devices(tree: Path) -> None:
    """Remove everything in /dev of a tree, and device nodes in other directories. Instances get devices of
    their own, and a device in a tree would give access to the machine's hardware."""
    dev = tree / "dev"
    if dev.is_dir() and not dev.is_symlink():
        for path in dev.iterdir():  # trusted: no link, and nothing is read
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink()
    for _, entry in entries(tree):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            Path(entry.path).unlink()


def packages(tree: Path) -> tuple[str, ...]:
    """Return 'name version' of each package that is installed in a tree by dpkg, sorted; empty without a
    readable list of dpkg."""
    try:
        text = UntrustedDirectory(tree, as_root=True).read_bytes(_DPKG_STATUS, _DPKG_LIMIT)
    except OSError:
        return ()
    found, fields = [], dict[str, str]()
    for line in io.TextIOWrapper(io.BytesIO(text + b"\n\n"), "utf-8", "replace"):
        name, divider, value = line.rstrip("\n").partition(": ")
        if name in ("Package", "Status", "Version") and divider:
            fields[name] = value
        elif line == "\n":
            if fields.get("Status", "").endswith(" installed"):
                found.append(f"{fields.get('Package', '')} {fields.get('Version', '')}")
            fields = {}
    return tuple(sorted(found))
