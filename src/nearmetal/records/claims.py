"""Claims to blocks of a results directory that several workers share, possibly over NFS.

A claim is a file `claims/<block>.<attempt>.json`. It is made by link(2), which succeeds only once even over
NFS, so exactly one worker gets each attempt. Its lease is measured by the clock of the file server: the
holder renews the claim by setting the file's modification time to the server's present time. A reader
compares this time with that of a file that it has just touched itself. Clocks of the nodes are never
compared.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any

from ..errors import RecordsError
from ..host.untrusted import LIMIT, UntrustedDirectory
from ..model.record import Claim
from .disk import failure, is_there
from .json_files import names_in, parse_json

CLAIMS, COORDINATOR, PRESENT = "claims", "coordinator", "present"
"""Directories in a results directory. CLAIMS: claims to blocks. COORDINATOR: claims to coordinate the run, as
block 0. PRESENT: one claim of each worker that runs, as block 0."""
LEASE = 60.0
"""Seconds after its last renewal for which a claim is valid. NFS clients may cache file times for as long."""
_CLAIM = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.json")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of link(2) on file systems without hard links."""
_UNWRITTEN: Mapping[str, Any] = {"run": "", "host": "", "lease": LEASE, "state": "held"}
"""Contents assumed for an empty file. On a file system without hard links, a worker first creates the file of
its claim and then writes into it."""
RENEWALS = 6
"""Number of renewals within one lease, so that a claim survives a file server that does not answer for a
while."""


class ClaimState(StrEnum):
    """The state of a claim.

    HELD: its worker runs the block, or was lost.
    DONE: the block was run.
    RETURNED: its worker ended before the block was complete, or nobody may claim the attempt any more.
    """

    HELD = "held"
    DONE = "done"
    RETURNED = "returned"


@dataclass(frozen=True, kw_only=True)
class StoredClaim:
    """A claim as read from its file.

    host: name of the worker's node.
    lease: seconds for which the claim is valid after its last renewal.
    age: seconds since its last renewal, by the clock of the file server.
    """

    claim: Claim
    host: str
    lease: float
    state: ClaimState
    age: float

    @property
    def held(self) -> bool:
        """Whether a worker holds the claim and has renewed it in time."""
        return self.state is ClaimState.HELD and self.age <= self.lease

    @property
    def lost(self) -> bool:
        """Whether the worker stopped renewing the claim without giving it back."""
        return self.state is ClaimState.HELD and self.age > self.lease


class Claims:
    """The claims below one directory, as one worker or the coordinator sees them."""

    def __init__(self, place: Path, run: str, lease: float = LEASE, host: str = "") -> None:
        """place: the directory of the claims, such as CLAIMS or COORDINATOR in a results directory.
        run: label of the worker; see TrialRecord.run.
        lease: seconds for which a claim is valid after its last renewal.
        host: name of the worker's node; '' for the host name of this machine.
        """
        self.place, self._files = place, UntrustedDirectory.part(place)
        self._run, self._lease = run, lease
        self._host = host or os.uname().nodename
        self.place.mkdir(exist_ok=True)
        self._clock = f".clock-{run}.tmp"

    def now(self) -> float:
        """Return the present time of the file server, in Unix seconds."""
        self._touch(self._clock)
        return self._files.status(self._clock).st_mtime

    def find(self, block: int, attempt: int, now: float | None = None) -> StoredClaim | None:
        """Return the claim to an attempt at a block, or None if nobody has claimed it.

        now: present time of the file server, if known: a result of now() can be used for several claims.

        Raises RecordsError if the file of the claim is corrupt or cannot be read.
        """
        return read_claim(self.place, block, attempt, self.now if now is None else lambda: now)

    def take(self, block: int, attempt: int) -> Claim | None:
        """Claim an attempt at a block. Returns None if another worker has claimed it.

        Raises RecordsError or DiskFullError if the directory cannot be written.
        """
        claim = Claim(block, attempt, self._run)
        return claim if self._make(claim, ClaimState.HELD) else None

    def take_over(self, block: int, *, again: bool = False) -> Claim | None:
        """Claim the next attempt at a block. Returns None if a worker holds an attempt, if the block is done,
        or if another worker is faster.

        again: claim the next attempt even if the block is done.

        Raises RecordsError or DiskFullError if the directory cannot be read or written.
        """
        for attempt in count(1):
            found = self.find(block, attempt)
            if found is None:
                return self.take(block, attempt)
            if found.held or (found.state is ClaimState.DONE and not again):
                return None
        raise AssertionError

    def withdraw(self, block: int, attempt: int) -> bool:
        """Make sure that nobody can claim an attempt at a block. Returns False if a worker has claimed it.

        Raises RecordsError or DiskFullError if the directory cannot be written.
        """
        return self._make(Claim(block, attempt, self._run), ClaimState.RETURNED)

    def join(self) -> Claim:
        """Claim the first free attempt at block 0, by which a starting worker announces itself (PRESENT).

        Raises RecordsError or DiskFullError if the directory cannot be written.
        """
        return next(claim for number in count(1) if (claim := self.take(0, number)) is not None)

    def _make(self, claim: Claim, state: ClaimState) -> bool:
        aside = f".{claim.block}.{claim.attempt}.{self._run}.tmp"
        target, content = _name(claim.block, claim.attempt), self._content(state)
        try:
            try:
                self._files.replace_file(aside, content)
                self._files.link(aside, target)
            except FileExistsError:
                pass  # also if NFS repeated a request that had succeeded
            except OSError as e:
                if e.errno in _NO_LINKS:
                    self._create(target, content)
                # NFS may have made the link although its answer was lost. The number of links tells.
                elif not self._files.exists(aside) or self._links(aside) < 2:
                    raise
            finally:
                self._files.unlink(aside)
            return self._run_in(target) == self._run
        except OSError as e:
            raise failure(e, self.place.parent, kept="the records are whole") from e

    def _create(self, name: str, content: bytes) -> None:
        """Create a file with this content unless it exists, on a file system without hard links."""
        with suppress(FileExistsError):
            self._files.write_bytes(name, content, sync=True)

    def _touch(self, name: str) -> None:
        """Set the modification time of a file to the present time of the file server."""
        fd = self._files.open_to_append(name)
        try:
            os.utime(fd)
        finally:
            os.close(fd)

    def _links(self, name: str) -> int:
        """Return the number of links of a file. Opening the file makes an NFS client ask its server instead
        of its cache."""
        with self._files.open_file(name) as file:
            return os.fstat(file.fileno()).st_nlink

    def _run_in(self, name: str) -> str | None:
        """Return the label of the worker that holds a claim; None if the file is not completely written
        yet."""
        with suppress(ValueError, KeyError, TypeError):
            return str(parse_json(self._files.read_bytes(name))["run"])
        return None

    @contextmanager
    def holding(self, claim: Claim) -> Iterator[None]:
        """Renew a claim while the body of the with statement runs. Then set its state to DONE, or to RETURNED
        if the body raised.

        Raises RecordsError or DiskFullError if the state DONE cannot be written.
        """
        ended, name = threading.Event(), _name(claim.block, claim.attempt)

        def renew() -> None:
            while not ended.wait(self._lease / RENEWALS):
                with suppress(OSError):  # if the server does not answer, the lease may end; the block goes on
                    self._touch(name)

        renewal = threading.Thread(target=renew, daemon=True)
        renewal.start()
        state = ClaimState.RETURNED
        try:
            yield
            state = ClaimState.DONE
        finally:
            ended.set()
            renewal.join()
            try:
                self._files.replace_file(name, self._content(state))
            except OSError as e:
                if state is ClaimState.DONE:  # else the error of the body is the one to show
                    raise failure(e, self.place.parent, kept="the records are whole") from e

    def close(self) -> None:
        """Remove the file whose time stamps give this worker the clock of the file server."""
        self._files.unlink(self._clock)

    def _content(self, state: ClaimState) -> bytes:
        data = {"run": self._run, "host": self._host, "lease": self._lease, "state": state.value}
        return json.dumps(data).encode() + b"\n"


