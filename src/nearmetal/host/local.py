"""This machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

from .base import Completed, Launched, Process, Unavailable
from .helper import launch_helper

_READ = 1 << 16


class LocalProcess:
    """A child in its own session, so that one signal reaches all its descendants that stay in it."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        return self._popen.poll()

    def wait(self, timeout: float) -> int:
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired as e:
            raise TimeoutError(f"{self._popen.args!r} still runs after {timeout} s") from e

    def kill(self) -> None:
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()


def _communicate(
    child: subprocess.Popen[str], stdin: str | None, timeout: float, each_second: Callable[[], None] | None
) -> tuple[str, str]:
    """Popen.communicate, which may be called again after a time-out and then loses nothing."""
    end = time.monotonic() + timeout
    while each_second is not None and end - time.monotonic() > 1:
        try:
            return child.communicate(stdin, 1)
        except subprocess.TimeoutExpired:
            each_second()
    return child.communicate(stdin, max(end - time.monotonic(), 0))


def _what_was_said(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Output of a child that was killed. A daemon it left may hold the pipes open: not waited for."""
    try:
        return child.communicate(timeout=1)
    except subprocess.TimeoutExpired as e:
        out, err = (
            t.decode(errors="replace") if isinstance(t, bytes) else t or "" for t in (e.stdout, e.stderr)
        )
        return out, err


class LocalHost:
    """The machine that the tool runs on."""

    name = "localhost"

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str | None = None,
        pass_fds: Sequence[int] = (),
        each_second: Callable[[], None] | None = None,
    ) -> Completed:
        begin = time.monotonic()
        try:
            child = subprocess.Popen(
                list(argv),
                env={**os.environ, **env} if env else None,
                cwd=cwd,
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as e:
            return Completed(argv=tuple(argv), returncode=127, stdout="", stderr=str(e), seconds=0.0)
        with child:
            try:
                out, err = _communicate(child, stdin, timeout, each_second)
                code = child.returncode
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                out, err = _what_was_said(child)
                code = 124
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                raise
        return Completed(
            argv=tuple(argv), returncode=code, stdout=out, stderr=err, seconds=time.monotonic() - begin
        )

    def start(
        self,
        argv: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Process:
        with stdout.open("ab") as out, stderr.open("ab") as err:
            return LocalProcess(
                subprocess.Popen(
                    list(argv),
                    env={**os.environ, **env} if env else None,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    pass_fds=tuple(pass_fds),
                )
            )

    def launch(
        self,
        argv: Sequence[str],
        *,
        expect: Set[str],
        timeout: float,
        env: Mapping[str, str] | None = None,
    ) -> Launched:
        return launch_helper(argv, expect=expect, timeout=timeout, env=env)

    def read(self, path: str | Path) -> bytes | Unavailable:
        # Without a buffered file object: counters are read some twenty times per trial.
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                chunks = []
                while chunk := os.read(fd, _READ):
                    chunks.append(chunk)
            finally:
                os.close(fd)
            return b"".join(chunks)
        except OSError as e:
            return Unavailable(f"{path}: {e.strerror}")

    def which(self, program: str) -> str | None:
        return shutil.which(program)

    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(os.sched_getaffinity(0)))

    def is_root(self) -> bool:
        return os.geteuid() == 0
