"""Moves of a user's guest between two QEMUs with a fault in the middle. Never do two copies run; if none
runs, the error says so; and nothing is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import until
from tests.qemu_moments import Moment, at, bandwidth_until, cut
from tests.system.moving_case import state
from tests.system.test_moving import QEMU, Guest, guests
from tests.system.test_quick import left_behind, nearmetal

from nearmetal.api.moves import moving
from nearmetal.environments.qemu.qmp import Monitor
from nearmetal.errors import RunError
from nearmetal.lifecycle import Method

pytestmark = [pytest.mark.apart, pytest.mark.no_run, QEMU]
__all__ = ["guests", "state"]

BEFORE = (  # the guest can still go on at its source
    (Method.OFFLINE, Moment.BEGIN),
    (Method.OFFLINE, Moment.COPY),
    (Method.PRECOPY, Moment.BEGIN),
    (Method.PRECOPY, Moment.COPY),
    (Method.MULTIFD, Moment.COPY),
    (Method.POSTCOPY, Moment.SWITCH),
)
FETCHING = (Method.POSTCOPY, Moment.FETCH)
LAST = ((Method.OFFLINE, Moment.END), (Method.PRECOPY, Moment.END), (Method.MULTIFD, Moment.END))
RECOVERS = "connect both again: migrate-recover there, then migrate with resume: true"


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, guests: list[Guest]) -> Iterator[None]:
    yield
    assert not list(tmp_path.glob(".nearmetal-*"))


@pytest.fixture(scope="module", autouse=True)
def nothing_of_ours_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    assert left_behind(tmp_path_factory.mktemp("left")) == []


def failed_by(
    guests: list[Guest], method: Method, moment: Moment, act: Callable[[], object]
) -> RunError | None:
    """Move the guest with a fault at a moment. Return the error; None if it was moved."""
    source, target = guests
    how = moving.MoveOptions(method=method, bandwidth=bandwidth_until(moment))
    error = None
    with at(moment, act) as reached:
        try:
            moving.migrate(f"qmp:{source.qmp}", f"qmp:{target.qmp}", how)
        except RunError as e:
            error = e
    assert reached == [moment]
    return error


def kill(guest: Guest) -> None:
    guest.process.kill()
    guest.process.wait()


def status(guest: Guest) -> str:
    with Monitor(guest.qmp) as monitor:
        return str(monitor.ask("query-status")["status"])


def ended(guest: Guest) -> bool:
    return guest.process.wait(60) is not None


@pytest.mark.parametrize(("method", "moment"), BEFORE)
def test_a_guest_goes_on_whose_destination_is_killed(
    guests: list[Guest], method: Method, moment: Moment
) -> None:
    source, target = guests
    error = failed_by(guests, method, moment, lambda: kill(target))
    assert error is not None and "it continues at its source: " in error.what
    source.goes_on()


@pytest.mark.parametrize(("method", "moment"), [pair for pair in BEFORE if pair[1] is not Moment.BEGIN])
def test_a_guest_goes_on_whose_link_is_cut(guests: list[Guest], method: Method, moment: Moment) -> None:
    source, target = guests
    error = failed_by(guests, method, moment, lambda: cut(target.process.pid))
    assert error is not None and "it continues at its source: " in error.what
    source.goes_on()
    assert ended(target) and target.dots == 0, "half a guest does not run"


@pytest.mark.parametrize(("method", "moment"), [*BEFORE, FETCHING])
def test_a_guest_whose_source_is_killed_is_lost(guests: list[Guest], method: Method, moment: Moment) -> None:
    source, target = guests
    error = failed_by(guests, method, moment, lambda: kill(source))
    assert error is not None and "it is lost: " in error.what.replace("the guest is lost", "it is lost")
    assert "ended" in error.what and "goes on" not in error.what and "continues" not in error.what
    assert ended(target), "half a guest is of no use"


def test_a_guest_whose_destination_is_killed_while_it_fetches_is_lost(guests: list[Guest]) -> None:
    source, target = guests
    error = failed_by(guests, *FETCHING, lambda: kill(target))
    assert error is not None and "never continue the source" in error.remedy
    assert "the guest is lost: it had left its source, and its destination has ended" in error.what
    assert status(source) != "running", "it may have run at its destination"
    refused = nearmetal("migrate", f"qmp:{source.qmp}", "--to", "./c", cwd=source.qmp.parent)
    assert refused.returncode == 2 and "the guest has left this QEMU" in refused.stderr


def test_a_guest_whose_link_is_cut_while_it_fetches_stands_still_and_is_connected_again_as_it_is_said(
    guests: list[Guest], tmp_path: Path
) -> None:
    source, target = guests
    error = failed_by(guests, *FETCHING, lambda: cut(target.process.pid))
    assert error is not None and RECOVERS in error.remedy and "never continue the source" in error.remedy
    assert "the guest has left its source" in error.what and "it stands still as soon as" in error.what
    assert status(source) != "running"
    again = {"uri": f"unix:{tmp_path / 'again'}"}
    with Monitor(target.qmp) as there, Monitor(source.qmp) as here:
        there.ask("migrate-recover", again)
        here.ask("migrate", {**again, "resume": True})
        until(lambda: here.ask("query-migrate")["status"] == "completed", "the rest of its memory")
    target.goes_on()
    assert status(source) == "postmigrate"


@pytest.mark.parametrize(("method", "moment"), LAST)
def test_a_guest_that_was_sent_whole_never_runs_twice(
    guests: list[Guest], method: Method, moment: Moment
) -> None:
    """After `offline`, nearmetal lets the guest continue at its destination; after `precopy`, QEMU does."""
    source, target = guests
    error = failed_by(guests, method, moment, lambda: kill(target))
    if error is None:  # it was seen to run at its destination before
        assert method is not Method.OFFLINE and ended(source)
    elif method is Method.OFFLINE:
        assert "it continues at its source" in error.what
        source.goes_on()
    else:
        assert "the guest is lost: it had left its source" in error.what
        assert status(source) == "postmigrate"


@pytest.mark.parametrize(("method", "moment"), LAST)
def test_a_guest_that_was_sent_whole_goes_on_without_its_source(
    guests: list[Guest], method: Method, moment: Moment
) -> None:
    source, target = guests
    error = failed_by(guests, method, moment, lambda: kill(source))
    if error is not None:
        assert "the guest has left its source" in error.what and "query-status there" in error.remedy
    target.goes_on()


@pytest.mark.parametrize(("method", "moment"), [*BEFORE, FETCHING, *LAST])
def test_one_guest_is_left_by_a_tool_that_is_killed(
    guests: list[Guest], tmp_path: Path, method: Method, moment: Moment
) -> None:
    """The QEMUs are the user's: the migration goes on, and what stands still is said to who asks for more."""
    source, target = guests
    words = [f"qmp:{source.qmp}", f"qmp:{target.qmp}", method.value, moment.value]
    root = Path(__file__).parents[2]
    tool = subprocess.run([sys.executable, "-m", "tests.qemu_moments", *words], cwd=root, check=False)
    assert tool.returncode == -signal.SIGKILL
    assert nearmetal("clean", cwd=tmp_path).returncode == 0
    assert source.process.poll() is None and target.process.poll() is None, "they are not nearmetal's"
    with Monitor(source.qmp) as monitor:  # what is under way has an end
        limits = dict.fromkeys(("max-bandwidth", "max-postcopy-bandwidth"), 1 << 40)
        monitor.ask("migrate-set-parameters", {**limits, "downtime-limit": 60_000})
        reports = until(
            lambda: [r for r in [monitor.ask("query-migrate")] if r.get("status") in (None, "completed")],
            "the end of the migration",
        )
    begun = "status" in reports[0]
    assert begun == (moment is not Moment.BEGIN)
    until(lambda: status(target) != "inmigrate" or not begun, "the guest at its destination")
    before = status(source), status(target)
    if method is Method.OFFLINE:
        left = target if begun else source
        assert before == (("postmigrate", "paused") if begun else ("paused", "inmigrate"))
        said = nearmetal("migrate", f"qmp:{left.qmp}", "--to", "./c", cwd=tmp_path)
        assert said.returncode == 2 and "the guest does not run: paused\n  next: cont there" in said.stderr
        with Monitor(left.qmp) as monitor:
            monitor.ask("cont")
    else:
        left = target if begun else source
        assert before == (("postmigrate", "running") if begun else ("running", "inmigrate"))
    left.goes_on()
    if begun:
        said = nearmetal("checkpoint", f"qmp:{source.qmp}", "--to", "i", cwd=tmp_path)
        assert said.returncode == 2 and "the guest has left this QEMU: postmigrate" in said.stderr
    else:
        (wire,) = tmp_path.glob(".nearmetal-*")
        wire.unlink()  # the destination still listens there


