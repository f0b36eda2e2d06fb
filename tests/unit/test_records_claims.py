"""Claims to blocks, orders and new records in a directory that several workers share."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_next_block import STUDY

from nearmetal.api.engines import serve_here
from nearmetal.api.measuring import order as requested
from nearmetal.errors import DiskFullError, RecordsError
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.model.change import replace
from nearmetal.model.plan import NextBlock
from nearmetal.model.record import Claim
from nearmetal.node.progress import NullProgress
from nearmetal.plan import make_block
from nearmetal.records import Claims, ClaimState, NewTrials, Orders, ResultsDirectory, claimed_attempts
from nearmetal.run.decide import Verifications, next_block
from nearmetal.testing.simulate import PLAIN


def an_order(number: int = 1) -> NextBlock:
    return next_block(
        STUDY, number, 1, slices={}, work={}, settled={}, verifications=Verifications(), verify_all=False
    )


def test_each_attempt_goes_to_exactly_one_worker(tmp_path: Path) -> None:
    won: Counter[tuple[int, int]] = Counter()
    lock, ready = threading.Lock(), threading.Barrier(8)

    def work(number: int) -> None:
        claims = Claims(tmp_path / "claims", f"w{number}")
        ready.wait()
        for block in range(1, 60):
            if claims.take(block, 1) is not None:
                with lock:
                    won[block, 1] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == Counter((block, 1) for block in range(1, 60))
    assert claimed_attempts(tmp_path / "claims") == dict.fromkeys(range(1, 60), 1)


def test_a_link_that_reports_an_error_but_was_made_is_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NFS client that repeats a request whose answer was lost is told that the name exists."""
    link = os.link

    def twice(*args: str, **options: Any) -> None:
        link(*args, **options)
        link(*args, **options)

    monkeypatch.setattr(os, "link", twice)
    assert Claims(tmp_path / "claims", "a").take(3, 1) == Claim(3, 1, "a")
    assert Claims(tmp_path / "claims", "b").take(3, 1) is None


@pytest.mark.parametrize("made", [True, False])
def test_a_link_whose_answer_was_lost_is_won_if_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """An NFS client that gives up waiting reports an error, and the server may have made the link."""
    link = os.link

    def unanswered(*args: str, **options: Any) -> None:
        if made:
            link(*args, **options)
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    claims, other = Claims(tmp_path / "claims", "a"), Claims(tmp_path / "claims", "b")
    with monkeypatch.context() as server:
        server.setattr(os, "link", unanswered)
        if made:
            assert claims.take(3, 1) == Claim(3, 1, "a")
        else:
            with pytest.raises(RecordsError, match="timed out"):
                claims.take(3, 1)
    assert other.take(3, 1) == (None if made else Claim(3, 1, "b"))


def test_a_claim_that_is_just_being_written_is_held(tmp_path: Path) -> None:
    """Without hard links, the file of a claim exists before its content."""
    claims = Claims(tmp_path / "claims", "a")
    (tmp_path / "claims/3.1.json").touch()
    found = claims.find(3, 1)
    assert found is not None and found.held and claims.take(3, 1) is None
    os.utime(tmp_path / "claims/3.1.json", (claims.now() - 61,) * 2)
    assert claims.take_over(3) == Claim(3, 2, "a"), "its worker was lost while it wrote"


def test_a_withdrawn_attempt_cannot_be_claimed(tmp_path: Path) -> None:
    claims, coordinator = Claims(tmp_path / "claims", "a"), Claims(tmp_path / "claims", "c")
    assert coordinator.withdraw(1, 1) and claims.take(1, 1) is None
    found = claims.find(1, 1)
    assert found is not None and not found.lost and found.state is ClaimState.RETURNED
    assert claims.take(2, 1) is not None and not coordinator.withdraw(2, 1)
    assert claims.take_over(1) == Claim(1, 2, "a")


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: str, **options: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert Claims(tmp_path / "claims", "a").take(3, 1) == Claim(3, 1, "a")
    assert Claims(tmp_path / "claims", "b").take(3, 1) is None


def test_a_claim_is_renewed_while_its_block_runs_and_then_done(tmp_path: Path) -> None:
    own, other = Claims(tmp_path / "claims", "a", lease=1.2), Claims(tmp_path / "claims", "b")
    claim = own.take(1, 1)
    assert claim is not None
    with own.holding(claim):
        time.sleep(1.5)
        found = other.find(1, 1)
        assert found is not None and found.held and found.age < 1.2 and found.claim == claim
        assert other.take_over(1) is None
    found = other.find(1, 1)
    assert found is not None and found.state is ClaimState.DONE
    assert other.take_over(1) is None


def test_terminated_worker_gives_its_block_back(tmp_path: Path) -> None:
    own, other = Claims(tmp_path / "claims", "a"), Claims(tmp_path / "claims", "b")
    claim = own.take(1, 1)
    assert claim is not None
    with pytest.raises(KeyboardInterrupt), own.holding(claim):
        raise KeyboardInterrupt
    found = other.find(1, 1)
    assert found is not None and found.state is ClaimState.RETURNED and not found.lost
    assert other.take_over(1) == Claim(1, 2, "b")


def test_a_claim_that_is_not_renewed_is_lost_whatever_the_clocks_of_the_nodes_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = Claims(tmp_path / "claims", "a"), Claims(tmp_path / "claims", "b")
    claim = own.take(1, 1)
    assert claim is not None
    monkeypatch.setattr(time, "time", lambda: 0.0)  # a clock that is fifty years late
    found = other.find(1, 1)
    assert found is not None and found.held
    file = tmp_path / "claims/1.1.json"
    os.utime(file, (other.now() - 61,) * 2)
    found = other.find(1, 1)
    assert found is not None and found.lost and found.age == pytest.approx(61, abs=5)
    assert other.take_over(1) == Claim(1, 2, "b")


