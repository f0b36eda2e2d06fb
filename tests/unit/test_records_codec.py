"""Records to lines and back: exact, and strict about everything else."""

import base64
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planted_trouble import CONNECTION

from nearmetal.errors import RecordsError
from nearmetal.model.change import replace
from nearmetal.model.record import Connection, Fold, RankPlace, Row, Status, TrialRecord, slice_value
from nearmetal.model.scope import NODE, Scope
from nearmetal.model.study import Better
from nearmetal.model.workloads.profile import CallProfile, PeerProfile, RankProfile
from nearmetal.records.codec import Malformed, UnknownSchema, data_from_line, from_line, to_dict, to_line
from nearmetal.testing.simulate import PLAIN

numbers = st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
counts = st.none() | st.integers(0, 2**63)
measured = st.dictionaries(st.text(max_size=8), st.none() | numbers, max_size=4)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    n = draw(st.integers(0, 5))
    same = st.lists(numbers, min_size=n, max_size=n).map(tuple)
    return Row(
        workload=draw(st.text(max_size=10)),
        metric=draw(st.text(max_size=10)),
        unit=draw(st.sampled_from(["s", "B/s", "FLOP/s"])),
        better=draw(st.sampled_from(Better)),
        values=draw(same),
        status=draw(st.sampled_from(Status)),
        reason=draw(st.text(max_size=10)),
        seconds=draw(st.just(()) | same),
        work=draw(st.just(0.0) | st.floats(1e-3, 1e15)) if n else 0.0,
        parts=draw(st.dictionaries(st.text(max_size=5), same, max_size=2)),
        verification=draw(st.dictionaries(st.text(max_size=5), json_values, max_size=2)),
    )


places = st.builds(
    RankPlace,
    rank=st.integers(0, 9),
    host=st.text(max_size=8),
    cpus=st.lists(st.integers(0, 300), max_size=4).map(tuple),
    namespaces=st.dictionaries(st.sampled_from(["mnt", "net"]), st.integers(0, 2**40)),
)
scopes = st.text(max_size=8).map(Scope.parse)
connections = st.builds(
    Connection,
    scope=scopes,
    **dict.fromkeys(("local", "remote"), st.text(max_size=8)),
    congestion_control=st.none() | st.text(max_size=5),
    **dict.fromkeys(("rto", "rtt", "rttvar", "timeout_seconds"), st.none() | numbers),
    **dict.fromkeys(("cwnd", "retransmitted", "lost", "timeouts", "timeout_runs"), counts),
    **dict.fromkeys(("bytes_acked", "bytes_received"), counts),
)
whole = st.integers(0, 2**53)
profiles = st.builds(
    RankProfile,
    rank=st.integers(0, 9),
    complete=st.booleans(),
    before=numbers,
    init=numbers,
    compute=numbers,
    communication=numbers,
    finalize=numbers,
    calls=st.dictionaries(
        st.text(max_size=8), st.builds(CallProfile, count=whole, seconds=numbers, bytes=whole), max_size=2
    ),
    peers=st.lists(
        st.builds(PeerProfile, rank=st.integers(-1, 9), messages=whole, bytes=whole), max_size=2
    ).map(tuple),
)
records = st.builds(
    TrialRecord,
    run=st.text(max_size=8),
    trial=st.text(max_size=8),
    block=st.integers(0, 10**6),
    attempt=st.integers(1, 99),
    arm=st.text(max_size=8),
    aa=st.booleans(),
    position=st.integers(0, 99),
    begin=numbers,
    end=numbers,
    fold=st.sampled_from(Fold),
    status=st.sampled_from(Status),
    reason=st.text(max_size=8),
    rows=st.lists(rows(), max_size=3).map(tuple),
    places=st.lists(places, max_size=2).map(tuple),
    transport=st.dictionaries(st.text(max_size=5), json_values, max_size=2),
    counters=st.dictionaries(scopes, measured, max_size=2),
    disturbance=measured,
    flags=st.lists(st.text(max_size=8), max_size=2).map(tuple),
    phases=st.dictionaries(st.text(max_size=5), numbers, max_size=2),
    network=st.dictionaries(scopes, measured, max_size=2),
    connections=st.none() | st.lists(connections, max_size=2).map(tuple),
    profile=st.dictionaries(st.text(max_size=5), st.lists(profiles, max_size=2).map(tuple), max_size=2),
)


