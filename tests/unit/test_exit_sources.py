"""Why KVM left a guest: its statistics as a source of counters."""

from __future__ import annotations

from pathlib import Path

from nearmetal.host import LocalHost
from nearmetal.host.sources import exit_sources


def test_the_statistics_of_the_one_virtual_machine_are_read(tmp_path: Path) -> None:
    for machine in ("41-9", "412-11", "412-x"):
        (tmp_path / machine).mkdir()
    for name, text in (("exits", "1203\n"), ("io_exits", "17\n"), ("mmio_exits", "none\n"), ("other", "5")):
        (tmp_path / "412-11" / name).write_text(text)
    (source,) = exit_sources("exits.vm", LocalHost(), 412, tmp_path)
    assert source.name == "exits.vm"
    assert source.read() == {"exits": 1203.0, "io_exits": 17.0}


def test_where_there_are_none_there_is_no_source(tmp_path: Path) -> None:
    assert exit_sources("exits.vm", LocalHost(), 412, tmp_path) == ()
    assert exit_sources("exits.vm", LocalHost(), 412, tmp_path / "absent") == ()