def _name(block: int, attempt: int) -> str:
    return f"{block}.{attempt}.json"


def _content_of(files: UntrustedDirectory, name: str) -> tuple[bytes, float]:
    """Return the content of a file and its modification time. Opening the file makes an NFS client ask its
    server instead of its cache."""
    with files.open_file(name) as file:
        return file.read(LIMIT), os.fstat(file.fileno()).st_mtime


def claimed_attempts(place: Path) -> dict[int, int]:
    """Return, by block, the number of the last attempt that was claimed.

    place: the directory of the claims.
    """
    last: dict[int, int] = {}
    for found in map(_CLAIM.fullmatch, names_in(UntrustedDirectory.part(place), ".json")):
        if found is None:
            continue
        block, attempt = int(found[1]), int(found[2])
        last[block] = max(last.get(block, 0), attempt)
    return last


def read_claim(place: Path, block: int, attempt: int, now: Callable[[], float]) -> StoredClaim | None:
    """Return a claim as Claims.find() does.

    place: the directory of the claims.
    now: returns the present time of the file server; called after the claim was read.
    """
    files, name = UntrustedDirectory.part(place), _name(block, attempt)
    try:
        try:
            content, renewed = _content_of(files, name)
        except FileNotFoundError:
            if not is_there(files, name):
                return None
            content, renewed = _content_of(files, name)
        data = parse_json(content) if content else _UNWRITTEN
        return StoredClaim(
            claim=Claim(block, attempt, str(data["run"])),
            host=str(data["host"]),
            lease=float(data["lease"]),
            state=ClaimState(data["state"]),
            age=max(0.0, now() - renewed),
        )
    except (OSError, ValueError, OverflowError, KeyError, TypeError) as e:
        raise RecordsError(
            f"corrupt claim: {e}", where=str(files.path_to(name)), remedy="take it from a copy"
        ) from e


def joined(place: Path, now: float) -> list[StoredClaim]:
    """Return all claims to block 0 in a directory of claims, by attempt. See Claims.find()."""
    last = claimed_attempts(place).get(0, 0)
    found = (read_claim(place, 0, number, lambda: now) for number in range(1, last + 1))
    return [claim for claim in found if claim is not None]


def last_holder(place: Path, now: float) -> StoredClaim | None:
    """Return the claim to the last attempt at block 0 in a directory of claims; None if there is none. See
    Claims.find()."""
    last = claimed_attempts(place).get(0)
    return None if last is None else read_claim(place, 0, last, lambda: now)
