"""Folds the records of a results directory piece by piece, with several processes if there are many
records."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from ..analysis.fold.attempts import ChosenTrials, choose
from ..analysis.fold.comparisons import Folded, joined_pieces
from ..analysis.fold.pieces import FoldRequest, Piece, fold_stored
from ..errors import NearmetalError
from ..model.plan import Plan
from ..records import StoredLines, Trials
from .piece_cache import PieceCache, piece_cache

SMALLEST_PIECE, LARGEST_PIECE = 8 << 20, 32 << 20
"""Bytes of records that are folded at once: enough to make numpy efficient, and few enough to fit in
memory."""
PIECES = 4
"""Number of pieces for each process. With several, all processes end at about the same time."""
WORTH_PROCESSES = 48 << 20
"""Bytes of records from which further processes are started. Starting one takes some tenths of a second."""


_SAFE_PATH = "PYTHONSAFEPATH"
_MALLOC = ((-1, 1 << 29), (-3, 32 << 20))
"""glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD (mallopt(3)), in bytes."""


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Trials to fold in one piece.

    used: the records that the analysis uses, of whole blocks.
    others: records that the analysis does not use.
    """

    used: StoredLines
    others: StoredLines

    def fold(self, request: FoldRequest, kept: PieceCache | None = None) -> Piece:
        """Fold the trials. Raises RecordsError if a record is corrupt.

        kept: cache from which the piece is read, or to which it is written if it is new; None for no cache.
        """
        with uncollected():
            if kept is None:
                return fold_stored(request, self.used, self.others)
            used, others = self.used.load(), self.others.load()
            name = kept.name(used.read(), others.read())
            piece = kept.read(name)
            if piece is None:
                piece = fold_stored(request, used, others)
                kept.write(name, piece)
        return piece


Workers = tuple[Connection, ...]
"""A connection to each process that folds trials; none if the records are few."""


def fold_trials(
    request: FoldRequest,
    plan: Plan,
    trials: Trials,
    workers: Workers,
    report: Callable[[float], None] = lambda share: None,
) -> Folded:
    """Fold all trials of a results directory to one value per block.

    workers: see fold_workers(). They are used once.
    report: called with the fraction that is done, up to 1.

    Raises RecordsError if a record is corrupt.
    """
    choice = choose(plan, trials.heads)
    size = sum(h.length for h in trials.heads)
    processes = len(workers) or 1
    piece = min(max(size // (PIECES * processes), SMALLEST_PIECE), LARGEST_PIECE)
    tasks = list(_tasks(choice, trials, piece))
    kept = piece_cache(request)
    for worker in workers:
        with suppress(OSError):
            worker.send((request, kept))
    pieces = _counted(_spread(request, tasks, workers), len(tasks), report)
    if workers:
        kept.shrink()
    return joined_pieces(choice, pieces)


def _counted(pieces: Iterable[Piece], number: int, report: Callable[[float], None]) -> list[Piece]:
    found = []
    for piece in pieces:
        found.append(piece)
        report(len(found) / number)
    return found


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the garbage collector in the body.

    Folding and writing a report make many small objects, and hardly any of them is garbage. Scanning them
    repeatedly would take a fifth of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _tasks(choice: ChosenTrials, trials: Trials, piece: int) -> Iterator[_Task]:
    none = trials.lines(())
    for blocks in _batches(choice.used, trials, piece):
        yield _Task(used=trials.lines(blocks), others=none)
    for places in _batches([(at,) for at in choice.others], trials, piece):
        yield _Task(used=none, others=trials.lines(places))


def _batches(groups: Iterable[Sequence[int]], trials: Trials, piece: int) -> Iterator[list[int]]:
    """Join groups of trial indexes until the records of a batch have at least `piece` bytes."""
    batch: list[int] = []
    size = 0
    for group in groups:
        batch += group
        size += sum(trials.heads[at].length for at in group)
        if size >= piece:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def fold_workers(size: int) -> Iterator[Workers]:
    """Start processes for fold_trials() if there are many records: one for each CPU, but no more than there
    are pieces. They load numpy while the body goes on to fold_trials().

    Each process ends when its connection is closed, even if this process is killed.

    size: bytes of all records.
    """
    number = min(len(os.sched_getaffinity(0)), size // min(SMALLEST_PIECE, LARGEST_PIECE))
    if number < 2 or size < WORTH_PROCESSES:
        yield ()
        return
    context = multiprocessing.get_context("spawn")  # not forked: numpy's threads do not survive that
    started = []
    try:
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            with _safe_path():
                process.start()
            theirs.close()
            started.append((ours, process))
        yield tuple(ours for ours, _ in started)
    finally:
        for connection, process in started:
            connection.close()
            process.terminate()
            process.join()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let no Python that the body starts import modules from the current directory, which may be results of
    somebody else."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]
        if before is not None:
            os.environ[_SAFE_PATH] = before


def _work(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends all
    _keep_freed_memory()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        request, kept = connection.recv()
        while True:
            task: _Task = connection.recv()
            try:
                answer: Piece | NearmetalError = task.fold(request, kept)
            except NearmetalError as e:
                answer = e
            connection.send(answer)


def _keep_freed_memory() -> None:
    """Let glibc reuse the memory of a piece for the next one. Returning it to the kernel and taking it again
    took up to a fifth of the time. Other C libraries are left as they are."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        for parameter, value in _MALLOC:
            libc.mallopt(parameter, value)


def _spread(request: FoldRequest, tasks: Sequence[_Task], workers: Workers) -> Iterator[Piece]:
    """Yield the pieces of all tasks, in the order in which they are finished. This process folds the tasks of
    workers that died, and all tasks if there are no workers."""
    left = list(reversed(tasks))
    busy: dict[Connection, _Task] = {}

    def next_for(worker: Connection) -> None:
        if left:
            with suppress(OSError):
                worker.send(left[-1])
                busy[worker] = left.pop()

    for worker in workers:
        next_for(worker)
    while busy:
        for ready in wait(list(busy)):
            assert isinstance(ready, Connection)
            task = busy.pop(ready)
            try:
                answer: Piece | NearmetalError = ready.recv()
            except (EOFError, OSError):
                left.append(task)
                continue
            next_for(ready)
            if isinstance(answer, NearmetalError):
                raise answer
            yield answer
    while left:
        yield left.pop().fold(request)
