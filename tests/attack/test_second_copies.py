"""Domains that their machine starts at boot: after a move or a checkpoint it must not start a second copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.environments.external import RestoredError, Saved, Target, Work, find_external
from nearmetal.environments.external.contract import Moves
from nearmetal.errors import RunError
from nearmetal.host import Completed, LocalHost
from nearmetal.lifecycle import Method
from nearmetal.testing.fake_host import FakeHost

pytestmark = pytest.mark.attack
HERE, THERE = (
    ("virsh", "--quiet", "--connect", uri) for uri in ("qemu:///system", "qemu+ssh://node7/system")
)
WORK = Work(criu=lambda _: pytest.fail("no CRIU is needed"))
REFUSED = Completed(argv=(), returncode=1, stdout="", stderr="error: Failed\nerror: no", seconds=0.0)


def host(persistent: bool, autostart: bool, *more: tuple[tuple[str, ...], str | Completed]) -> FakeHost:
    lines = [
        "State: running",
        "Used memory: 1024 KiB",
        f"Persistent: {'yes' if persistent else 'no'}",
        f"Autostart: {'enable' if autostart else 'disable'}",
    ]
    answers: dict[tuple[str, ...], str | Completed] = {(*HERE, "dominfo", "vm"): "\n".join(lines)}
    return FakeHost(commands={**answers, **dict(more)}, programs={"virsh": "/usr/bin/virsh"})


@pytest.fixture(autouse=True)
def default_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI", raising=False)


def migrate_command(*options: str) -> tuple[str, ...]:
    return (*HERE, "migrate", *options, "vm", "qemu+ssh://node7/system")


def moved(machine: FakeHost) -> str:
    vm = find_external(machine, "libvirt:vm")
    assert isinstance(vm, Moves)
    warning = vm.migrate(machine, WORK, Target.parse("node7"), Method.OFFLINE).warning
    assert not machine.never_used()
    return warning


ALWAYS = (
    ((*HERE, "migrate-setmaxdowntime", "vm", "300"), ""),
    ((*HERE, "domjobinfo", "--completed", "vm"), ""),
)


def test_the_definition_of_a_domain_moves_with_it() -> None:
    assert moved(host(True, False, *ALWAYS, (migrate_command("--persistent", "--undefinesource"), ""))) == ""


def test_a_transient_domain_stays_transient() -> None:
    assert moved(host(False, False, *ALWAYS, (migrate_command(), ""))) == ""


@pytest.mark.parametrize("refused", [False, True])
def test_the_other_host_starts_the_domain_at_boot_from_then_on(refused: bool) -> None:
    there = ((*THERE, "autostart", "vm"), REFUSED if refused else "")
    machine = host(True, True, *ALWAYS, (migrate_command("--persistent", "--undefinesource"), ""), there)
    warning = moved(machine)
    assert machine.calls[-1] == there[0]
    assert warning == "" if not refused else warning.endswith("autostart vm") and "no" in warning


def test_a_saved_domain_is_not_started_at_boot_beside_its_image(tmp_path: Path) -> None:
    save = (*HERE, "save", "vm", str(tmp_path / "guest.state"))
    off, on = (*HERE, "autostart", "--disable", "vm"), (*HERE, "autostart", "vm")
    machine = host(True, True, (save, ""), (off, ""))
    vm = find_external(machine, "libvirt:vm")
    own = vm.needs(machine)
    vm.checkpoint(machine, WORK, tmp_path, Method.OFFLINE)
    assert machine.calls[-2:] == [off, save], "off before the domain ends"
    saved = Saved(name=vm.name, method=Method.OFFLINE, own=own)
    back = host(True, False, ((*HERE, "restore", str(tmp_path / "guest.state")), ""), (on, ""))
    assert vm.restore(back, WORK, tmp_path, saved) == vm.name and back.calls[-1] == on
    back.commands[on] = REFUSED
    with pytest.raises(RestoredError, match="will not start it with the machine"):
        vm.restore(back, WORK, tmp_path, saved)


def test_a_domain_that_was_not_saved_is_started_at_boot_as_before(tmp_path: Path) -> None:
    save = (*HERE, "save", "vm", str(tmp_path / "guest.state"))
    off, on = (*HERE, "autostart", "--disable", "vm"), (*HERE, "autostart", "vm")
    state = ((*HERE, "domstate", "vm"), "running\n")
    machine = host(True, True, (save, REFUSED), (off, ""), (on, ""), state)
    with pytest.raises(RunError, match="it continues"):
        find_external(machine, "libvirt:vm").checkpoint(machine, WORK, tmp_path, Method.OFFLINE)
    assert on in machine.calls


def test_dom0_names_the_file_by_which_it_starts_a_domain_of_xen_at_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, auto = tmp_path / "xl", tmp_path / "auto"
    program.write_text("#!/bin/sh\nprintf 'Name ID Mem VCPUs State Time\\nvm 3 128 1 -b---- 2.1\\n'\n")
    program.chmod(0o755)
    auto.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("nearmetal.environments.external.xen_domains._AUTO", str(auto))
    vm = find_external(LocalHost(), "xl:vm")
    (auto / "other.cfg").write_text('name = "vm2"\n')
    assert vm.inspect(LocalHost()).warning == ""
    (tmp_path / "vm.cfg").write_text('memory = 128\nname = "vm"\n')
    (auto / "vm.cfg").symlink_to(tmp_path / "vm.cfg")
    assert str(auto / "vm.cfg") in vm.inspect(LocalHost()).warning
