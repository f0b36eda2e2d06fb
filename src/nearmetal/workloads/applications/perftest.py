"""RDMA between two ranks, measured by Debian's perftest: ib_write_bw, ib_write_lat and similar programs.

Each program runs as server and as client, which find each other over TCP: rank 0 writes its address to the
directory that all instances share, and rank 1 waits for it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...model.study import Better
from ..numbers import number
from ..parameter import AUTO, Choices, Kind, Parameter
from ..program_output import ending
from .contract import Application, Invocation, Needs, Output, Parsed, Place, metrics_of

_OUTPUT, _SCRIPT = "client.txt", "pair.sh"
_TESTS = ("ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat")
_COLUMN = re.compile(r"([^\s\[\]]{1,40})\[([^\s\[\]]{1,20})\]")
# perftest's MB has 2^20 bytes (printed as MiB since 2023), its Gb has 10^9 bits.
_UNITS = {"MB/sec": 2.0**20, "MiB/sec": 2.0**20, "Gb/sec": 1e9 / 8, "Mpps": 1e6, "usec": 1e-6}
_BANDWIDTH = (("bandwidth", "B/s", Better.HIGHER, "average"), ("messages", "op/s", Better.HIGHER, "MsgRate"))
_LATENCY = (
    ("latency", "s", Better.LOWER, "t_typical"),
    ("latency-mean", "s", Better.LOWER, "t_avg"),
    ("latency-p99", "s", Better.LOWER, "percentile"),
)
_EMPTY = "no RDMA device: /sys/class/infiniband is empty"
# $1: the program, $2: file of the client's output, the rest: its arguments. Further ranks have nothing to do.
# The server may start listening a moment after it wrote its address, so the client retries.
_PAIR = """\
program=$1 output=$2
shift 2
case ${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}} in
0)
    set -- "$program" "$@"
    address=$(hostname -I 2>/dev/null) || address=
    echo "${address%% *}" >server.part
    mv server.part server
    exec "$@" >/dev/null
    ;;
1)
    tries=0
    while [ ! -s server ]; do
        tries=$((tries + 1))
        [ $tries -le 300 ] || { echo "rank 0 did not write its address" >&2; exit 1; }
        sleep 0.1
    done
    read -r address <server
    tries=0
    until "$program" "$@" "${address:-localhost}" >"$output" 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 20 ] || { cat "$output" >&2; exit 1; }
        sleep 0.25
    done
    ;;
esac
"""


class Perftest(Application):
    name = "perftest"
    doc = "RDMA between two ranks: perftest's ib_write_bw, ib_write_lat and their like"
    parameters: tuple[Parameter, ...] = (
        Parameter("test", Kind.WORD, _TESTS[0], "which of them", words=_TESTS),
        Parameter("device", Kind.TEXT, AUTO, "the RDMA device; auto: the first"),
        Parameter(
            "size",
            Kind.BYTES,
            AUTO,
            "of a message; auto: 64 KiB for bandwidth, 2 B for latency",
            most=1 << 30,
        ),
        Parameter("iterations", Kind.WHOLE, 5000, "messages", least=5, most=10_000_000),
    )

    def needs(self, choices: Choices) -> Needs:
        return Needs(programs=(choices.word("test"), "hostname"), packages=("perftest", "hostname"))

    def problem(self, choices: Choices, place: Place) -> str | None:
        if not place.rdma:
            return _EMPTY
        device = choices.word("device")
        if device != AUTO and device not in place.rdma:
            return f"no RDMA device {device[:40]}; there is {', '.join(place.rdma)}"
        return None if place.ranks >= 2 else "perftest needs two ranks"

    def command(self, choices: Choices, place: Place) -> Invocation:
        device = choices.word("device")
        size = choices.whole("size") or (2 if _latency(choices) else 65536)
        named = (*place.rdma, "")[0] if device == AUTO else device
        words = ["-F", "-d", named, "-s", str(size), "-n", choices.word("iterations")]
        if not _latency(choices):
            words.append("--report_gbits")
        return Invocation(
            argv=("sh", _SCRIPT, choices.word("test"), _OUTPUT, *words),
            mpi=True,
            files={_SCRIPT: _PAIR},
            outputs=(_OUTPUT, "server"),
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return tuple((name, unit, better) for name, unit, better, _ in _columns(choices))

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        text = output.files.get(_OUTPUT, "")
        row, columns = _row(text), {name: column for name, _, _, column in _columns(choices)}
        values = {name: row[column] for name, column in columns.items() if column in row}
        return Parsed(
            metrics=metrics_of(
                self.metrics(choices),
                values,
                lambda name: f"{choices.word('test')} reports no {columns[name]}; {ending(text)}",
            ),
            facts={"test": choices.word("test")},
        )


def _columns(choices: Choices) -> tuple[tuple[str, str, Better, str], ...]:
    return _LATENCY if _latency(choices) else _BANDWIDTH


def _latency(choices: Choices) -> bool:
    return choices.word("test").endswith("_lat")


def _row(text: str) -> Mapping[str, float]:
    """Return the values of the table's last line in base units, by the last word of each column's heading.

    If two headings end in the same word (99th percentile), the first is used. Values that are not positive
    are ignored.
    """
    columns: list[tuple[str, float]] = []
    found: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split() if len(line) <= 1000 else []
        if words and words[0] == "#bytes":
            columns = [(m[1], _UNITS.get(m[2], 0.0)) for m in _COLUMN.finditer(line)]
        elif columns and len(words) == len(columns) + 2 and number(words[0]) is not None:
            found = {}
            for (name, scale), word in zip(columns, words[2:], strict=True):
                value = number(word)
                if value is not None and value * scale > 0:
                    found.setdefault(name, value * scale)
    return found
