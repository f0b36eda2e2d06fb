"""Guests on the networks: cards, ways to hand them over, and what is set inside, read back there."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.contract import guests
from tests.contract.guests import HOST, NEEDED, QEMU, SMALL, booted, request
from tests.contract.test_network_attachments import PYTHON, SERVER, standing

from nearmetal.environments import RemoteInstance, Tools
from nearmetal.environments.guests.guest import GuestInstance
from nearmetal.environments.guests.tap import tap_argv
from nearmetal.environments.libvirt.backend import Libvirt
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.errors import TrialFailedError
from nearmetal.host.processes.failure import find_error_line
from nearmetal.model.environments.guest import GuestSettings, Nic
from nearmetal.model.environments.network import NetworkSettings, Offloads, Seat
from nearmetal.model.study import Attachment, Environment
from nearmetal.network.plan import NetworkRequest
from nearmetal.node.guests import check_networks

pytestmark = [pytest.mark.more, pytest.mark.beside, *NEEDED]

SAID = "exec 3<>/dev/tcp/$0/$1 && echo -n ping >&3 && head -c 4 <&3"
"""A word to a server, and its answer."""


@contextmanager
def guest_on(
    tools: Tools,
    place: Path,
    slot: str,
    attachment: Attachment,
    settings: GuestSettings,
    network: NetworkSettings,
    seat: Seat | None,
    backend: Qemu | Libvirt = QEMU,
) -> Iterator[GuestInstance]:
    asked = request(slot, guests.base(tools, place, generic=settings.nic is not Nic.VIRTIO), place, settings)
    environment = replace(asked.environment, attachment=attachment, network=network)
    with booted(tools, replace(asked, environment=environment, seat=seat), backend) as guest:
        yield guest


def settled(environment: Environment, guest: RemoteInstance) -> dict[str, Any]:
    """What is recorded of its network. Raises TrialFailedError where it is not what was asked for."""
    instance = cast(GuestInstance, guest)
    ((name, found),) = check_networks(environment, (guest,), (instance,), Path("log")).items()
    assert name == f"network.{instance.hostname}"
    return dict(found)


def says(guest: GuestInstance, argv: Sequence[str], address: str, port: int, directory: Path) -> str:
    """What a server, run by argv, answers to the guest."""
    out = directory / "server"
    out.write_text("")
    with ExitStack() as stack:
        server = HOST.start([*argv], stdout=out, stderr=out, cwd=Path("/"))
        stack.callback(server.kill)
        while not out.read_text():
            assert server.poll() is None
        command = guest.command(["bash", "-c", SAID, address, str(port)])
        done = HOST.run(command, timeout=600)
        assert done.ok and server.wait(600) == 0, (done.stderr, out.read_text())
        return done.stdout


CASES = [
    (
        Attachment.MACVTAP,
        replace(SMALL, nic=Nic.E1000),
        NetworkSettings(mtu=1400, rto_min=0.004, congestion_control="reno", queue_length=77),
        "e1000",
    ),
    (
        Attachment.VETH_ROUTED,
        replace(SMALL, nic=Nic.RTL8139),
        NetworkSettings(
            mtu=1300, congestion_control="cubic", offloads=Offloads(tso=False, gso=False, gro=False)
        ),
        "8139cp",
    ),
]


@pytest.mark.parametrize(
    ("attachment", "settings", "network", "driver"), CASES, ids=[f"{c[1].nic}-{c[0]}" for c in CASES]
)
def test_a_card_carries_messages_and_has_what_was_set(
    attachment: Attachment,
    settings: GuestSettings,
    network: NetworkSettings,
    driver: str,
    tools: Tools,
    tmp_path: Path,
) -> None:
    wanted = NetworkRequest(attachment=attachment, settings=network, instances=1)
    with standing(tmp_path, None, wanted) as (built,):
        with guest_on(tools, tmp_path, "n", attachment, settings, network, built.seats[0]) as guest:
            environment = Environment(
                name="vm", backend="qemu", attachment=attachment, network=network, placements=()
            )
            found = settled(environment, guest)
            assert {"driver": driver, **network.requested()}.items() <= found.items()
            server = built.hub_command([PYTHON, "-c", SERVER, built.hub_address])
            assert says(guest, server, built.hub_address, 7000, tmp_path) == "PING"
            assert (tmp_path / "server").read_text().splitlines()[-1] == built.seats[0].address
            wrong = replace(environment, network=replace(network, queue_length=78))
            with pytest.raises(TrialFailedError, match="queue_length 78 was requested, the kernel has"):
                settled(wrong, guest)
        assert built.trouble() == ""


LISTENER = SERVER.replace("sys.argv[1], 7000", '"127.0.0.1", int(sys.argv[1])')


def test_a_guest_in_user_mode_reaches_out(tools: Tools, tmp_path: Path) -> None:
    nothing = NetworkSettings()
    with guest_on(tools, tmp_path, "u", Attachment.USER, SMALL, nothing, None) as guest:
        environment = Environment(name="vm", backend="qemu", attachment=Attachment.USER, placements=())
        assert settled(environment, guest)["driver"] == "virtio_net"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        argv = [PYTHON, "-c", LISTENER, str(port)]
        assert says(guest, argv, "10.0.2.2", port, tmp_path) == "PING"
        assert (tmp_path / "server").read_text().splitlines()[-1] == "127.0.0.1"


def test_names_and_addresses_in_use_are_avoided_or_reported(tools: Tools) -> None:
    """Names are of a namespace that nobody else uses; one that is taken there all the same is gone round, or
    said."""
    netns = f"nearmetal-check-{os.getpid()}-taps"
    inside = ("ip", "-n", netns, "link")
    seat = Seat(netns=f"/run/netns/{netns}", address="10.9.9.2", interface="eth0", port="")
    with ExitStack() as stack:
        assert HOST.run(["ip", "netns", "add", netns], timeout=600).ok
        stack.callback(HOST.run, ["ip", "netns", "del", netns], timeout=600)
        for argv in (
            ("add", "eth0", "type", "veth", "peer", "name", "port0"),
            ("add", "nmtap0", "type", "veth", "peer", "name", "other"),
        ):
            assert HOST.run([*inside, *argv], timeout=600).ok
        ip = ["ip", "-n", netns, "addr", "add", "10.9.9.2/24", "dev", "eth0"]
        assert HOST.run(ip, timeout=600).ok
        listed = ["ip", "-n", netns, "-br", "link"]
        done = HOST.run([*tap_argv(tools, seat, Attachment.VETH), "--", *listed], timeout=600)
        assert done.ok and "nmtap1" in done.stdout, done.stderr
        first = subprocess.Popen([*tap_argv(tools, seat, Attachment.VETH), "--", "sleep", "3600"])
        stack.callback(first.wait)
        stack.callback(first.kill)
        while "nmtap1" not in HOST.run(listed, timeout=600).stdout:
            assert first.poll() is None
        second = HOST.run([*tap_argv(tools, seat, Attachment.VETH), "--", *listed], timeout=600)
        assert second.returncode == 111
        assert str(find_error_line(second.stderr)) == "nm-box: another guest has this address already (eth0)"
        first.kill()
        first.wait()
        assert HOST.run([*tap_argv(tools, seat, Attachment.VETH), "--", *listed], timeout=600).ok
        assert HOST.run([*inside, "del", "nmbridge"], timeout=600).ok
        taken = ["add", "nmbridge", "type", "veth", "peer", "name", "third"]
        assert HOST.run([*inside, *taken], timeout=600).ok
        done = HOST.run([*tap_argv(tools, seat, Attachment.VETH), "--", *listed], timeout=600)
        assert done.returncode == 111 and "nm-box: join to the bridge: " in str(find_error_line(done.stderr))
