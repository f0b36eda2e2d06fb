"""Bytes read from and written to disks per control group of version 1.

Since Linux 6.10 the blkio controller counts the bytes of a device only after some group has had a limit on
that device (block/blk-throttle.c). Until then it shows zero.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ACCOUNT = "blkio.throttle.io_service_bytes"
LIMIT = "blkio.throttle.read_bps_device"
NO_LIMIT = 1 << 50
"""1 PiB/s: a limit that cannot slow anything down while it is set."""


def devices(diskstats: str) -> tuple[str, ...]:
    """Parse /proc/diskstats and return 'major:minor' of every device that has done I/O."""
    rows = (line.split() for line in diskstats.splitlines())
    return tuple(f"{r[0]}:{r[1]}" for r in rows if len(r) > 7 and (r[3] != "0" or r[7] != "0"))


def counts_blocks(group: Path, root: Path) -> bool:
    """Return whether groups below this one count bytes to and from disks.

    If they do not, try to switch the counting on by setting and lifting a limit in a temporary group.

    root: root of another directory tree, for tests.
    """
    try:
        if _counts(group):
            return True
        with temporary_group(group) as child:
            for device in devices((root / "proc/diskstats").read_text()):
                # A partition or a device without a queue refuses; the disk it is part of does not.
                with contextlib.suppress(OSError), (child / LIMIT).open("r+b", buffering=0) as limit:
                    limit.write(f"{device} {NO_LIMIT}".encode())
                    limit.write(f"{device} 0".encode())
            return _counts(child)
    except OSError:
        return False


def _counts(group: Path) -> bool:
    """Return whether the group counts any device. A device has a line only if it is counted; the total always
    has one."""
    return ":" in (group / ACCOUNT).read_text()


@contextlib.contextmanager
def temporary_group(group: Path) -> Iterator[Path]:
    """Create a control group below another one, yield it, and remove it on exit. If this process is killed,
    clean-up finds the group by its name (labels.OURS).

    Raises OSError.
    """
    child = group / f"nearmetal-check-{os.getpid()}-accounts"
    child.mkdir()
    try:
        yield child
    finally:
        child.rmdir()
