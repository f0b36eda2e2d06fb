"""Pre-copy by CRIU in a guest whose kernel tracks writes to memory, since that of the machine may not."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.guests import HOST, NEEDED, QEMU, SMALL, kernel, request
from tests.patience import PATIENCE
from tests.system.checkpoint_case import find_or_build_criu

from nearmetal.environments import Criu, Dump, GuestBase, Tools, Unavailable
from nearmetal.environments.criu import dump_argv, restore_argv, write_rounds
from nearmetal.environments.criu_images import first_error, statistics_of
from nearmetal.environments.guests.guest import GuestInstance
from nearmetal.environments.guests.initramfs import USUAL, initramfs
from nearmetal.host import Completed
from nearmetal.host.runtime import scratch_directory

pytestmark = [pytest.mark.apart, pytest.mark.beside, *NEEDED]
MEMORY, WRITTEN = 32 << 20, 1 << 20
"""Bytes that the program has, and of these that it writes to again and again."""
OPTIONS = ("--shell-job", "--ext-unix-sk")
MODULES = (
    *("inet_diag", "tcp_diag", "udp_diag", "unix_diag", "netlink_diag", "af_packet_diag"),
    *("nfnetlink", "nf_tables", "tun", "veth"),
)
"""What CRIU asks of a kernel besides."""


@pytest.fixture(scope="module")
def guest(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestInstance]:
    directory = tmp_path_factory.mktemp("precopy")
    vmlinuz, modules = kernel()
    archive = initramfs(directory, modules, tools, (*USUAL, *MODULES))
    of = GuestBase(kernel=vmlinuz, initramfs=archive, root=None, cache=directory)
    asked = request("precopy", of, directory, SMALL)
    with scratch_directory(f"{asked.label}-run"), QEMU.start(HOST, tools, asked) as made:
        yield made


@pytest.fixture(scope="module")
def criu() -> Criu:
    found = find_or_build_criu()
    if isinstance(found, Unavailable):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{found.reason}; {found.remedy}")
    return found


def run(guest: GuestInstance, *argv: str) -> Completed:
    return HOST.run(guest.command(argv), timeout=PATIENCE)


def test_memory_is_written_in_rounds_and_restored(
    guest: GuestInstance, criu: Criu, tools: Tools, tmp_path: Path
) -> None:
    """The second round holds what was written to since the first, not all of the memory."""
    images, record = tmp_path / "i", tmp_path / "record"
    able = run(guest, *criu.argv, "check", "--feature", "mem_dirty_track")
    assert able.ok, able.stderr
    assert run(guest, "mkdir", "-p", str(images)).ok
    images.mkdir()

    def steps() -> tuple[int, ...]:
        guest.copy_out([record])
        found = record.read_bytes() if record.exists() else b""
        return struct.unpack("=5Q", found) if found else (0,) * 5  # it is empty before the first step

    def wait_beyond(before: int) -> tuple[int, ...]:
        end = time.monotonic() + PATIENCE
        while (found := steps())[0] <= before:
            assert time.monotonic() < end, f"no more than {found} steps"
        return found

    start = 'setsid "$@" </dev/null >/dev/null 2>&1 & echo $!'
    keeper = [tools / "nm-keeper", str(MEMORY), str(record), str(WRITTEN), "0"]
    pid = int(run(guest, "sh", "-c", start, "sh", *keeper).stdout)
    wait_beyond(0)
    written = []

    def directory(number: int) -> Path:
        made = images / f"round-{number}"
        made.mkdir()
        assert run(guest, "mkdir", str(made)).ok
        return made

    def write(dump: Dump) -> None:
        done = run(guest, *dump_argv(criu, pid, dump, OPTIONS))
        guest.copy_out([dump.images / "stats-dump", dump.images / "dump.log"])
        assert done.ok, first_error(dump.images / "dump.log") or done.failure()
        written.append(statistics_of(dump.images).written)

    last, sizes = write_rounds(directory, write)
    assert sizes == written and len(sizes) >= 2 and written[0] >= MEMORY
    assert written[1] <= MEMORY // 4, f"rounds of {written} bytes"
    write(Dump(images=images, previous=last, tracked=True))
    assert written[-1] <= MEMORY // 4
    before = steps()[0]
    assert not run(guest, "test", "-d", f"/proc/{pid}").ok
    done = run(guest, *restore_argv(criu, images, ["--restore-detached", *OPTIONS]))
    guest.copy_out([images / "restore.log"])
    assert done.ok, first_error(images / "restore.log") or done.failure()
    after = wait_beyond(before)
    assert after[2] == 0 and after[4] == 0, f"wrong pages, or two copies: {after}"
