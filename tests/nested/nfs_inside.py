"""Runs on the outer machine: claims of workers on two clients of a real NFS server, each in a network
namespace and with a cache of its own. Prints what it found as JSON.

Usage: nfs_inside.py VERSION                     everything
       nfs_inside.py claim DIR RUN BLOCKS        one worker: claim the blocks, print those that it got
       nfs_inside.py hold DIR RUN LEASE SECONDS  one worker: hold a claim to block 1 for so many seconds
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nearmetal.errors import RecordsError
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.model.record import Claim
from nearmetal.records import Claims, ClaimState, Orders
from nearmetal.records.disk import is_there

EXPORT, SERVER = Path("/written/export"), "10.77.0.1"
CLIENTS = {"c1": "10.77.0.11", "c2": "10.77.0.12"}
BLOCKS, WORKERS, LEASE, GO = 40, 3, 6.0, "go"


def do(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (argv, done.stderr)


def at(client: str, *words: str) -> subprocess.Popen[str]:
    """Start this program on a client."""
    own = ["ip", "netns", "exec", client, sys.executable, __file__, *words]
    return subprocess.Popen(own, stdout=subprocess.PIPE, text=True)


@contextmanager
def server() -> Iterator[None]:
    """Serve EXPORT to the clients, each joined to a bridge by a cable of its own."""
    EXPORT.mkdir(exist_ok=True)
    Path("/etc/exports").write_text(f"{EXPORT} *(rw,sync,no_root_squash,no_subtree_check,insecure,fsid=0)\n")
    do("ip", "link", "add", "br0", "type", "bridge")
    do("ip", "address", "add", f"{SERVER}/24", "dev", "br0")
    do("ip", "link", "set", "br0", "up")
    for name, address in CLIENTS.items():
        do("ip", "netns", "add", name)
        do("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        do("ip", "link", "set", name, "master", "br0", "up")
        for words in (
            ("address", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            do("ip", "-n", name, *words)
    do("modprobe", "nfsd")
    do("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    do("rpcbind", "-w")
    do("exportfs", "-a")
    do("rpc.mountd")
    do("rpc.nfsd", "--lease-time", "10", "--grace-time", "10", "4")
    yield


@contextmanager
def mounted(version: str, *more: str) -> Iterator[dict[str, Path]]:
    """Mount the export on each client. Yields the directory of each."""
    found = {name: Path(f"/run/{name}") for name in CLIENTS}
    export = EXPORT if version == "3" else Path("/")  # version 4 names what is exported from its root on
    options = ",".join(("nosharecache", "nolock", f"vers={version}", "port=2049", *more))
    for name, place in found.items():
        place.mkdir(exist_ok=True)
        # A mount belongs to the network namespace in which it is made, and is seen by all processes.
        mount = ["mount", "-t", "nfs", "-o", options, f"{SERVER}:{export}", str(place)]
        do("nsenter", f"--net=/run/netns/{name}", *mount)
    try:
        yield found
    finally:
        for place in found.values():
            do("umount", "-f", "-l", str(place))


def race(places: dict[str, Path]) -> dict[str, list[int]]:
    """Let workers on both clients claim the same blocks at once. Returns what each got."""
    running = {
        f"{client}-{n}": at(client, "claim", str(place), f"{client}-{n}", str(BLOCKS))
        for client, place in places.items()
        for n in range(WORKERS)
    }
    until(lambda: len(list((EXPORT / "race").glob("ready-*"))) == len(running), 600)
    (EXPORT / "race" / GO).touch()
    return {run: json.loads(process.communicate()[0]) for run, process in running.items()}


def until(condition: Callable[[], object], seconds: float = 60) -> float:
    """Wait for a condition. Returns how many seconds that took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + seconds, "it never was so"
        time.sleep(0.1)
    return time.monotonic() - begin


