"""Our programs for the processor that the outer machine has, compiled here, since a compiler takes minutes
there: what nearmetal finds in its cache is what it would have built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.nested.parts import ANY_CPU

from nearmetal.host import Completed, LocalHost, MissingValue
from nearmetal.host.runtime import scratch_directory
from nearmetal.images.store import Image
from nearmetal.node.machine import prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.node.software import compiled_software
from nearmetal.workloads.build import FLAGS


class ForOther(LocalHost):
    """This machine, which takes itself for one of another processor. cpuinfo: that of the other."""

    def __init__(self, cpuinfo: bytes) -> None:
        self._cpuinfo = cpuinfo

    def read(self, path: str | Path) -> bytes | MissingValue:
        return self._cpuinfo if str(path) == "/proc/cpuinfo" else super().read(path)

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
        # The record says what was asked for; the compiler is asked for what every processor can.
        own = [word.replace(f"-DNEARMETAL_FLAGS={FLAGS}", f"-DNEARMETAL_FLAGS={ANY_CPU}") for word in argv]
        return super().run(
            own,
            timeout=timeout,
            env=env,
            cwd=cwd,
            stdin=stdin,
            pass_fds=pass_fds,
            each_second=each_second,
            before_kill=before_kill,
            most=most,
        )


def prebuilt(cpuinfo: str, image: Image, label: str) -> tuple[Path, Path]:
    """Directories of the cache: for the machine's own MPI, and for that of an image."""
    machine = prepare_machine(ForOther(cpuinfo.encode()), NullProgress())
    with scratch_directory(label) as scratch:
        software = compiled_software(machine, image, None, scratch, None, NullProgress())
    return machine.built.directory.parent, software.built.directory.parent
