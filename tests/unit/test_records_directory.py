"""The results directory: nothing lost, torn lines dropped and counted, a full disk stops clearly."""

import errno
import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearmetal.errors import DiskFullError, RecordsError
from nearmetal.model.change import replace
from nearmetal.model.plan import ExpectedLooks, GrowingLooks
from nearmetal.model.record import Status, TrialRecord
from nearmetal.records import ResultsDirectory, completed_blocks, counted_attempts, last_attempts, safe_name
from nearmetal.records.codec import to_line
from nearmetal.testing.simulate import PLAIN


def record(block: int, position: int, attempt: int = 1) -> TrialRecord:
    return replace(PLAIN, trial=f"{block}.{position}", block=block, position=position, attempt=attempt)


@pytest.fixture
def directory(tmp_path: Path) -> ResultsDirectory:
    made = ResultsDirectory.create(tmp_path / "results", "quick", study_yaml="name: quick\n")
    made.freeze(seed=7, arms=("a", "b"), provenance={"cpu": {"model": "x"}})
    return made


def test_create_freeze_open(tmp_path: Path) -> None:
    made = ResultsDirectory.create(tmp_path, "quick/x", study_yaml="é\n")
    assert made.name.startswith("quick~x-20")
    with pytest.raises(RecordsError, match="before its first round"):
        made.plan()
    with pytest.raises(RecordsError, match="before the plan"):
        made.writer()
    plan = made.freeze(seed=7, arms=["a"], provenance={"n": 1}, rehearsal=[PLAIN])
    again = ResultsDirectory.open(made.path)
    assert again.plan() == plan
    assert (plan.study, plan.seed, plan.schedule, plan.arms) == ("quick~x", 7, GrowingLooks(), ("a",))
    assert again.study_yaml == "é\n"
    assert again.provenance == {"n": 1}
    assert tuple(again.trials()) == ()  # the rehearsal is kept apart
    assert (made.path / "rehearsal.jsonl").read_bytes() == to_line(PLAIN)
    with pytest.raises(RecordsError, match="fixed already"):
        made.freeze(seed=8, arms=["a"], provenance={})


def test_plan_json_names_the_schedule(directory: ResultsDirectory) -> None:
    kept = json.loads((directory.path / "plan.json").read_text())
    assert kept["schedule"] == {"name": "growing looks", "closing": []}
    assert "expected_blocks" not in kept


def test_a_closing_look_is_added_once_for_every_end(directory: ResultsDirectory) -> None:
    assert directory.close_looks(0).schedule == GrowingLooks()  # no block was measured
    assert directory.close_looks(14).schedule == GrowingLooks(closing=(14,))
    assert directory.close_looks(14).schedule == GrowingLooks(closing=(14,))
    changed = directory.close_looks(31)
    assert changed.schedule == GrowingLooks(closing=(14, 31))
    assert ResultsDirectory.open(directory.path).plan() == changed


def test_the_first_look_is_kept(tmp_path: Path) -> None:
    made = ResultsDirectory.create(tmp_path, "quick", study_yaml="name: quick\n")
    plan = made.freeze(seed=7, arms=("a",), provenance={}, schedule=GrowingLooks(first=11))
    assert ResultsDirectory.open(made.path).plan() == plan
    assert made.close_looks(20).schedule == GrowingLooks(closing=(20,), first=11)


def test_when_the_command_was_started_is_kept(tmp_path: Path) -> None:
    made = ResultsDirectory.create(tmp_path, "quick", study_yaml="name: quick\n")
    plan = made.freeze(seed=7, arms=("a",), provenance={}, started=1790000000.25)
    assert ResultsDirectory.open(made.path).plan() == plan and plan.started == 1790000000.25


def old_plan(directory: ResultsDirectory) -> None:
    """plan.json as it was before November 2026."""
    old = {"schema": 1, "study": "quick", "seed": 1, "expected_blocks": 33, "arms": ["a"], "created": 5.0}
    (directory.path / "plan.json").write_text(
        json.dumps({**old, "slices": {"ep": 8}, "rehearsed_blocks": 40})
    )


def test_an_old_plan_keeps_its_schedule(directory: ResultsDirectory) -> None:
    old_plan(directory)
    plan = directory.plan()
    assert plan.schedule == ExpectedLooks(expected=33) and plan.started is None
    before = (directory.path / "plan.json").read_bytes()
    assert directory.close_looks(20) == plan  # its schedule has no closing looks
    assert (directory.path / "plan.json").read_bytes() == before