def test_a_corrupt_claim_is_named(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "claims", "a")
    (tmp_path / "claims/2.1.json").write_text("{}")
    with pytest.raises(RecordsError, match="corrupt claim"):
        claims.find(2, 1)


def test_orders_come_back_in_the_order_of_their_blocks(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    given = [an_order(number) for number in (10, 9, 2)]
    for order in given:
        orders.give(order)
    orders.give(replace(given[0], attempt=2))
    assert list(orders.read()) == [given[2], given[1], replace(given[0], attempt=2)]
    orders.withdraw(9)
    orders.withdraw(9)
    assert [o.block for o in orders.read()] == [make_block(STUDY, 2), make_block(STUDY, 10)]
    orders.stop()
    assert orders.stopped and not list(orders.read())


def of_another_user(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the files with this name belong to another user, as far as one can see."""
    status = UntrustedDirectory.status

    def foreign(directory: UntrustedDirectory, file: str = ".") -> os.stat_result:
        found = status(directory, file)
        return os.stat_result((*found[:4], 4711, *found[5:])) if file == name else found

    monkeypatch.setattr(UntrustedDirectory, "status", foreign)


def test_an_order_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Orders(tmp_path)
    orders.give(an_order())
    of_another_user(monkeypatch, "1.json")
    with pytest.raises(RecordsError, match="belongs to another user"):
        list(orders.read())


def test_records_of_another_user_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml="name: s\n")
    directory.freeze(seed=1, arms=("a",), provenance={})
    for writer in ("own", "other"):
        with directory.writer(writer) as file:
            file.append(replace(PLAIN, run=writer))
    assert len(NewTrials(directory.path / "trials").read()) == 2
    of_another_user(monkeypatch, "other.jsonl")
    with pytest.raises(RecordsError, match=r"another user .*, and its records would count") as caught:
        NewTrials(directory.path / "trials").read()
    assert caught.value.where == str(directory.path / "trials/other.jsonl")


@pytest.mark.parametrize("name", ["study.yaml", "plan.json", "provenance.json"])
def test_a_worker_refuses_what_another_user_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml="name: s\n")
    directory.freeze(seed=1, arms=("a",), provenance={})
    of_another_user(monkeypatch, name)
    with pytest.raises(RecordsError, match=r"another user .*, and it says what is executed"):
        own = requested(tmp_path, "nearmetal run-block", 0.0, force=False)
        serve_here(directory, own, lambda done: None, NullProgress())
    assert not (directory.path / "present").exists(), "nothing was begun"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_shared_directory_gives_no_half_of_a_claim_or_an_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    claims, orders = Claims(tmp_path / "claims", "a"), Orders(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: (_ for _ in ()).throw(OSError(code, os.strerror(code))))
        with pytest.raises(DiskFullError) as claimed:
            claims.take(1, 1)
        with pytest.raises(DiskFullError):
            orders.give(an_order())
    assert claimed.value.where == str(tmp_path) and "nearmetal resume" in str(claimed.value.remedy)
    assert claims.find(1, 1) is None and list(orders.read()) == []
    assert [p.name for p in tmp_path.rglob("*.json*")] == []
    assert claims.take(1, 1) == Claim(1, 1, "a"), "room was made"


def test_a_claim_whose_end_cannot_be_written_is_lost_and_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = Claims(tmp_path / "claims", "a")
    claim = claims.take(1, 1)
    assert claim is not None
    with monkeypatch.context() as full, pytest.raises(DiskFullError), claims.holding(claim):
        full.setattr(os, "write", lambda fd, data: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    file = tmp_path / "claims/1.1.json"
    os.utime(file, (claims.now() - 61,) * 2)
    found = claims.find(1, 1)
    assert found is not None and found.lost


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml="name: s\n")
    directory.freeze(seed=1, arms=("a",), provenance={})
    new = NewTrials(directory.path / "trials")
    assert new.read() == []
    with directory.writer("a") as a, directory.writer("b") as b:
        a.append(replace(PLAIN, block=1))
        b.append(replace(PLAIN, block=2))
        assert [r.block for r in new.read()] == [1, 2]
        assert new.read() == []
        a.append(replace(PLAIN, block=3))
        with b.path.open("ab") as torn:
            torn.write(b'{"schema":1,')
        assert [r.block for r in new.read()] == [3]
    with directory.writer("b") as b:  # removes the torn line
        b.append(replace(PLAIN, block=4))
    assert [r.block for r in new.read()] == [4]


def test_a_block_that_was_given_up_stays_in_the_plan(tmp_path: Path) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml="name: s\n")
    directory.freeze(seed=1, arms=("a",), provenance={})
    assert "missing" not in (directory.path / "plan.json").read_text()
    directory.give_up(7)
    directory.give_up(3)
    directory.give_up(7)
    directory.close_looks(9)
    assert directory.plan().missing == (3, 7)


def test_machines_of_workers_are_described_one_by_one(tmp_path: Path) -> None:
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml="name: s\n")
    assert directory.nodes() == {}
    directory.node_files.write("nearmetal-1", {"kernel": "6.1"})
    directory.node_files.write("nearmetal-2", {"kernel": "6.18"})
    here = os.uname().nodename
    assert directory.nodes() == {
        "nearmetal-1": {"node": here, "kernel": "6.1"},
        "nearmetal-2": {"node": here, "kernel": "6.18"},
    }
