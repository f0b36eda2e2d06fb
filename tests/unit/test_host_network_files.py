"""Counters of /proc/net: by nstat's names; missing is None; noise parses to numbers or None."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host.counters.network_files import (
    PROTOCOLS,
    RETRANSMITTED,
    TIMEOUTS,
    device_counters,
    protocol_counters,
    segments_sent_again,
    softnet_counters,
)
from nearmetal.host.counters.network_meter import NetworkMeter, grown

NETSTAT = b"""TcpExt: SyncookiesSent PruneCalled TCPTimeouts TCPLossProbes TCPBacklogDrop
TcpExt: 0 3 21 7 0
IpExt: InNoRoutes InTruncatedPkts
IpExt: 9 9
"""
SNMP = b"""Ip: Forwarding DefaultTTL InDiscards OutDiscards
Ip: 1 64 4 5
Tcp: RtoAlgorithm MaxConn RetransSegs InErrs OutSegs
Tcp: 1 -1 35 0 1000
Udp: InDatagrams InErrors RcvbufErrors SndbufErrors
Udp: 8 1 2 0
UdpLite: InDatagrams InErrors RcvbufErrors SndbufErrors
UdpLite: 99 99 99 99
"""
DEV = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     0       0          0
  eth0:123456789     30    1    2    0     0          0         0     4000      40    5    6    0     0       0          0
"""  # noqa: E501
SOFTNET = b"""000000ff 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0 0
00000100 0000000a 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000003 0 0
"""  # noqa: E501


def test_a_file_that_the_kernel_returns_in_pages_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than some 35 devices, or the CPUs of a large machine, fill more than the page of one read."""
    file, read = tmp_path / "dev", os.pread
    file.write_bytes(b"".join(DEV.splitlines(True)[2].replace(b"lo", b"v%d" % n) for n in range(200)))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: read(fd, min(size, 4096), at))
    meter = NetworkMeter({"dev": os.open(file, os.O_RDONLY)})
    found = meter.counters(("dev",))
    meter.close()
    assert found["dev.v199.rx_bytes"] == 100


def test_protocols_by_nstats_names() -> None:
    found = protocol_counters("netstat", NETSTAT)
    assert (found[TIMEOUTS], found["TcpExtTCPLossProbes"], found["TcpExtPruneCalled"]) == (21, 7, 3)
    assert found["TcpExtTCPSpuriousRTOs"] is None  # this kernel has none
    assert found.keys() == set(PROTOCOLS["netstat"])
    found = protocol_counters("snmp", SNMP)
    assert (found[RETRANSMITTED], found["TcpOutSegs"], found["TcpInErrs"]) == (35, 1000, 0)
    assert (found["IpInDiscards"], found["IpOutDiscards"]) == (4, 5)
    assert (found["UdpInErrors"], found["UdpRcvbufErrors"]) == (1, 2)  # not UdpLite's


def test_segments_sent_again_alone_are_the_same() -> None:
    assert segments_sent_again(SNMP) == 35
    for text in (b"", b"Tcp: ", b"Tcp: RetransSegs\n", b"Tcp: RetransSegs\nUdp: 5\n", b"x" * 99):
        assert segments_sent_again(text) is None


def test_lines_that_do_not_belong_together_count_nothing() -> None:
    found = protocol_counters("netstat", b"TcpExt: TCPTimeouts\nIpExt: 5\n")
    assert set(found.values()) == {None}


def test_devices_and_what_they_dropped() -> None:
    found = device_counters(DEV)
    assert (found["dev.eth0.rx_bytes"], found["dev.eth0.rx_packets"]) == (123456789, 30)
    assert (found["dev.eth0.rx_errors"], found["dev.eth0.rx_drops"]) == (1, 2)
    assert (found["dev.eth0.tx_bytes"], found["dev.eth0.tx_packets"]) == (4000, 40)
    assert (found["dev.eth0.tx_errors"], found["dev.eth0.tx_drops"]) == (5, 6)
    assert {name.split(".")[1] for name in found} == {"lo", "eth0"}


def test_softnet_over_all_cpus_and_by_cpu() -> None:
    found = softnet_counters(SOFTNET)
    assert (found["softnet.processed"], found["softnet.dropped"], found["softnet.squeezed"]) == (511, 11, 2)
    assert (found["softnet.dropped.cpu0"], found["softnet.dropped.cpu3"]) == (1, 10)
    assert softnet_counters(b"")["softnet.dropped"] is None


@given(st.sampled_from(["netstat", "snmp"]), st.binary(max_size=200))
def test_noise_is_none_or_a_number(name: str, noise: bytes) -> None:
    found = protocol_counters(name, noise)
    assert (segments_sent_again(noise) or 0) >= 0
    assert found.keys() == set(PROTOCOLS[name])
    for counters in (found, device_counters(noise), softnet_counters(noise)):
        assert all(v is None or v >= 0 for v in counters.values())


@given(st.integers(0, len(SNMP)))
def test_a_cut_file_gives_less_and_never_another_number(cut: int) -> None:
    whole = protocol_counters("snmp", SNMP)
    for name, value in protocol_counters("snmp", SNMP[:cut]).items():
        assert value is None or str(whole[name]).startswith(str(int(value)))


def test_growth_leaves_out_what_was_idle_and_keeps_zeros_of_what_was_not() -> None:
    before = {"TcpExtTCPTimeouts": 1.0, "TcpInErrs": None, "TcpOutSegs": 9.0}
    before |= {
        "dev.lo.rx_bytes": 5.0,
        "dev.lo.rx_drops": 0.0,
        "dev.eth0.rx_bytes": 5.0,
        "dev.eth0.rx_drops": 1.0,
    }
    before |= {"qdisc.eth0.tbf.drops": 2.0, "qdisc.eth0.tbf.backlog": 700.0}
    after = before | {"TcpExtTCPTimeouts": 4.0, "TcpOutSegs": 3.0, "dev.eth0.rx_bytes": 9.0}
    after |= {"qdisc.eth0.tbf.drops": 5.0, "qdisc.eth0.tbf.backlog": 600.0, "dev.new.rx_bytes": 3.0}
    assert grown(before, after) == {
        "TcpExtTCPTimeouts": 3.0,
        "TcpInErrs": None,
        "TcpOutSegs": None,  # ran backwards: unknown
        "dev.eth0.rx_bytes": 4.0,
        "dev.eth0.rx_drops": 0.0,
        "qdisc.eth0.tbf.drops": 3.0,
        "qdisc.eth0.tbf.backlog": 600.0,  # a level
        "dev.new.rx_bytes": None,  # was not there before
    }