def seen(places: dict[str, Path]) -> list[float]:
    """Seconds until one client sees what the other has made or removed, although it has looked for it."""
    here, there = Orders(places["c1"] / "race"), Orders(places["c2"] / "race")
    claims, others = (Claims(place / "seen", name, LEASE) for name, place in places.items())
    assert not there.stopped and others.find(1, 1) is None
    here.stop()
    stopped = until(lambda: there.stopped)
    here.start()
    started = until(lambda: not there.stopped)
    assert claims.take(1, 1) is not None
    return [stopped, started, until(lambda: others.find(1, 1))]


def partition(places: dict[str, Path]) -> dict[str, object]:
    """Cut off the client whose worker holds a block until the other takes it over; then it comes back."""
    held = at("c1", "hold", str(places["c1"] / "part"), "c1", str(LEASE), str(4 * LEASE))
    other = Claims(places["c2"] / "part", "c2", LEASE)
    until(lambda: (seen := other.find(1, 1)) is not None and seen.held)
    time.sleep(1.5 * LEASE)
    found = other.find(1, 1)
    renewed = found is not None and found.held  # by the other client, through the server
    do("ip", "link", "set", "c1", "down")
    taken: list[Claim] = []

    def take_over() -> bool:
        claim = other.take_over(1)
        taken.extend([] if claim is None else [claim])
        return claim is not None

    seconds = until(take_over)
    with other.holding(taken[0]):
        do("ip", "link", "set", "c1", "up")
        said = json.loads(held.communicate()[0])
    states = {attempt: str(found.state) for attempt in (1, 2) if (found := other.find(1, attempt))}
    return {
        "renewed": renewed,
        "seconds": seconds,
        "attempt": taken[0].attempt,
        "late": said,
        "states": states,
    }


def lost_answer(place: Path) -> dict[str, object]:
    """Let the server make a link whose answer does not reach the client before the client gives up."""
    claims, link = Claims(place / "lost", "c1", LEASE), os.link
    errors: list[str] = []

    def cut(source: Path, target: Path) -> None:
        # What the server sends finds no way. What is sent to it still arrives.
        do("ip", "route", "add", "blackhole", f"{CLIENTS['c1']}/32")
        try:
            link(source, target)
        except OSError as e:
            errors.append(errno.errorcode[e.errno or 0])
            raise
        finally:
            do("ip", "route", "delete", "blackhole", f"{CLIENTS['c1']}/32")

    os.link = cut  # type: ignore[assignment]  # with the network cut while it waits
    try:
        won = claims.take(1, 1) is not None
    except RecordsError as e:
        won = False
        errors.append(e.what)
    finally:
        os.link = link
    there = EXPORT / "lost" / "1.1.json"
    return {"won": won, "errors": errors, "made": there.exists() and json.loads(there.read_text())["run"]}


def main(version: str) -> None:
    for name in ("race", "seen", "part", "lost"):
        (EXPORT / name).mkdir(parents=True, exist_ok=True)
    found: dict[str, object] = {}
    with server():
        with mounted(version) as places:
            found["race"] = race({name: place / "race" for name, place in places.items()})
            found["seen"] = seen(places)
            found["partition"] = partition(places)
        with mounted(version, "soft", "timeo=20", "retrans=1") as places:
            found["lost"] = lost_answer(places["c1"])
        mounts = Path("/proc/mounts").read_text()
    print(json.dumps({**found, "left": [m for m in mounts.splitlines() if " nfs" in m and SERVER in m]}))


def claim(place: Path, run: str, blocks: int) -> None:
    claims = Claims(place, run, LEASE)
    (place / f"ready-{run}").touch()
    until(lambda: is_there(UntrustedDirectory(place), GO), 600)
    print(json.dumps([block for block in range(1, blocks + 1) if claims.take(block, 1) is not None]))


def hold(place: Path, run: str, lease: float, seconds: float) -> None:
    claims = Claims(place, run, lease)
    taken = claims.take(1, 1)
    assert taken is not None
    with claims.holding(taken):
        time.sleep(seconds)
    found = claims.find(1, 1)
    print(json.dumps(found is not None and found.state is ClaimState.DONE))


if __name__ == "__main__":
    if sys.argv[1] == "claim":
        claim(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1] == "hold":
        hold(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
    else:
        main(sys.argv[1])