def ticks(*numbers: int) -> bytes:
    """Whole numbers as a line contains them."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}I", *numbers))


def of_schema_2(line: bytes) -> bytes:
    """The line as the schema before stored it: ticks as JSON numbers."""
    data = json.loads(line)
    for row in data["rows"]:
        for name, text in (("seconds", row.pop("ticks", "")), *row.pop("part_ticks", {}).items()):
            found = [n for (n,) in struct.iter_unpack("<I", base64.b64decode(text))]
            if name == "seconds":
                row["seconds"] = found or row.get("seconds", [])
            else:
                row.setdefault("parts", {})[name] = found
    return json.dumps({**data, "schema": 2}, separators=(",", ":")).encode() + b"\n"


@given(records)
def test_round_trip_is_exact(record: TrialRecord) -> None:
    line = to_line(record)
    assert line.count(b"\n") == 1
    assert from_line(line) == record
    assert from_line(json.dumps(to_dict(record)).encode()) == record


def test_a_record_without_a_network_is_as_it_was_before_there_were_any() -> None:
    line = to_line(PLAIN)
    assert b"network" not in line and b"connections" not in line
    back = from_line(line)
    assert (back.network, back.connections) == ({}, None)
    assert from_line(to_line(replace(PLAIN, connections=()))).connections == ()


def test_none_stays_none_and_never_becomes_zero() -> None:
    back = from_line(to_line(PLAIN))
    assert back.counters[NODE]["steal"] is None
    assert back.counters[NODE]["user"] == 0.5


def test_a_record_from_before_profiles_is_read() -> None:
    assert b"profile" not in to_line(PLAIN)
    assert from_line(to_line(PLAIN)).profile == {}


def test_whole_numbers_are_read_as_floats() -> None:
    line = of_schema_2(to_line(PLAIN)).replace(b"[10000000,20000000]", b"[1000000000,2000000000]")
    values = from_line(line).rows[0].seconds
    assert values == (1.0, 2.0)
    assert {type(v) for v in values} == {float}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_values_are_refused_on_writing(bad: float) -> None:
    row = replace(PLAIN.rows[0], values=(bad, 1.0))
    with pytest.raises(RecordsError, match=r"3\.native/1x2"):
        to_line(replace(PLAIN, rows=(row,)))


def test_a_scope_that_is_no_text_is_malformed() -> None:
    line = to_line(replace(PLAIN, connections=(CONNECTION,)))
    with pytest.raises(Malformed, match=r"connections\[0\].scope"):
        from_line(line.replace(b'"scope":"instance.a"', b'"scope":5'))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b"[7", b"[NaN,7", "malformed"),
        (b"[7", b"[1e999,7", r"rows\[0\].values"),
        (b"[7", b'["7",7', r"rows\[0\].values"),
        (b"[7", b"[true,7", r"rows\[0\].values"),
        (b"[7", b"[null,7", r"rows\[0\].values"),
        (b'"block":3', b'"block":3.0', "block"),
        (b'"block":3', b'"block":true', "block"),
        (b'"block":3', b'"block":"3"', "block"),
        (b'"aa":false', b'"aa":0', "aa"),
        (b'"fold":"paired"', b'"fold":"pairs"', "fold"),
        (b'"better":"higher"', b'"better":"up"', "better"),
        (b'"status":"ok"', b'"status":"OK"', "status"),
        (b'"run":"nearmetal-1",', b"", "run"),
        (b'"run"', b'"walk"', "run|walk"),
        (b'"metric"', b'"extra":1,"metric"', r"extra.*rows\[0\]"),
        (ticks(10**7, 2 * 10**7), ticks(10**7), "seconds"),
        (ticks(0, 10**6), ticks(0, 1, 2), "comm"),
        (ticks(0, 10**6), b"AAAAAAAA", "part_ticks.comm of triad: 6 bytes"),
        (ticks(0, 10**6), b"AAAA*AAA", r"base64.*rows\[0\].part_ticks"),
        (b'"ticks":"', b'"seconds":[0.5],"ticks":"', "beside"),
        (b'"part_ticks"', b'"parts":{"comm":[1]},"part_ticks"', "beside"),
        (b'"ticks_per_second":1', b'"ticks_per_second":-1', "ticks_per_second"),
        (b'"ticks_per_second":1000000000,', b"", "without ticks_per_second"),
        (b'"user":0.5', b'"user":"0.5"', "counters"),
        (b"}]", b"}", r"rows\[1\]"),
    ],
)
def test_a_line_that_breaks_the_schema_says_where(before: bytes, after: bytes, said: str) -> None:
    line = to_line(PLAIN)
    assert before in line
    with pytest.raises(Malformed, match=said):
        from_line(line.replace(before, after, 1))


@given(st.binary(max_size=60))
def test_noise_is_malformed_and_nothing_else(noise: bytes) -> None:
    with pytest.raises((Malformed, UnknownSchema)):
        from_line(noise)


@given(records, st.data())
def test_a_cut_line_is_malformed(record: TrialRecord, data: st.DataObject) -> None:
    line = to_line(record)
    cut = data.draw(st.integers(0, len(line) - 3))
    with pytest.raises(Malformed):
        from_line(line[:cut])


@pytest.mark.parametrize("version", ["4", "0", "null", '"1"', "true"])
def test_another_schema_is_named_with_what_to_do(version: str) -> None:
    line = to_line(PLAIN).replace(b'"schema":3', f'"schema":{version}'.encode())
    with pytest.raises(UnknownSchema) as e:
        from_line(line)
    assert "upgrade" in e.value.remedy


@given(
    st.sampled_from(Better),
    st.floats(1e-3, 1e15),
    st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=50),
)
def test_values_that_follow_from_seconds_and_work_are_not_stored_but_read(
    better: Better, work: float, seconds: list[float]
) -> None:
    values = tuple(slice_value(better, work, s) for s in seconds)
    row = replace(PLAIN.rows[0], better=better, values=values, seconds=tuple(seconds), work=work, parts={})
    line = to_line(replace(PLAIN, rows=(row,)))
    assert b'"values":[]' in line
    assert from_line(line).rows == (row,), "to the last bit"
    other = replace(row, values=(*values[:-1], 2 * values[-1]))
    assert from_line(to_line(replace(PLAIN, rows=(other,)))).rows == (other,)


def test_rows_with_the_same_seconds_store_them_alike() -> None:
    """The analysis adds such seconds only once, and recognises them by what is stored."""
    plain = replace(PLAIN.rows[0], values=(1.0, 2.0), seconds=(0.001, 0.002), work=0.0, parts={})
    rows = (plain, replace(plain, metric="b", parts={"comm": (1 / 3, 1 / 7)}), replace(plain, metric="c"))
    line = to_line(replace(PLAIN, rows=rows))
    assert {bytes(row.seconds) for row in data_from_line(line).rows} == {b"[0.001,0.002]"}
    assert from_line(line).rows == rows


@pytest.mark.parametrize("digits", [25, 400])
def test_an_impossible_number_of_ticks_is_malformed(digits: int) -> None:
    row = replace(PLAIN.rows[0], values=(1.0,), seconds=(0.5,), work=0.0, parts={})
    line = to_line(replace(PLAIN, rows=(row,))).replace(b"1000000000", b"9" * digits)
    for read in (from_line, data_from_line):
        with pytest.raises(Malformed):
            read(line)


def test_a_part_that_never_changes_is_stored_once() -> None:
    row = replace(
        PLAIN.rows[0], values=(1.0, 2.0, 3.0), seconds=(), parts={"comm": (0.0,) * 3, "x": (1.0, 2.0, 3.0)}
    )
    line = to_line(replace(PLAIN, rows=(row,)))
    assert ticks(0) in line and from_line(line).rows == (row,)
    with pytest.raises(Malformed, match=r"parts\.comm"):
        from_line(line.replace(ticks(0), ticks(0, 0)))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20), st.booleans())
def test_whole_nanoseconds_are_stored_as_whole_numbers(whole: list[int], part: bool) -> None:
    seconds = tuple(t / 1e9 for t in whole)
    parts = {"comm": seconds} if part else {}
    row = replace(PLAIN.rows[0], values=seconds, seconds=seconds, work=0.0, parts=parts)
    line = to_line(replace(PLAIN, rows=(row,)))
    assert b'"ticks":"' + ticks(*whole) + b'"' in line
    assert from_line(line).rows == (row,), "to the last bit"
    assert from_line(of_schema_2(line)).rows == (row,)


@pytest.mark.parametrize("other", [1.5e-9, -1e-9, -0.0, 2**32 / 1e9, 0.1 + 2**-53, 5e-324])
def test_seconds_that_are_no_nanoseconds_are_stored_as_they_are(other: float) -> None:
    row = replace(PLAIN.rows[0], values=(1.0, 2.0), seconds=(0.5, other), work=0.0, parts={})
    line = to_line(replace(PLAIN, rows=(row,)))
    assert b"ticks_per_second" not in line
    assert str(from_line(line).rows) == str((row,)), "with the sign of zero"


def test_lines_of_the_schemas_before_are_read() -> None:
    line = of_schema_2(to_line(PLAIN))
    assert from_line(line) == PLAIN
    for whole, fraction in (
        (b'"schema":2', b'"schema":1'),
        (b"[10000000,20000000]", b"[0.01,0.02]"),
        (b"[0,1000000]", b"[0.0,0.001]"),
        (b'"ticks_per_second":1000000000,', b""),
    ):
        assert whole in line
        line = line.replace(whole, fraction)
    assert from_line(line) == PLAIN
    assert from_line(json.dumps(json.loads(line)).encode()) == PLAIN


def test_a_line_without_a_schema_is_unknown() -> None:
    with pytest.raises(UnknownSchema, match="none"):
        from_line(b'{"run":"x"}')


def test_a_line_that_another_program_wrote_with_spaces_is_read() -> None:
    data = json.loads(to_line(PLAIN))
    data = {"run": data.pop("run"), **data}
    assert from_line(json.dumps(data, indent=1).encode()) == PLAIN
