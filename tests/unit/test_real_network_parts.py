"""Networks over machines: their addresses, what they are made of, and machines that cannot have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.unit.study_file.conftest import catalog
from tests.unit.study_file.test_study_file_machines import text

from nearmetal.errors import UnavailableError, UsageError
from nearmetal.host import Completed
from nearmetal.host.lock import RunInfo
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Arm, Attachment
from nearmetal.node.real_addresses import Attached, plan_ends, require_free
from nearmetal.node.real_networks import SHAPES, interface_address, make_seat, reached_by, remove_dead
from nearmetal.study_file import Catalog, load_text
from nearmetal.study_file.checks import BETWEEN_MACHINES
from nearmetal.testing.fake_host import FakeHost

__all__ = ["catalog"]

ROUTES = "default via 10.1.0.254 dev ib0\n10.1.0.0/24 dev ib0 proto kernel scope link src 10.1.0.2\n"


class Machine(FakeHost):
    """Answers the scripts that make networks with an exit status, and what reads them back with text."""

    def __init__(self, returncode: int = 0, stderr: str = "") -> None:
        super().__init__()
        self.returncode, self.stderr = returncode, stderr
        self.scripts: list[Sequence[str]] = []

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Any:
        if argv[:2] == ("sh", "-c"):
            self.scripts.append(argv)
            return Completed(
                argv=argv, returncode=self.returncode, stdout="", stderr=self.stderr, seconds=0.0
            )
        if argv[:2] == ("ip", "-n"):
            return (
                "5: eth0@if2: <UP> mtu 1400 qdisc noqueue\n" if "link" in argv else "10.99.0.0/24 dev eth0\n"
            )
        answers: Mapping[tuple[str, ...], str] = {
            ("ip", "-4", "-oneline", "route", "show"): ROUTES,
            (
                "ip",
                "-4",
                "-oneline",
                "address",
                "show",
                "dev",
                "ib0",
            ): "2: ib0 inet 10.1.0.2/24 scope global ib0",
            ("ip", "-4", "-oneline", "address", "show", "dev", "eth7"): "",
            ("ip", "-4", "-oneline", "route", "get", "10.1.0.2"): "10.1.0.2 dev eth3 src 10.1.0.9 uid 0",
        }
        return answers[argv]


def arm(catalog: Catalog, box: str) -> Arm:
    study = load_text(text(box=box), "s.yaml", catalog, seed=1)
    (found,) = [a for a in study.arms() if a.environment.name == "box"]
    return found


def made(host: Machine, found: Arm, name: str = "n1") -> Any:
    """Make the place of the first instance. mpirun and it are on two machines."""
    (ends,) = plan_ends([found.environment.network], 2, 0)
    machines = [
        Attached(name="", host=Machine(), interface="eth3", address="10.1.0.9"),
        Attached(name=name, host=host, interface="ib0", address="10.1.0.2"),
    ]
    with ExitStack() as stack:
        return make_seat(stack, found, "nearmetal-0000ff-net3-a", 3, ends, machines, 1)


def test_every_network_has_addresses_of_its_own() -> None:
    first, second, third, fourth = plan_ends(
        [
            NetworkSettings(),
            NetworkSettings(subnet="192.168.7.0/28"),
            NetworkSettings(mtu=1400),
            NetworkSettings(subnet="192.168.7.0/28"),
        ],
        3,
        254,
    )
    assert list(map(str, first.inner)) == ["10.99.254.1/24", "10.99.254.2/24", "10.99.254.3/24"]
    assert str(third.subnet) == "10.99.0.0/24" and str(third.below[2]) == "10.98.0.3/24"
    assert not set(second.inner) & set(fourth.inner) and str(fourth.inner[0]) == "192.168.7.4/28"
    with pytest.raises(UsageError, match=r"192\.168\.7\.0/29 has too few addresses"):
        plan_ends([NetworkSettings(subnet="192.168.7.0/29")], 7, 0)
    assert len(plan_ends([NetworkSettings(subnet="192.168.7.0/29")], 6, 0)[0].inner) == 6


@pytest.mark.parametrize(("count", "prefix"), [(254, 24), (255, 23), (510, 23), (511, 22)])
def test_the_network_of_the_routers_holds_all_of_them(count: int, prefix: int) -> None:
    wide = [NetworkSettings(subnet=f"172.{n}.0.0/16") for n in (20, 21)]
    first, second = plan_ends(wide, count, 255)
    for ends in (first, second):
        (below,) = {address.network for address in ends.below}
        assert below.prefixlen == prefix and len(set(ends.below)) == count
        assert not {address.ip for address in ends.below} & {below[0], below[-1]}
    assert not first.below[0].network.overlaps(second.below[0].network)


def test_each_attachment_of_machines_has_a_shape() -> None:
    assert set(SHAPES) == set(BETWEEN_MACHINES)


@pytest.mark.parametrize("attachment", BETWEEN_MACHINES)
def test_script_of_each_machine_gets_peers_and_label(attachment: Attachment, catalog: Catalog) -> None:
    host = Machine()
    more = "network: {mtu: 1400, rto_min: 2 ms, congestion_control: cubic}"
    facts = made(host, arm(catalog, f"attachment: {attachment}, {more}"))
    script, _, name, parent, own, address, number, label, mtu, *peers = host.scripts[0][2:]
    assert (name, parent, own, address) == ("nearmetal-0000ff-net3-a", "ib0", "10.1.0.2", "10.99.0.2/24")
    assert (number, label, mtu) == (str(0xFF + 3), "nearmetal-0000ff-net3", "1400")
    assert peers == ["nm0000ff-3s", "10.98.0.2/24", "10.1.0.9,10.99.0.1,10.98.0.1"]
    assert "rto_min 2ms congctl cubic" in script
    assert facts["mtu"] == 1400 and facts["machine"] == "n1" and facts["over"] == "ib0"
    deleted = [argv[-1] for argv in host.scripts[1:]]
    routers = ["nearmetal-0000ff-net3-a-router"] if attachment is Attachment.VETH_ROUTED else []
    assert deleted == ["nearmetal-0000ff-net3-a", *routers]


@pytest.mark.parametrize(
    ("returncode", "stderr", "what", "remedy"),
    [
        (77, "", "node n1: attachment macvlan needs root there", "user: root for n1 in the inventory"),
        (78, "", "needs ip and bridge there", "apt-get install iproute2"),
        (79, "", "ib0 is neither a bridge nor a port of one", "attachment: macvlan"),
        (80, "the bridge br0 has an MTU of 1500", "the bridge br0 has an MTU of 1500", "mtu: at most"),
        (2, "RTNETLINK answers: Operation not supported", "Operation not supported", "attachment: host"),
    ],
)
def test_a_machine_that_cannot_have_a_network_is_named(
    returncode: int, stderr: str, what: str, remedy: str, catalog: Catalog
) -> None:
    with pytest.raises(UnavailableError) as caught:
        made(Machine(returncode, stderr), arm(catalog, "attachment: macvlan"))
    assert what in caught.value.what and remedy in str(caught.value.remedy)


def test_the_scripts_themselves_refuse_users_without_privileges(catalog: Catalog) -> None:
    """As nobody if these tests run as root."""
    from tests.contract.test_backends_unprivileged import as_nobody

    from nearmetal.host import LocalHost

    host = Machine()
    made(host, arm(catalog, "attachment: macvlan"))
    argv = list(host.scripts[0])
    words = argv if not LocalHost().is_root() else as_nobody(*argv)
    assert LocalHost().run(words, timeout=60, cwd=Path("/")).returncode == 77


def test_this_machine_is_attached_where_it_reaches_the_nodes() -> None:
    host = Machine()
    hub, node = reached_by(host, "ib0", [("n1", host)])
    assert (hub.name, hub.interface, hub.address) == ("", "eth3", "10.1.0.9")
    assert (node.name, node.interface, node.address) == ("n1", "ib0", "10.1.0.2")
    with pytest.raises(UnavailableError, match=r"node n1 has no address on an interface eth7"):
        interface_address(host, "n1", "eth7")


@pytest.mark.parametrize(
    ("attachment", "route", "network"),
    [
        ("macvlan", "10.99.0.128/25 via 10.1.0.254 dev ib0", "10.99.0.0/24"),
        ("macvlan", "10.99.0.7 dev ib0 scope link", "10.99.0.0/24"),
        ("veth-bridge", "10.0.0.0/8 dev ib0 proto kernel scope link src 10.1.0.2", "10.99.0.0/24"),
        ("veth-routed", "10.98.0.0/16 dev ib0 scope link", "10.98.0.0/24"),
        ("veth-routed, network: {subnet: 192.168.7.0/24}", "10.98.0.0/24 via 10.1.0.9", "10.98.0.0/24"),
        ("macvlan, network: {subnet: 192.168.7.0/24}", "192.168.7.0/24 via 10.1.0.9", "192.168.7.0/24"),
    ],
)
def test_addresses_in_use_are_refused_by_the_network_that_has_them(
    attachment: str, route: str, network: str, catalog: Catalog
) -> None:
    with pytest.raises(UnavailableError) as caught:
        checked(attachment, ROUTES + route, catalog)
    assert caught.value.what.endswith(f"the addresses of {network} are in use there: {route}")
    assert ("attachment: macvlan" if network.startswith("10.98.") else "subnet") in str(caught.value.remedy)


@pytest.mark.parametrize("attachment", ["macvlan", "veth-bridge", "veth-routed"])
def test_a_wider_route_through_a_gateway_does_not_matter(attachment: str, catalog: Catalog) -> None:
    other = "10.98.1.0/24 dev ib1\nblackhole 10.99.0.0/16\n"
    checked(attachment, f"{ROUTES}10.0.0.0/8 via 10.1.0.254 dev ib0\n{other}", catalog)


def checked(attachment: str, routes: str, catalog: Catalog) -> None:
    """Check the addresses of the first network on a machine with some routes."""
    found = arm(catalog, f"attachment: {attachment}")
    (ends,) = plan_ends([found.environment.network], 2, 0)
    host = FakeHost(commands={("ip", "-4", "-oneline", "route", "show"): routes})
    machine = Attached(name="n1", host=host, interface="ib0", address="10.1.0.2")
    require_free(machine, found.environment.attachment, ends)


@pytest.mark.parametrize("named", [True, False])
def test_networks_of_dead_runs_are_removed_from_a_machine(named: bool) -> None:
    """named: whether the machine's lock file names this run. If not, the file says nothing."""
    own, other, ended = "nearmetal-0000aa", "nearmetal-0000bb", "nearmetal-0000cc"
    runs = [(own, 7, 500), (other, 8, 500), (ended, 9, 400)]  # 9 is another process now

    class There(Machine):
        def answer(self, argv: tuple[str, ...], stdin: str | None) -> Any:
            if argv[0] == "find":
                return ""
            if argv[:2] == ("dd", "if=/tmp/nearmetal.lock"):
                kept = runs if named else runs[1:]
                return "".join(
                    RunInfo(pid=pid, born=born, run=run, since=0.0, command="c").line + "\n"
                    for run, pid, born in kept
                )
            if argv[0] == "cat":
                return f"7 (nm-guest) S {'0 ' * 18}500 0"
            if argv == ("ls", "/run/netns"):
                parts = [f"{run}-net0-{part}" for run in (own, other, ended) for part in ("a", "a-router")]
                return "\n".join([*parts, "nearmetal-check-9-net0-a", "mine", "nearmetal-0000dd-net0-b"])
            return super().answer(argv, stdin)

    host = There()
    remove_dead(host, own)
    deleted = [argv[-1] for argv in host.scripts]
    gone = [f"{ended}-net0-a", f"{ended}-net0-a-router", "nearmetal-0000dd-net0-b"]
    assert deleted == (gone if named else [])
