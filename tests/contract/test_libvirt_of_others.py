"""Domains of a user's own at real daemons of libvirt: after a checkpoint and after a move, no daemon starts a
second copy at boot."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.contract.guests import HOST, NEEDED
from tests.contract.test_libvirt_guests import daemon
from tests.patience import until

from nearmetal.environments import Tools
from nearmetal.environments.external import Saved, Target, Work, find_external
from nearmetal.environments.external.contract import Moves
from nearmetal.environments.libvirt.daemon import Daemon, ask, elsewhere
from nearmetal.environments.libvirt.migrate import MOVE_OPTIONS
from nearmetal.host.connection import listening
from nearmetal.host.runtime import cache_directory, scratch_directory
from nearmetal.lifecycle import Method

pytestmark = [pytest.mark.apart, pytest.mark.beside, pytest.mark.attack, *NEEDED]
NAME = f"nmtest{os.getpid()}"
WORK = Work(criu=lambda _: pytest.fail("no CRIU is needed"))
XML = f"""<domain type='qemu'><name>{NAME}</name><memory unit='MiB'>32</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"""


@pytest.fixture
def here(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon with a persistent domain that runs, and starts with the machine."""
    definition = tmp_path / "domain.xml"
    definition.write_text(XML)
    with daemon(tools) as made:
        monkeypatch.setenv("LIBVIRT_DEFAULT_URI", made.uri)
        try:
            for words in (("define", str(definition)), ("autostart", NAME), ("start", NAME)):
                ask(HOST, made.uri, *words).require()
            yield made
        finally:
            ask(HOST, made.uri, "destroy", NAME)
            ask(HOST, made.uri, "undefine", NAME)


def information(at: Daemon) -> dict[str, str]:
    """State, Persistent and Autostart of the domain at a daemon; empty if the daemon does not know it."""
    said = ask(HOST, at.uri, "dominfo", NAME).stdout
    return dict(re.findall(r"^(State|Persistent|Autostart): +(.*)$", said, re.MULTILINE))


def test_a_saved_domain_starts_with_the_machine_only_after_its_restore(here: Daemon, tmp_path: Path) -> None:
    vm, runs = find_external(HOST, f"libvirt:{NAME}"), information(here)
    assert runs == {"State": "running", "Persistent": "yes", "Autostart": "enable"}
    saved = Saved(name=vm.name, method=Method.OFFLINE, own=vm.needs(HOST))
    vm.checkpoint(HOST, WORK, tmp_path, Method.OFFLINE)
    assert information(here) == {"State": "shut off", "Persistent": "yes", "Autostart": "disable"}
    vm.restore(HOST, WORK, tmp_path, saved)
    assert information(here) == runs


def test_a_persistent_domain_leaves_nothing_at_its_source(
    here: Daemon, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No name server knows the host name of the second daemon.
    with listening() as listener:
        to = ("--migrateuri", f"tcp:127.0.0.1:{listener.getsockname()[1]}")
    monkeypatch.setitem(cast(dict[Method, tuple[str, ...]], MOVE_OPTIONS), Method.OFFLINE, to)
    vm, runs = find_external(HOST, f"libvirt:{NAME}"), information(here)
    assert isinstance(vm, Moves)
    label = f"nearmetal-check-{os.getpid()}-other"
    with (
        scratch_directory(f"{label}-state") as state,
        elsewhere(HOST, tools, label, state, cache_directory(), None) as there,
    ):
        try:
            target = Target.parse(there.uri)
            assert vm.migrate(HOST, WORK, target, Method.OFFLINE).warning == ""
            until(lambda: information(there) == runs, "the domain at the other host")
            assert information(here) == {}, "its definition has left"
        finally:
            ask(HOST, there.uri, "destroy", NAME)
            ask(HOST, there.uri, "undefine", NAME)
