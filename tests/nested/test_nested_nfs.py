"""Claims over a real NFS: server and two clients by the kernel of an emulated machine. For function alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nested.carried import make_carried
from tests.nested.machine import Outer, outer_image, outer_machine
from tests.nested.nfs_inside import BLOCKS, LEASE

pytestmark = pytest.mark.apart

HERE = Path(__file__).parent


@pytest.fixture(params=["4.2", "3"])
def outer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Outer, str]]:
    carried, machine = tmp_path / "carried", tmp_path / "machine"
    carried.mkdir()
    machine.mkdir()
    files = {"nfs_inside.py": HERE / "nfs_inside.py"}
    disk = make_carried(carried, ("msgspec", "typing_extensions.py"), files)
    with outer_machine(machine, xen=False, carried=disk, image=outer_image("nfs")) as found:
        yield found, request.param


def test_claims_over_nfs(outer: tuple[Outer, str]) -> None:
    machine, version = outer
    env = {"PYTHONPATH": "/carried/src:/carried/site"}
    done = machine.ssh.run(["python3", "/carried/nfs_inside.py", version], timeout=900, env=env)
    assert done.ok, (done.stdout[-2000:], done.stderr[-3000:])
    found = json.loads(done.stdout)
    print(found)
    won = sorted(block for blocks in found["race"].values() for block in blocks)
    assert won == list(range(1, BLOCKS + 1)), "each block was claimed by one worker"
    winners = {run for run, blocks in found["race"].items() if blocks}
    assert len(winners) > 1, "several workers raced; one client may be faster than the other"
    assert max(found["seen"]) < 5, "what one client did is seen by the other, which had looked before"
    part = found["partition"]
    assert part["renewed"], "a claim that is renewed on one client is held for the other"
    assert part["attempt"] == 2 and part["seconds"] > LEASE / 2, "it was lost once its lease had ended"
    assert part["late"] is True and part["states"] == {"1": "done", "2": "done"}, "both went on to their end"
    lost = found["lost"]
    assert lost["errors"], "the client gave up waiting"
    assert lost["won"] == (lost["made"] == "c1"), "the claim is won if the server made the link"
    # A server of version 4.2 was seen not to make it. One of version 3 makes it.
    assert lost["won"] or version == "4.2"
    assert found["left"] == []