def test_a_schedule_of_another_kind_is_refused(directory: ResultsDirectory) -> None:
    file = directory.path / "plan.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "schedule": {"name": "moon"}}))
    with pytest.raises(RecordsError, match="moon"):
        directory.plan()


@pytest.mark.parametrize("damage", [{"slices": [8]}, {"work": {"cg": 5}}, {"arms": 1}, {"seed": "x"}])
def test_a_damaged_plan_is_a_corrupt_one(directory: ResultsDirectory, damage: dict[str, object]) -> None:
    file = directory.path / "plan.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    with pytest.raises(RecordsError, match="corrupt") as e:
        directory.plan()
    assert e.value.where == str(file)


def test_two_runs_in_one_second_get_directories_of_their_own(tmp_path: Path) -> None:
    names = {ResultsDirectory.create(tmp_path, "q", study_yaml="").name for _ in range(5)}
    assert len(names) == 5


def test_open_of_a_directory_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"no study\.yaml"):
        ResultsDirectory.open(tmp_path)


def test_a_plan_of_another_schema_is_refused(directory: ResultsDirectory) -> None:
    file = directory.path / "plan.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": 3}))
    with pytest.raises(RecordsError, match="schema 3"):
        directory.plan()


def test_writers_are_merged_in_order(directory: ResultsDirectory) -> None:
    wanted = [record(b, p) for b in range(3) for p in range(4)]
    shuffled = random.Random(1).sample(wanted, len(wanted))
    with directory.writer("one") as one, directory.writer("two") as two:
        for i, r in enumerate(shuffled):
            (one if i % 2 else two).append(r)
    trials = directory.trials()
    assert list(trials) == wanted
    assert trials.torn == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(cut=st.integers(1, len(to_line(record(0, 2))) - 1))
def test_killed_at_any_byte_loses_one_line_at_most(directory: ResultsDirectory, cut: int) -> None:
    file = directory.path / "trials" / "local.jsonl"
    whole = to_line(record(0, 0)) + to_line(record(0, 1))
    file.write_bytes(whole + to_line(record(0, 2))[:cut])
    trials = directory.trials()
    assert [r.position for r in trials] == [0, 1]
    assert trials.torn == 1
    with directory.writer() as writer:  # the next writer cuts the torn line off and goes on behind it
        assert writer.torn == 1
        assert file.read_bytes() == whole
        writer.append(record(0, 3))
    assert [r.position for r in tuple(directory.trials())] == [0, 1, 3]


def test_a_size_without_its_data_is_a_torn_line(directory: ResultsDirectory) -> None:
    file = directory.path / "trials" / "local.jsonl"
    file.write_bytes(to_line(record(0, 0)) + b"\0" * 30 + b"\n")
    assert directory.trials().torn == 1
    with directory.writer() as writer:
        assert writer.torn == 1
    assert file.read_bytes() == to_line(record(0, 0))


@pytest.mark.parametrize("content", [b"", b'{"schema":1,', b"\n", b"x" * (1 << 21)])
def test_a_file_with_nothing_whole_in_it(directory: ResultsDirectory, content: bytes) -> None:
    file = directory.path / "trials" / "local.jsonl"
    file.write_bytes(content)
    assert list(directory.trials()) == []
    assert directory.trials().torn == (1 if content else 0)
    with directory.writer() as writer:
        writer.append(record(1, 1))
    assert tuple(directory.trials()) == (record(1, 1),)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"members": 3, "left_out": ("ep", "cg")},
        {"facts": {"x": {"members": 3}}},
        {"run": 'a"b\\\\', "arm": 'a"b', "reason": ',"members":9}'},
        {"begin": -1e-7, "end": 1e22, "block": -1, "aa": True, "status": Status.FAILED},
    ],
)
def test_trial_of_a_line_is_identified_without_decoding_the_line(
    directory: ResultsDirectory, changed: dict[str, object]
) -> None:
    wanted = replace(record(2, 1, 3), **changed)
    file = directory.path / "trials" / "local.jsonl"
    turned = json.dumps(dict(reversed(json.loads(to_line(wanted)).items()))).encode() + b"\n"
    for line in (to_line(wanted), turned):
        file.write_bytes(to_line(record(0, 0)) + line)
        trials = directory.trials()
        head = next(h for h in trials.heads if h.attempt == 3)
        for name in ("block", "attempt", "arm", "aa", "position", "begin", "end", "status", "members"):
            assert getattr(head, name) == getattr(wanted, name)
        assert trials[trials.heads.index(head)] == wanted
        assert sorted(trials[:], key=lambda r: r.block) == sorted(trials, key=lambda r: r.block)


