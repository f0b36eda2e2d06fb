"""What the root user of an instance plants in a trial's directory: nearmetal, as root of the machine, writes
nothing through it, reads no other file, and does not wait for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pytest
from tests.patience import PATIENCE

from nearmetal.environments import Bind, InstanceRequest, Tools
from nearmetal.environments.guests.guest import GuestInstance
from nearmetal.environments.instance import all_binds, box_argv
from nearmetal.environments.program import read_log
from nearmetal.errors import RunError, TrialFailedError
from nearmetal.host import LocalHost, cpio
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.model.study import Environment
from nearmetal.subjects.events.progress import ProgramProgress, read_progress
from nearmetal.subjects.launches.job import RankJob
from nearmetal.subjects.launches.profiles import read_profiles
from nearmetal.subjects.launches.reports import forget_reports, read_reports

pytestmark = pytest.mark.attack

REPORT = '{"rank": 0, "status": 0, "wall": 1, "user": 1, "system": 1, "max_rss": 1}'


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the machine, which looks like what nearmetal wants to read."""
    path = tmp_path / "secret"
    path.write_text(REPORT)
    return path


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    path = tmp_path / "trial"
    path.mkdir()
    return path


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def huge(path: Path, secret: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("plant", [link, fifo, huge])
def test_reports_and_profiles_are_plain_files(
    trial: Path, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(trial / "rank.0.json", secret)
    with pytest.raises(TrialFailedError, match="rank 0 did not report"):
        read_reports(trial, 1)
    (trial / "profile-x").mkdir()
    plant(trial / "profile-x" / "profile.0.json", secret)
    with pytest.raises(TrialFailedError, match="rank 0 wrote no profile"):
        read_profiles(trial / "profile-x", 1)
    plant(trial / "record", secret)
    assert read_progress(trial / "record") == ProgramProgress()


def test_a_profile_directory_may_have_been_replaced(trial: Path, tmp_path: Path) -> None:
    (tmp_path / "profile.0.json").write_text("{}")
    (trial / "profile-x").symlink_to(tmp_path)
    with pytest.raises(TrialFailedError, match="rank 0 wrote no profile"):
        read_profiles(trial / "profile-x", 1)


def test_a_directory_in_place_of_a_report_fails_the_trial_only(trial: Path) -> None:
    (trial / "rank.0.json").mkdir()
    with pytest.raises(TrialFailedError, match=r"rank\.0\.json cannot be removed"):
        forget_reports(trial, 1)


@pytest.mark.parametrize("name", ["token.0", "out"])
def test_fifos_that_exist_fail_the_trial_only(trial: Path, secret: Path, name: str) -> None:
    link(trial / name, secret)
    with pytest.raises(TrialFailedError, match="no FIFOs for the ranks"):
        RankJob(trial, 1, trial)
    assert secret.read_text() == REPORT


def test_ranks_that_never_end_their_line_fail_the_trial(trial: Path) -> None:
    def flood() -> None:
        with suppress(BrokenPipeError), (trial / "out").open("wb") as out:
            while True:
                out.write(b"x" * (1 << 16))

    with RankJob(trial, 1, trial) as job:
        thread = Thread(target=flood)
        thread.start()
        with pytest.raises(TrialFailedError, match="a line of more than"):
            job._line(PATIENCE)
    thread.join()


def test_a_fifo_is_not_replaced_between_its_making_and_its_opening(
    trial: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.mkfifo

    def replace(name: str, mode: int, *, dir_fd: int) -> None:
        made(name, mode, dir_fd=dir_fd)
        os.unlink(name, dir_fd=dir_fd)
        os.symlink(secret, name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkfifo", replace)
    with pytest.raises(OSError):
        UntrustedDirectory(trial).make_fifo("gate")
    assert secret.read_text() == REPORT


@pytest.mark.parametrize("most", [None, 100])
def test_output_is_not_written_through_a_link(trial: Path, secret: Path, most: int | None) -> None:
    link(trial / "out.txt", secret)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        LocalHost().start(["echo", "x"], stdout=trial / "out.txt", stderr=trial / "err.txt", most=most)
    assert secret.read_text() == REPORT


@pytest.mark.parametrize("plant", [link, fifo])
def test_a_log_is_a_plain_file(trial: Path, secret: Path, plant: Callable[[Path, Path], None]) -> None:
    plant(trial / "log", secret)
    assert read_log(trial / "log") == ""


@dataclass(frozen=True, kw_only=True)
class Answering(GuestInstance):
    """A guest whose agent answers every command with these files."""

    members: tuple[cpio.Member, ...] = field(default=())

    def _run(self, argv: Sequence[str], stdin: bytes = b"") -> bytes:
        return cpio.pack(list(self.members))


def guest(*members: cpio.Member) -> Answering:
    blank: dict[str, object] = dict.fromkeys(
        ("pid", "phases", "cgroups", "enter", "host", "tools", "socket", "scratch", "process", "ahead")
    )
    return Answering(label="nearmetal-x", hostname="g", members=members, **blank)  # type: ignore[arg-type]


def test_files_out_of_a_guest_are_written_where_they_were_asked_for(trial: Path, secret: Path) -> None:
    link(trial / "rank.0.json", secret)
    guest(cpio.file(str(trial / "rank.0.json")[1:], b"guest")).copy_out([trial])
    assert secret.read_text() == REPORT and (trial / "rank.0.json").read_text() == "guest"


@pytest.mark.parametrize("name", ["../secret", "d/" * 2000 + "x", "x\0y", "x" * 300])
def test_a_guest_chooses_no_name(trial: Path, secret: Path, name: str) -> None:
    with pytest.raises(RunError, match="nearmetal-x gave"):
        guest(cpio.file(f"{str(trial)[1:]}/{name}", b"guest")).copy_out([trial])
    assert secret.read_text() == REPORT


def test_a_guest_gives_what_is_no_archive(trial: Path) -> None:
    class Nonsense(Answering):
        def _run(self, argv: Sequence[str], stdin: bytes = b"") -> bytes:
            return b"070701" + b"z" * 500

    with pytest.raises(RunError, match="not a whole archive"):
        Nonsense(**guest().__dict__).copy_out([trial])


def test_a_guest_describes_its_network_as_it_likes() -> None:
    class Nonsense(Answering):
        def _run(self, argv: Sequence[str], stdin: bytes = b"") -> bytes:
            return b"[" * 100_000

    blank = dict.fromkeys(guest().__dict__) | {"label": "g", "members": ()}
    with pytest.raises(RunError, match="not the line"):
        Nonsense(**blank).network("eth0")  # type: ignore[arg-type]


def test_an_instance_cannot_change_the_programs_of_nearmetal(tmp_path: Path) -> None:
    tools, own = Tools(directory=tmp_path / "tools"), tmp_path / "own"
    for directory in (tools.directory, own):
        directory.mkdir()
    request = InstanceRequest(
        label="nearmetal-x-0",
        hostname="nmx",
        environment=Environment(name="e", backend="podman", placements=()),
        binds=(own, tools.directory),
        scratch=tmp_path,
    )
    binds = all_binds(tools, request)
    assert set(binds) == {Bind(own, own), Bind(tools.directory, tools.directory, writable=False)}
    argv = box_argv(tools, request, binds, [], [])
    assert argv[argv.index("--bind-read-only") + 1] == str(tools.directory)
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--bind"] == [str(own)]


def test_a_mount_point_is_not_made_through_a_planted_link(tmp_path: Path) -> None:
    for name in ("tools", "view", "own", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "view" / "results").symlink_to(tmp_path / "outside")
    request = InstanceRequest(
        label="nearmetal-x-0",
        hostname="nmx",
        environment=Environment(name="e", backend="podman", placements=()),
        views=(Bind(tmp_path / "view", Path("/job")), Bind(tmp_path / "own", Path("/job/results/own"))),
        scratch=tmp_path,
    )
    with pytest.raises(RunError, match=r"bind /job/results/own: .*/view/results: "):
        all_binds(Tools(directory=tmp_path / "tools"), request)
    assert list((tmp_path / "outside").iterdir()) == []


class Huge(bytes):
    """Bytes that claim a length, so that none are allocated."""

    def __len__(self) -> int:
        return cpio.TOO_LARGE


def test_a_file_that_no_archive_can_hold_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"disk\.img has 4 GiB or more"):
        cpio.pack([cpio.file("disk.img", Huge())])


@pytest.mark.parametrize("field", [b"zzzzzzzz", b"-0000001", b"ffffffff"])
def test_a_header_of_a_guest_is_a_value_or_an_error(field: bytes) -> None:
    packed = cpio.pack([cpio.file("a", b"b")])
    with pytest.raises(ValueError, match="not a whole archive"):
        list(cpio.unpack(packed[:54] + field + packed[62:]))
