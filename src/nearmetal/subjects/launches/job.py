"""A running MPI launch of nm-micro. Each rank blocks in read() on its own FIFO until a token lets it run."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ...environments.program import read_log
from ...errors import TrialFailedError
from ...host import Host, Process
from ...host.processes.failure import describe_failure
from ...host.untrusted import UntrustedDirectory
from ...workloads.protocol import LONGEST, Line, ReadyLine, SliceLine, VerifyLine, parse_line

READY_LIMIT = 120.0
END_LIMIT = 60.0
TOKEN_LIMIT = 120.0

Answer = TypeVar("Answer", ReadyLine, SliceLine, VerifyLine)


class RankJob:
    """An MPI launch of nm-micro, and the FIFOs that control it. As a context manager it is closed on exit."""

    def __init__(self, directory: Path, ranks: int, log: Path, trouble: Callable[[], str] = str) -> None:
        """Create the FIFOs of a job. The job is not launched yet.

        directory: directory for the FIFOs.
        log: directory for the output of mpirun.
        trouble: called while waiting for an answer. If it returns a text, waiting fails with this text.
        """
        self.directory, self.ranks, self.log = directory, ranks, log
        self._trouble = trouble
        self._process: Process | None = None
        self._buffer = b""
        self._tokens: list[int] = []
        self._out = -1
        self._kept: list[Process] = []
        own = UntrustedDirectory(directory)
        try:
            for rank in range(ranks):
                # Opened for reading and writing, so that open() blocks on neither side. The ranks still get
                # EOF when this process dies, since it is the only writer.
                self._tokens.append(own.make_fifo(f"token.{rank}"))
                os.set_blocking(self._tokens[-1], True)
            self._out = own.make_fifo("out", os.O_RDONLY)
        except OSError as e:
            self.close()
            raise TrialFailedError(f"no FIFOs for the ranks: {e.strerror}", where=str(directory)) from e
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)

    def keep(self, processes: Sequence[Process]) -> None:
        """Register processes that are ended when the job is closed, after the ranks have had time to end."""
        self._kept += processes

    def launch(self, host: Host, argv: Sequence[str], env: Mapping[str, str | None]) -> None:
        """Start the ranks. Returns at once."""
        self._process = host.start(
            argv,
            env=env,
            cwd=Path("/"),
            stdout=self.log / "stdout.txt",
            stderr=self.log / "stderr.txt",
        )

    def ready(self, limit: float = READY_LIMIT) -> ReadyLine:
        """Wait until all ranks are ready.

        limit: time limit in seconds.
        Raises TrialFailedError if they do not answer in time.
        """
        return self._expect(ReadyLine, limit)

    def slice(self, kernel: int, units: int) -> SliceLine:
        """Run one timed slice of the kernel with this number. Raises TrialFailedError."""
        self._send(f"s {kernel} {units}\n")
        return self._expect(SliceLine, TOKEN_LIMIT, kernel)

    def verify(self, kernel: int) -> VerifyLine:
        """Run the kernel with this number in full, with its verification. Raises TrialFailedError."""
        self._send(f"v {kernel}\n")
        return self._expect(VerifyLine, TOKEN_LIMIT, kernel)

    def quit(self) -> None:
        """Tell the ranks to end. Returns at once."""
        self._send("q\n")

    def ended(self, limit: float = END_LIMIT) -> None:
        """Wait until the ranks have ended.

        Raises TrialFailedError if they do not end in time, or end with an error.
        """
        assert self._process is not None
        try:
            code = self._process.wait(limit)
        except TimeoutError as e:
            raise TrialFailedError(f"mpirun did not end within {limit:g} s", where=str(self.log)) from e
        if code != 0:
            raise self._failure(code)

    def close(self) -> None:
        """End the launch and close the FIFOs, in whatever state they are. May be called more than once."""
        for fd in (*self._tokens, self._out):
            if fd >= 0:
                os.close(fd)
        self._tokens, self._out = [], -1
        if self._process is not None:
            # Closed FIFOs end the ranks by EOF. Processes that ignore it are killed with their session.
            with contextlib.suppress(TimeoutError):
                self._process.wait(2.0)
            self._process.kill()
            self._process = None
        for process in self._kept:
            process.kill()
        self._kept = []

    def __enter__(self) -> RankJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, token: str) -> None:
        for fd in self._tokens:
            os.write(fd, token.encode())

    def _expect(self, kind: type[Answer], limit: float, kernel: int | None = None) -> Answer:
        """Read the next line. Raises TrialFailedError if it is of another kind or about another kernel."""
        line = self._line(limit)
        if not isinstance(line, kind) or getattr(line, "kernel", None) != kernel:
            raise TrialFailedError(f"the ranks answered {str(line)[:200]}", where=str(self.log))
        return line

    def _line(self, limit: float) -> Line:
        end = time.monotonic() + limit
        while b"\n" not in self._buffer:
            wait = min(end - time.monotonic(), 0.5)
            if wait <= 0:
                raise TrialFailedError(
                    f"no answer from the ranks for {limit:g} s",
                    where=str(self.log),
                    remedy="read stderr.txt there",
                )
            if self._poll.poll(wait * 1000):
                chunk = os.read(self._out, 1 << 16)
                self._buffer += chunk
                if len(self._buffer) > LONGEST:
                    raise TrialFailedError(
                        f"the ranks answer in a line of more than {LONGEST} bytes", where=str(self.log)
                    )
                if chunk:
                    continue
                # EOF: no rank has the FIFO open any more, or none has opened it yet.
                time.sleep(0.001)
            if trouble := self._trouble():
                raise TrialFailedError(trouble, where=str(self.log))
            assert self._process is not None
            code = self._process.poll()
            if code is not None and not self._pending():
                raise self._failure(code)
        text, _, self._buffer = self._buffer.partition(b"\n")
        return parse_line(text)

    def _pending(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._buffer += os.read(self._out, 1 << 16)
        return b"\n" in self._buffer

    def _failure(self, status: int) -> TrialFailedError:
        texts = (read_log(self.log / name) for name in ("stderr.txt", "stdout.txt"))
        return TrialFailedError(
            describe_failure("nm-micro", status, *texts, launcher="mpirun"), where=str(self.log)
        )