def test_a_record_is_corrupt_only_for_who_reads_it(directory: ResultsDirectory) -> None:
    file = directory.path / "trials" / "w.jsonl"
    bad = to_line(record(0, 1)).replace(b'"rows":[', b'"rows":[7,')
    file.write_bytes(to_line(record(0, 0)) + bad + to_line(record(0, 2)))
    trials = directory.trials()
    assert [trials[at].position for at in (0, 2)] == [0, 2]
    with pytest.raises(RecordsError) as e:
        trials[1]
    assert e.value.where == f"{file}:2"


def test_a_long_last_line_is_found(directory: ResultsDirectory) -> None:
    long = replace(record(0, 1), reason="x" * (3 << 20))
    with directory.writer() as writer:
        writer.append(record(0, 0))
        writer.append(long)
    with directory.writer() as writer:
        assert writer.torn == 0
    assert directory.trials()[1] == long


def test_corrupt_in_the_middle_names_the_line(directory: ResultsDirectory) -> None:
    file = directory.path / "trials" / "w.jsonl"
    file.write_bytes(to_line(record(0, 0)) + b'{"schema":1,"run":\n' + to_line(record(0, 1)))
    with pytest.raises(RecordsError) as e:
        tuple(directory.trials())
    assert e.value.where == f"{file}:2"


@pytest.mark.parametrize("name", ["run", "arm"])
def test_a_name_that_is_not_utf_8_is_a_corrupt_record(directory: ResultsDirectory, name: str) -> None:
    file = directory.path / "trials" / "w.jsonl"
    bad = to_line(record(0, 1)).replace(f'"{name}":"'.encode(), f'"{name}":"'.encode() + b"\xff")
    file.write_bytes(to_line(record(0, 0)) + bad + to_line(record(0, 2)))
    with pytest.raises(RecordsError, match="corrupt record") as e:
        directory.trials()
    assert e.value.where == f"{file}:2"


def test_another_schema_names_the_line_and_the_remedy(directory: ResultsDirectory) -> None:
    file = directory.path / "trials" / "w.jsonl"
    file.write_bytes(to_line(record(0, 0)) + to_line(record(0, 1)).replace(b":3,", b":9,", 1))
    with pytest.raises(RecordsError, match="schema 9") as e:
        tuple(directory.trials())
    assert e.value.where == f"{file}:2"
    assert "upgrade" in e.value.remedy


def test_a_second_writer_of_the_same_file_is_refused(directory: ResultsDirectory) -> None:
    with directory.writer("w"), pytest.raises(RecordsError, match="another process"):
        directory.writer("w")
    directory.writer("w").close()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_names_of_writers_stay_in_their_directory(directory: ResultsDirectory, name: str) -> None:
    with pytest.raises(RecordsError, match="cannot name a writer"):
        directory.writer(name)


