"""bonnie++: its arguments, and what its line of results gives, whole or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.record import unmeasurable
from nearmetal.workloads.applications.bonnie import COLUMNS, MIB, Bonnie
from nearmetal.workloads.applications.contract import Metric, Output, Parsed, Place
from nearmetal.workloads.parameter import Choices, Value

#: What bonnie++ 2.00a printed.
PRINTED = (
    "1.98,2.00a,nearmetal,1,1795262585,100M,,8192,5,1291,98,364216,87,+++++,+++,2173,99,1206866,75,8211,46,"
    ",,,,,,,,,,,,,,,,,8917us,123us,54us,4831us,98us,7482ms,,,,,,\n"
)


def choices(**values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in Bonnie.parameters} | values)


def place(memory: int = 1 << 30) -> Place:
    here = Path("/run/x")
    return Place(nodes=1, instances=1, tasks=1, directory=here, storage=here / "storage", memory=memory)


def parsed(text: str, stderr: str = "", **values: Value) -> Parsed:
    given = choices(characters="yes", **values)
    return Bonnie().parse(given, place(), Output(stdout=text, stderr=stderr))


def by_name(found: Parsed) -> dict[str, Metric]:
    return {m.name: m for m in found.metrics}


def test_every_column_in_base_units() -> None:
    found = by_name(parsed(PRINTED))
    assert {name: m.value for name, m in found.items()} == {
        "sequential_output_character": 1291 * 1024.0,
        "sequential_output_block": 364216 * 1024.0,
        "rewrite": None,
        "sequential_input_character": 2173 * 1024.0,
        "sequential_input_block": 1206866 * 1024.0,
        "random_seek": 8211.0,
    }
    assert "too fast" in found["rewrite"].reason and "larger size" in found["rewrite"].reason
    assert {m.unit for m in found.values()} == {"B/s", "op/s"}


def test_version_cpu_shares_and_latencies_are_facts() -> None:
    facts = parsed(PRINTED, size=100 * MIB).facts
    assert facts["version"] == "2.00a" and facts["size"] == 100 * MIB
    assert facts["cpu"] == {
        "sequential_output_character": 0.98,
        "sequential_output_block": 0.87,
        "sequential_input_character": 0.99,
        "sequential_input_block": 0.75,
        "random_seek": 0.46,
    }
    longest = facts["longest"]
    assert isinstance(longest, dict)
    assert longest["random_seek"] == pytest.approx(7.482) and longest["rewrite"] == pytest.approx(54e-6)


def test_results_that_may_come_from_a_cache_say_so() -> None:
    assert "smaller than the memory" in str(parsed(PRINTED, size=100 * MIB).facts["meets"])
    assert "in part" in str(parsed(PRINTED, size="auto").facts["meets"])
    assert "below the page cache" in str(parsed(PRINTED, mode="direct").facts["meets"])


def test_characters_are_left_out_where_they_are_not_asked_for() -> None:
    names = [name for name, *_ in Bonnie().metrics(choices())]
    assert names == ["sequential_output_block", "rewrite", "sequential_input_block", "random_seek"]
    fast = PRINTED.replace(",1291,98,", ",,,").replace(",2173,99,", ",,,")
    found = Bonnie().parse(choices(), place(), Output(stdout=fast))
    assert [m.name for m in found.metrics] == names
    assert [m.name for m in found.metrics if m.value is None] == ["rewrite"]
    assert "not a positive number" in by_name(parsed(fast))["sequential_input_character"].reason


def test_arguments() -> None:
    argv = Bonnie().command(choices(size=500 * MIB, chunk=1024), place()).argv
    assert argv[:3] == ("/usr/sbin/bonnie++", "-u", "{uid:gid}") and "{storage}" in argv
    assert argv[argv.index("-s") + 1] == "500:1024" and argv[argv.index("-r") + 1] == "250"
    assert "-f" in argv and "-D" not in argv
    beyond = (
        Bonnie().command(choices(size="auto", mode="direct", characters="yes"), place(3 * MIB * 100)).argv
    )
    assert beyond[beyond.index("-s") + 1] == "600:8192" and "-f" not in beyond and "-D" in beyond
    assert not Bonnie().prepare(choices(), place())
    needs = Bonnie().needs(choices())
    assert needs.storage and needs.packages == ("bonnie++",)


def test_characters_have_a_size_of_their_own() -> None:
    def option(**values: Value) -> list[str]:
        return [a for a in Bonnie().command(choices(**values), place(1 << 30)).argv if a.startswith("-f")]

    assert option(characters="no", character_size=2 * MIB) == ["-f"]
    assert option(characters="yes") == []
    assert option(characters="yes", character_size=2 * MIB) == ["-f2"]


def test_what_is_too_fast_to_measure_is_no_failure() -> None:
    fast = PRINTED.replace("1291", "+++++")
    (found,) = [m for m in parsed(fast).metrics if m.name == "sequential_output_character"]
    assert found.value is None and unmeasurable(found.reason)
    broken = PRINTED.replace("1291", "-3")
    (wrong,) = [m for m in parsed(broken).metrics if m.name == "sequential_output_character"]
    assert wrong.value is None and not unmeasurable(wrong.reason)


def test_a_larger_file_takes_longer() -> None:
    seconds = [Bonnie().seconds(choices(size=size * MIB)) for size in (16, 256, 1024)]
    assert seconds == sorted(set(seconds))
    assert Bonnie().seconds(choices(characters="yes", character_size=20 * MIB)) > seconds[-1] + 10


def test_invalid_chunk_size_is_refused_before_bonnie_starts() -> None:
    assert Bonnie().problem(choices(), place()) is None
    assert "power of two" in (Bonnie().problem(choices(chunk=1000), place()) or "")


def test_bonnie_says_itself_why_there_is_nothing() -> None:
    full = "Can't write block.: No space left on device"
    assert all(full in m.reason for m in parsed("", f"Writing intelligently...{full}\n{full}\n").metrics)


@pytest.mark.parametrize("number", ["nan", "inf", "-3", "0", "1,5", "1e99999", "9" * 5000, ""])
def test_text_that_is_no_number_gives_no_value(number: str) -> None:
    found = by_name(parsed(PRINTED.replace(",364216,", f",{number},")))
    value = found["sequential_output_block"].value
    assert value is None or number == "1,5"  # a comma moves the columns: another number, but one


@given(st.text() | st.binary().map(lambda b: b.decode(errors="replace")))
def test_any_text_is_read(text: str) -> None:
    found = parsed(text)
    assert [m.name for m in found.metrics] == list(COLUMNS) and all(m.reason for m in found.metrics)


def test_a_line_that_is_far_too_long_is_read() -> None:
    assert all(m.reason for m in parsed(f"1.98,{'x' * 200_000}").metrics)


@given(st.integers(0, len(PRINTED)), st.text(max_size=5), st.integers(0, 40))
def test_any_truncation_and_damage_is_read(at: int, other: str, length: int) -> None:
    for text in (PRINTED[:at], PRINTED[:at] + other + PRINTED[at + length :]):
        assert all((m.value is None) == bool(m.reason) for m in parsed(text).metrics)
