"""The links of emulated nodes on a kernel that delays frames itself (netem): a strict fake of the kernel's
answers, and the bytes that a real one would be sent."""

from __future__ import annotations

import errno
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.tcmsg import common, sched_netem, sched_tbf, tcmsg

from nearmetal.host import ethtool
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment, NodeLink
from nearmetal.network import making, plan
from nearmetal.network.nodes import SWITCH, UPLINK
from nearmetal.network.plan import NetworkRequest
from nearmetal.network.shapes import BRIDGE
from nearmetal.network.topology import Link

LINK = NodeLink(rate=125e6, delay=50e-6, queue=8000)
INDEX = {"link0": 11, BRIDGE: 12, UPLINK: 13}


class Kernel:
    """Takes what it is told to expect, in that order, and nothing else. refuses: the error of netem, 0 for
    none."""

    def __init__(self, *expected: tuple[str, ...], refuses: int = 0) -> None:
        self.expected, self.refuses = list(expected), refuses
        self.said: list[dict[str, Any]] = []

    def _call(self, *words: str, **more: Any) -> None:
        assert self.expected and words == self.expected.pop(0), (words, more)
        self.said.append(more)
        if "netem" in words and self.refuses:
            raise NetlinkError(self.refuses, "Specified qdisc kind is unknown")

    def link(self, command: str, **more: Any) -> None:
        self._call("link", command, **more)

    def tc(self, command: str, kind: str, index: int, **more: Any) -> None:
        self._call("tc", command, kind, **more, index=index)


def link_of(at: str) -> Link:
    """The end of the first node's link at the switch, or at the node."""
    want = NetworkRequest(
        attachment=Attachment.VETH_BRIDGE, settings=NetworkSettings(), instances=2, nodes=2, link=LINK
    )
    (own,) = plan.plan_networks([want])
    return next(k for k in own.topology.links if k.at == at and k.name in ("link0", UPLINK))


def make(link: Link, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(ethtool, "switch", lambda *_: None)
    place = SimpleNamespace(ip=kernel, plain=None, index=INDEX.__getitem__)
    asked = {**asdict(link), "kind": "end"}  # the veth itself was made with its other end
    made = making.make_link(asked, cast("Any", None), {link.at: cast("Any", place)}, "label", making.Step())
    assert kernel.expected == []
    return made


def test_the_kernel_delays_below_which_the_rate_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(("tc", "add", "netem"), ("link", "set"), ("tc", "add", "tbf"))
    assert make(link_of(SWITCH), kernel, monkeypatch)
    netem, port, tbf = kernel.said
    assert netem == {"index": 11, "handle": 0x10000, "delay": 50, "limit": 10_000}
    assert port["master"] == INDEX[BRIDGE] and port["state"] == "up"
    assert (tbf["parent"], tbf["handle"]) == (0x10001, 0x20000)
    assert (tbf["rate"], tbf["limit"]) == (125_000_000, 8000)


def test_the_nodes_own_end_is_not_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(("link", "set"), ("tc", "add", "tbf"))
    assert make(link_of("hub"), kernel, monkeypatch)
    assert "parent" not in kernel.said[1] and kernel.said[0]["master"] == INDEX[BRIDGE]


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EOPNOTSUPP])
def test_without_netem_the_port_is_left_to_a_relay(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(("tc", "add", "netem"), ("link", "set"), ("tc", "add", "tbf"), refuses=error)
    assert not make(link_of(SWITCH), kernel, monkeypatch)
    assert "master" not in kernel.said[1] and "parent" not in kernel.said[2]


def test_any_other_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(("tc", "add", "netem"), refuses=errno.EINVAL)
    with pytest.raises(NetlinkError):
        make(link_of(SWITCH), kernel, monkeypatch)


def test_the_message_holds_the_delay_in_ticks_of_the_kernel() -> None:
    options = sched_netem.get_parameters({"delay": 50, "limit": 10_000})
    message = tcmsg()
    message["attrs"] = [["TCA_KIND", "netem"], ["TCA_OPTIONS", options]]
    message.encode()
    ticks, limit = (int.from_bytes(message.data[at : at + 4], "little") for at in (52, 56))
    assert ticks == int(50 * common.tick_in_usec) and limit == 10_000
    assert sched_netem.parent == sched_tbf.parent == 0xFFFFFFFF  # of the device