def write_short_then_fail(code: int) -> Callable[[int, bytes], int]:
    real, calls = os.write, [0]

    def write(fd: int, data: bytes) -> int:
        calls[0] += 1
        if calls[0] == 1:
            return real(fd, bytes(data)[:17])
        raise OSError(code, os.strerror(code))

    return write


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_full_disk_leaves_earlier_records_whole(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = directory.path / "trials" / "local.jsonl"
    with directory.writer() as writer:
        writer.append(record(0, 0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write_short_then_fail(code))
            with pytest.raises(DiskFullError) as e:
                writer.append(record(0, 1))
        assert e.value.where == str(directory.path)
        assert file.read_bytes() == to_line(record(0, 0))
        writer.append(record(0, 1))  # room was made
    assert [r.position for r in tuple(directory.trials())] == [0, 1]


def test_a_failed_fsync_takes_its_line_back(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with directory.writer() as writer:
        writer.append(record(0, 0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "bad disk")))
            with pytest.raises(DiskFullError):
                writer.append(record(0, 1))
    assert [r.position for r in tuple(directory.trials())] == [0]


def test_ctrl_c_between_two_halves_leaves_no_half(
    directory: ResultsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    with directory.writer() as writer:
        writer.append(record(0, 0))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupt)
            with pytest.raises(KeyboardInterrupt):
                writer.append(record(0, 1))
    assert (directory.path / "trials" / "local.jsonl").read_bytes() == to_line(record(0, 0))


def test_no_room_for_a_new_directory_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", write_short_then_fail(errno.ENOSPC))
    with pytest.raises(DiskFullError):
        ResultsDirectory.create(tmp_path / "results", "quick", study_yaml="name: quick\n" * 10)
    assert list((tmp_path / "results").iterdir()) == []


def test_blocks_and_attempts() -> None:
    records = [record(1, 0), record(1, 1), record(2, 0), record(2, 0, 2), record(2, 1, 2), record(3, 1)]
    assert completed_blocks(records, 2) == {1, 2}
    assert last_attempts(records) == {1: 1, 2: 2, 3: 1}
    again = [*records, record(1, 0, 2), record(1, 1, 2)]
    kept = [(r.block, r.position, r.attempt) for r in counted_attempts(again)]
    assert kept == [(1, 0, 1), (1, 1, 1), (2, 0, 2), (2, 1, 2)], "the first whole attempt counts"


def test_halves_of_two_attempts_do_not_make_a_block() -> None:
    assert completed_blocks([record(1, 0, 1), record(1, 1, 2)], 2) == set()
    assert completed_blocks([record(1, 0), replace(record(1, 1), run="other")], 2) == set()


def test_the_name_of_a_trial_is_one_part_of_a_path() -> None:
    assert safe_name("0.native/1x2") == "0.native~1x2"
    assert "/" not in safe_name("../../x") and safe_name("..") == "unnamed"


def test_closing_and_verifying(directory: ResultsDirectory) -> None:
    with pytest.raises(RecordsError, match="not closed"):
        directory.verify()
    with directory.writer() as writer:
        writer.append(record(0, 0))
    directory.close()
    assert directory.closed
    assert directory.verify().ok
    with pytest.raises(RecordsError, match="closed"):
        directory.writer()
    lines = (directory.path / "SHA256SUMS").read_text().splitlines()
    assert "trials/local.jsonl" in {line[66:] for line in lines}

    (directory.path / "report.html").write_text("later")
    (directory.path / "study.yaml").write_text("changed")
    (directory.path / "trials" / "local.jsonl").unlink()
    found = directory.verify()
    assert not found.ok
    assert (found.changed, found.missing) == (("study.yaml",), ("trials/local.jsonl",))
    assert found.unlisted == ("report.html",)

    directory.reopen()
    assert not directory.closed
    with directory.writer() as writer:
        writer.append(record(0, 1))
    directory.close()
    assert directory.verify().ok


def test_a_study_that_is_not_utf_8_is_a_corrupt_one(directory: ResultsDirectory) -> None:
    (directory.path / "study.yaml").write_bytes("name: Prüfung\n".encode("latin-1"))
    with pytest.raises(RecordsError, match="corrupt: not UTF-8"):
        _ = directory.study_yaml


@pytest.mark.parametrize("name", [b"odd-\xff", b"odd-\x0c", b"odd\n\\n-", "odd-\u2028-\x85".encode()])
def test_files_with_odd_names_are_closed_and_verified(directory: ResultsDirectory, name: bytes) -> None:
    odd = directory.path / "logs" / os.fsdecode(name)
    odd.write_text("said")
    directory.close()
    assert directory.verify().ok
    assert (
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=directory.path).returncode == 0
    )
    odd.write_text("changed")
    assert directory.verify().changed == (f"logs/{odd.name}",)


def test_the_crate_describes_every_file(directory: ResultsDirectory) -> None:
    log = directory.path / "logs" / safe_name("0.native/1x2")
    log.mkdir()
    (log / "std out.txt").write_text("x")
    directory.close()
    crate = json.loads((directory.path / "ro-crate-metadata.json").read_text())
    by_id = {entity["@id"]: entity for entity in crate["@graph"]}
    descriptor, root = by_id["ro-crate-metadata.json"], by_id["./"]
    assert descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert {"name", "description", "datePublished", "license"} <= root.keys()
    parts = {part["@id"] for part in root["hasPart"]}
    assert parts == by_id.keys() - {"ro-crate-metadata.json", "./"}
    assert "logs/0.native~1x2/std%20out.txt" in parts
    assert by_id["plan.json"]["encodingFormat"] == "application/json"