def test_a_guest_that_others_migrate_is_left_alone(guests: list[Guest], tmp_path: Path) -> None:
    source, target = guests
    wire = {"uri": f"unix:{tmp_path / 'other'}"}
    with Monitor(target.qmp) as there, Monitor(source.qmp) as here:
        there.ask("migrate-incoming", wire)
        here.ask("migrate-set-parameters", {"max-bandwidth": 1 << 20})
        here.ask("migrate", wire)
    for words in (["migrate", "qmp:a", "--to", "./b"], ["checkpoint", "qmp:a", "--to", "i"]):
        refused = nearmetal(*words, cwd=tmp_path)
        assert refused.returncode == 3 and "the guest is being migrated already: " in refused.stderr
    with Monitor(source.qmp) as here:
        assert here.ask("query-migrate")["status"] == "active", "nobody has cancelled it"
    source.goes_on()


@pytest.mark.parametrize("method", ["postcopy", "precopy"])
def test_the_risk_of_a_method_is_said_beforehand(guests: list[Guest], tmp_path: Path, method: str) -> None:
    risk = "postcopy loses the instance if the connection breaks, or either side fails, while memory is still"
    words = ["migrate", "qmp:a", "--to", "./b", "--method", method]
    shown = nearmetal(*words, "--dry-run", cwd=tmp_path)
    plan = json.loads(nearmetal(*words, "--dry-run", "--json", cwd=tmp_path).stdout)
    done = nearmetal(*words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (
        shown.stdout,
        " ".join(plan["notes"]),
        " ".join(json.loads(done.stdout)["plan"]["notes"]),
        done.stderr,
    ):
        assert (risk in text) == (method == "postcopy")


def test_a_bandwidth_holds_for_what_post_copy_fetches(guests: list[Guest]) -> None:
    source, target = guests
    how = moving.MoveOptions(method=Method.POSTCOPY, bandwidth=float(16 << 20))
    done = moving.migrate(f"qmp:{source.qmp}", f"qmp:{target.qmp}", how)
    assert done.size is not None and done.size > 32 << 20
    assert done.total > 0.8 * done.size / (16 << 20)
    target.goes_on()
