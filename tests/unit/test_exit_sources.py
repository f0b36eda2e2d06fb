"""Why KVM left a guest: its statistics as a source of counters."""

from __future__ import annotations

import os
from pathlib import Path

from nearmetal.host import LocalHost
from nearmetal.host.counters.sources import exit_sources
from nearmetal.model.scope import EXITS, Scope

VM = Scope(kind=EXITS, name="vm")


def test_the_statistics_of_the_one_virtual_machine_are_read(tmp_path: Path) -> None:
    """Its CPUs are threads of the process that it is named after, which need not be the one we started."""
    own = os.getpid()
    for machine in ("1-9", f"{own}-11", f"{own}0-x"):
        (tmp_path / machine).mkdir()
    for name, text in (("exits", "1203\n"), ("io_exits", "17\n"), ("mmio_exits", "none\n"), ("other", "5")):
        (tmp_path / f"{own}-11" / name).write_text(text)
    (source,) = exit_sources(VM, LocalHost(), (own,), tmp_path)
    assert source.scope == VM
    assert source.read() == {"exits": 1203.0, "io_exits": 17.0}


def test_no_source_without_exit_counters(tmp_path: Path) -> None:
    for threads in ((), (os.getpid(),), (1 << 30,)):
        assert exit_sources(VM, LocalHost(), threads, tmp_path) == ()
        assert exit_sources(VM, LocalHost(), threads, tmp_path / "absent") == ()
