"""`nearmetal check` says by which methods the instances of each backend can be moved here."""

from __future__ import annotations

import pytest

from nearmetal.api.checking import NOT_HERE, WORKS
from nearmetal.api.moves import checking as checking_moves
from nearmetal.api.moves.checking import check_checkpoints, check_moves
from nearmetal.environments import Criu, Unavailable
from nearmetal.environments.registry import get_backend
from nearmetal.lifecycle import Method
from nearmetal.testing.fake_host import FakeHost

LACK = Unavailable(reason="no userfaultfd", remedy="modprobe it")
BACKENDS = [get_backend(name) for name in ("native", "lxc", "qemu", "bubblewrap")]


@pytest.fixture
def _no_dmtcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking_moves, "find_dmtcp", lambda host: LACK)


@pytest.mark.usefixtures("_no_dmtcp")
def test_each_backend_that_can_move_has_a_line_with_its_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    criu = Criu(argv=("/criu",), version="4.2", unable={Method.CRIU_LAZY: LACK})
    monkeypatch.setattr(checking_moves, "find_criu", lambda host: criu)
    host = FakeHost(programs={"lxc-checkpoint": "/bin/lxc-checkpoint"}, missing=("crun",))
    backends = [*BACKENDS, get_backend("crun")]
    found = {c.what: (c.state, c.why) for c in check_moves(host, backends)}
    assert found == {
        "move native": (WORKS, "criu, criu-pageserver, criu-precopy; not criu-lazy, see above"),
        "move lxc": (WORKS, "criu"),
        "move crun": (NOT_HERE, "not criu: crun is not installed"),
        "move qemu": (WORKS, "precopy, offline, postcopy, multifd"),
    }
    assert {c.what for c in check_checkpoints(FakeHost())} >= {"criu", "checkpoint criu-lazy"}


@pytest.mark.usefixtures("_no_dmtcp")
def test_without_criu_no_process_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking_moves, "find_criu", lambda host: LACK)
    found = {c.what: c.state for c in check_moves(FakeHost(), BACKENDS)}
    assert found == {"move native": NOT_HERE, "move lxc": NOT_HERE, "move qemu": WORKS}
