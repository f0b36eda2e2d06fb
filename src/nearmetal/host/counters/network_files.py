"""Parsers of counter files in /proc/net, from bytes to numbers by the names of nstat(8). No I/O.

A missing value is None, never 0.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import lru_cache

from .procfiles import Counters

RETRANSMITTED = "TcpRetransSegs"
TIMEOUTS = "TcpExtTCPTimeouts"
PROBES = "TcpExtTCPLossProbes"
"""Tail loss probes: segments that TCP sends after a short silence to provoke an acknowledgement.

Most probes repeat a segment, although few of these segments were lost.
"""

#: Counters that indicate losses, by file, with the names of nstat. The other 300 or so are not recorded.
PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    "netstat": (
        TIMEOUTS,
        "TcpExtTCPLostRetransmit",
        "TcpExtTCPFastRetrans",
        "TcpExtTCPSlowStartRetrans",
        "TcpExtTCPSynRetrans",
        "TcpExtTCPRetransFail",
        "TcpExtTCPSpuriousRTOs",
        PROBES,
        "TcpExtTCPBacklogDrop",
        "TcpExtTCPRcvQDrop",
        "TcpExtTCPOFODrop",
        "TcpExtTCPZeroWindowDrop",
        "TcpExtPruneCalled",
        "TcpExtRcvPruned",
        "TcpExtOfoPruned",
        "TcpExtListenDrops",
    ),
    "snmp": (
        RETRANSMITTED,
        "TcpOutSegs",
        "TcpInErrs",
        "UdpInErrors",
        "UdpRcvbufErrors",
        "UdpSndbufErrors",
        "IpInDiscards",
        "IpOutDiscards",
    ),
}
#: Columns of /proc/net/dev that are kept: rx first, tx from the ninth on.
_DEVICE = {
    "rx_bytes": 0,
    "rx_packets": 1,
    "rx_errors": 2,
    "rx_drops": 3,
    "tx_bytes": 8,
    "tx_packets": 9,
    "tx_errors": 10,
    "tx_drops": 11,
}
_ROW = 1 << 10
_LAST_COLUMN = max(_DEVICE.values())
_SOFTNET = ("processed", "dropped", "squeezed")
_SOFTNET_CPU = 12


def protocol_counters(name: str, text: bytes) -> Counters:
    """Return the counters of PROTOCOLS from 'netstat' or 'snmp'; None for a counter that this kernel does not
    have.

    The files contain a line of names for each protocol, and a line of numbers below it.
    """
    out: Counters = dict.fromkeys(PROTOCOLS[name])
    lines = text.split(b"\n")
    for head, line in zip(lines[::2], lines[1::2], strict=False):
        columns = _columns(name, head)
        words = line.split() if columns else []
        if words and head.startswith(words[0] + b" "):
            for column, counter in columns:
                if column < len(words):
                    out[counter] = _whole(words[column])
    return out


def segments_sent_again(snmp: bytes) -> float | None:
    """Return only TcpRetransSegs. This takes a third of the time of a full parse; it is read around every
    timed part."""
    at = snmp.find(b"Tcp: ")
    head, _, rest = snmp[at : at + _ROW].partition(b"\n") if at >= 0 else (b"", b"", b"")
    words = rest.partition(b"\n")[0].split()
    for column, name in _columns("snmp", head):
        if name == RETRANSMITTED and column < len(words) and words[0] == b"Tcp:":
            return _whole(words[column])
    return None


@lru_cache(maxsize=64)
def _columns(name: str, head: bytes) -> tuple[tuple[int, str], ...]:
    """Return (column, name) of each counter of this protocol that is used, from the header line of its file.

    The result is cached, because the header never changes.
    """
    words = head.decode("ascii", "replace").split()
    if not words or not words[0].endswith(":"):
        return ()
    names = [words[0][:-1] + word for word in words]
    return tuple((names.index(wanted), wanted) for wanted in PROTOCOLS[name] if wanted in names[1:])


def device_counters(text: bytes, devices: Container[str] | None = None) -> Counters:
    """Parse /proc/net/dev and return bytes, packets, errors and drops as 'dev.<device>.rx_drops' and so on.

    devices: names of the devices to return; None for all.
    """
    out: Counters = {}
    for line in text.splitlines():
        device, colon, rest = line.partition(b":")
        if not colon or (devices is not None and device.strip().decode("ascii", "replace") not in devices):
            continue
        numbers = rest.split()
        if len(numbers) > _LAST_COLUMN:
            for column, name in _device_names(device):
                out[name] = _whole(numbers[column])
    return out


def device_names(text: bytes) -> set[str]:
    """Return the names of the interfaces in /proc/net/dev."""
    lines = (line.partition(b":") for line in text.splitlines())
    return {name.strip().decode("ascii", "replace") for name, colon, _ in lines if colon}


@lru_cache(maxsize=1024)
def _device_names(device: bytes) -> tuple[tuple[int, str], ...]:
    name = device.strip().decode("ascii", "replace")
    return tuple((at, f"dev.{name}.{column}") for column, at in _DEVICE.items())


def softnet_counters(text: bytes) -> Counters:
    """Parse /proc/net/softnet_stat. The counters are those of the whole node, in any namespace.

    'softnet.processed': packets that the CPUs received.
    'softnet.dropped', and '.cpu<n>' by CPU: packets dropped because the backlog of a CPU was full.
    'softnet.squeezed': how often a CPU had to stop with packets left.
    """
    out: Counters = dict.fromkeys(f"softnet.{kind}" for kind in _SOFTNET)
    for row, line in enumerate(text.splitlines()):
        words = line.split()
        try:
            numbers = [int(word, 16) for word in words[: len(_SOFTNET)]]
            cpu = int(words[_SOFTNET_CPU], 16) if len(words) > _SOFTNET_CPU else row
        except ValueError:
            continue
        if len(numbers) < len(_SOFTNET):
            continue
        for kind, number in zip(_SOFTNET, numbers, strict=False):
            out[f"softnet.{kind}"] = (out[f"softnet.{kind}"] or 0.0) + number
        out[f"softnet.dropped.cpu{cpu}"] = float(numbers[1])
    return out


def _whole(word: bytes) -> float | None:
    return float(word) if word.isdigit() and len(word) <= 20 else None
