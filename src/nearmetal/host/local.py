"""The host that is this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import ExitStack
from pathlib import Path

from .base import Completed, Launched, MissingValue, Process
from .processes.bounded import Drain, open_log
from .processes.conversation import Conversation
from .processes.failure import CANNOT_START, NOT_FOUND, TIMED_OUT
from .processes.helper import launch_helper, wait_for_end
from .processes.labelled import LABEL_VARIABLE, kill_group, kill_program

_READ = 1 << 16
#: Seconds for which pipes are still read after their program was killed. A daemon may keep them open.
_LAST_WORDS = 1.0


def _environment(changes: Mapping[str, str | None] | None) -> dict[str, str] | None:
    """Return the whole environment of a command; None if nothing is changed."""
    if not changes:
        return None
    return {name: value for name, value in {**os.environ, **changes}.items() if value is not None}


def _stdin_of(stdin: str | int | None) -> int:
    if isinstance(stdin, str):
        return subprocess.PIPE
    return subprocess.DEVNULL if stdin is None else stdin


class LocalProcess:
    """A child process in a session of its own, so that one signal reaches all descendants that stay in its
    process group.

    label: the label in its environment; None if there is none.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], drains: Sequence[Drain] = (), label: str | None = None
    ) -> None:
        self._popen, self._drains, self._label = popen, drains, label

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        return self._popen.poll()

    def wait(self, timeout: float) -> int:
        # Popen.wait would sleep for 0.5 ms or more between two checks.
        if self._popen.poll() is None and not wait_for_end(self._popen.pid, timeout):
            raise TimeoutError(f"{self._popen.args!r} still runs after {timeout} s")
        return self._popen.wait()

    def kill(self) -> None:
        kill_program(self.pid, self._label, runs=self.poll() is None, reap=self._popen.wait)
        for drain in self._drains:
            drain.join(_LAST_WORDS)


class LocalHost:
    """The machine that the tool runs on."""

    name = "localhost"

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: str | int | None = None,
        pass_fds: Sequence[int] = (),
        each_second: Callable[[], None] | None = None,
        before_kill: Callable[[], None] | None = None,
        most: int | None = None,
    ) -> Completed:

        def kill(child: subprocess.Popen[bytes]) -> None:
            try:
                if before_kill is not None:
                    before_kill()
            finally:
                kill_group(child.pid, child.wait)

        begin = time.monotonic()
        text = stdin if isinstance(stdin, str) else None
        # Use plain descriptors, because making file objects would take as long as the start itself.
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        try:
            try:
                child = subprocess.Popen(
                    list(argv),
                    env=_environment(env),
                    cwd=cwd,
                    stdin=_stdin_of(stdin),
                    stdout=out_end,
                    stderr=err_end,
                    start_new_session=True,
                    pass_fds=tuple(pass_fds),
                )
            except OSError as e:
                return Completed(
                    argv=tuple(argv),
                    returncode=NOT_FOUND,
                    stdout="",
                    stderr=f"{CANNOT_START}{e.strerror}",
                    seconds=0.0,
                )
            finally:
                os.close(out_end)
                os.close(err_end)
            with child, Conversation(child, (out, err), text, most) as conversation:
                try:
                    ended = conversation.until(begin + timeout, each_second)
                except BaseException:
                    kill(child)
                    raise
                if not ended:
                    kill(child)
                    conversation.until(time.monotonic() + _LAST_WORDS, None)
                code = child.wait() if ended else TIMED_OUT
                words = conversation.texts()
        finally:
            os.close(out)
            os.close(err)
        return Completed(
            argv=tuple(argv),
            returncode=code,
            stdout=words[0],
            stderr=words[1],
            seconds=time.monotonic() - begin,
        )

    def start(
        self,
        argv: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: int | None = None,
        pass_fds: Sequence[int] = (),
        most: int | None = None,
    ) -> Process:
        with ExitStack() as ours:
            ends: list[int] = []
            drains = []
            for file in (stdout, stderr):
                if most is None:
                    ends.append(open_log(file))
                    ours.callback(os.close, ends[-1])
                    continue
                out, end = os.pipe()
                ends.append(end)
                ours.callback(os.close, end)
                drains.append(Drain(out, file, most))
            child = subprocess.Popen(
                list(argv),
                env=_environment(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=ends[0],
                stderr=ends[1],
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        return LocalProcess(child, drains, (env or {}).get(LABEL_VARIABLE))

    def launch(
        self,
        argv: Sequence[str],
        *,
        expect: Set[str],
        timeout: float,
        env: Mapping[str, str] | None = None,
        inherit: bool = True,
    ) -> Launched:
        return launch_helper(argv, expect=expect, timeout=timeout, env=env, inherit=inherit)

    def read(self, path: str | Path) -> bytes | MissingValue:
        # Use no buffered file object, which is slower: counters are read about twenty times per trial.
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
            return MissingValue(f"{path}: {e.strerror}")

    def which(self, program: str) -> str | None:
        return shutil.which(program)

    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(os.sched_getaffinity(0)))

    def is_root(self) -> bool:
        return os.geteuid() == 0
