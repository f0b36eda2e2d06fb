"""Predict how long a restore of a user's instance takes, and find out what would prevent it. Nothing is
changed."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...environments.criu_images import check_images
from ...environments.external import (
    CheckOutcome,
    External,
    HostCheck,
    Saved,
    compare,
    distrust,
    named,
    read_here,
    read_interrupted,
    read_saved,
    require_kept,
    sizes_by_file,
    sizes_of,
    write_saved,
)
from ...errors import NearmetalError, RunError, UsageError
from ...host import Host
from ...host.untrusted import UntrustedDirectory
from ...lifecycle import Conditions, Estimate, Method, Prediction, corrected, predict
from ...model.change import replace
from .past import keep, past_moves
from .plans import MoveOptions, work_of

RESTORE = "restore"
_READ = 32 << 20
"""Largest number of bytes that are read to measure how fast images are read."""


class UntrustedError(UsageError):
    """A checkpoint may come from somebody else."""


@dataclass(frozen=True, kw_only=True)
class RestorePlan:
    """The prediction of a restore.

    instance: name of the instance after the restore.
    size: bytes of the images.
    findings: the results of all checks, each with whether it prevents the restore.
    prediction: the predicted duration; the instance does not run during all of it.
    uncorrected: the prediction before it was corrected by earlier restores.
    """

    directory: str
    instance: str
    method: Method
    size: int
    findings: tuple[HostCheck, ...]
    prediction: Prediction
    uncorrected: Prediction

    @property
    def prevented(self) -> bool:
        """Whether the restore would fail."""
        return any(f.answer is CheckOutcome.PREVENTS for f in self.findings)


def read(host: Host, directory: Path, into: str | None, *, complete: bool) -> tuple[Saved, External]:
    """Return the description of the checkpoint in a directory, and the instance that a restore makes of it.

    A checkpoint whose command was killed is accepted if all images were written and the instance has ended.

    into: name of the restored instance; None for the name that it had.
    complete: whether to write the description that such a killed command did not write.

    Raises UsageError if there is no usable checkpoint, if it was handed over to another host, or if it does
    not fit the name.
    """
    require_kept(directory)
    interrupted = read_interrupted(directory)
    if interrupted is not None:
        _require_ended(host, directory, interrupted)
        if complete:
            with contextlib.suppress(RunError):  # on a full disk the images can still be restored
                write_saved(directory, interrupted)
        saved = replace(interrupted, size=sizes_of(directory))
    else:
        saved = read_saved(directory)
    external = named(saved.name if into is None else into)
    unlike = external.name.partition(":")[0] != saved.name.partition(":")[0]
    if unlike or (external.keeps_name and external.name != saved.name):
        raise UsageError(
            f"{directory} contains {saved.name}, which does not become {external.name}",
            remedy=f"--into {saved.name}",
        )
    for name, value in saved.own.items():
        if not re.fullmatch(external.own_fields.get(name, "(?!)"), value):
            raise UsageError(
                f"{directory} says {name} = {value[:80]!r}, which no checkpoint of {external.name} contains",
                remedy="do not restore it: somebody has changed its description",
            )
    return saved, external


def require_trust(directory: Path) -> None:
    """Raises UntrustedError if a checkpoint may come from somebody else."""
    if why := distrust(directory):
        raise UntrustedError(
            f"{why}, and a restore runs its program with your rights",
            remedy="if you trust whoever has written it: --trust",
        )


def untrusted_plan(directory: Path, into: str | None, error: UntrustedError) -> RestorePlan:
    """Return the plan of a restore that is refused. Nothing that the description names is read or asked."""
    interrupted = read_interrupted(directory)
    saved = replace(interrupted, size=sizes_of(directory)) if interrupted else read_saved(directory)
    external = named(saved.name if into is None else into)
    finding = HostCheck(subject="origin", answer=CheckOutcome.PREVENTS, text=error.what, remedy=error.remedy)
    return _plan(directory, saved, external, (finding,))


def _require_ended(host: Host, directory: Path, saved: Saved) -> None:
    state = named(saved.name).remaining_state(host)
    if state:
        raise UsageError(
            f"the checkpoint in {directory} was interrupted, and {saved.name} {state}",
            remedy="checkpoint it again, to a new directory; or end it, then restore",
        )


def planned_restore(host: Host, directory: Path, saved: Saved, external: External) -> RestorePlan:
    """Check everything that a restore needs, and predict how long it takes.

    saved: must come from read(), which has checked the sizes of the files.
    """
    return _plan(directory, saved, external, tuple(_findings(host, directory, saved, external)))


def _plan(directory: Path, saved: Saved, external: External, findings: tuple[HostCheck, ...]) -> RestorePlan:
    costs = external.costs(saved.method)
    known = Conditions(
        memory=Estimate.exactly(float(saved.size)),
        working_set=Estimate.exactly(0.0),
        dirty_rate=Estimate.exactly(0.0),
        bandwidth=_read_speed(directory),
        fixed=costs.fixed,
    )
    # A restore reads the images once, by whatever method they were written.
    uncorrected = replace(predict(Method.OFFLINE, known), method=saved.method)
    return RestorePlan(
        directory=str(directory),
        instance=external.name,
        method=saved.method,
        size=saved.size,
        findings=findings,
        prediction=corrected(uncorrected, past_moves(), _kind(external.name)),
        uncorrected=uncorrected,
    )


def remember_restore(plan: RestorePlan, total: float) -> None:
    """Record a finished restore, so that later predictions are corrected by it.

    total: measured seconds.
    """
    keep(_kind(plan.instance), plan.uncorrected, total, total)


def _kind(instance: str) -> str:
    return f"{instance.partition(':')[0]} {RESTORE}"


def _findings(host: Host, directory: Path, saved: Saved, external: External) -> Iterator[HostCheck]:
    yield _images(directory, saved)
    try:
        external.require_programs(host, work_of(MoveOptions(), external))
        yield HostCheck(
            subject="programs", answer=CheckOutcome.FINE, text="all that restores it is installed"
        )
    except NearmetalError as e:
        yield HostCheck(subject="programs", answer=CheckOutcome.PREVENTS, text=e.what, remedy=e.remedy)
        return
    yield from external.look(host, directory.absolute(), saved)
    if saved.method.by_criu:
        yield from compare(saved.machine, read_here(host, saved.machine), saved.size)


def _images(directory: Path, saved: Saved) -> HostCheck:
    text = f"all files are there, with {saved.size / 2**20:.1f} MiB"
    try:
        if saved.method.by_criu:
            check_images(directory)
            if not os.access(directory, os.W_OK):
                raise RunError("CRIU writes its log there, and the directory cannot be written to")
    except (RunError, OSError) as e:
        return HostCheck(
            subject="images",
            answer=CheckOutcome.PREVENTS,
            text=str(e),
            remedy="copy the whole directory again",
        )
    return HostCheck(subject="images", answer=CheckOutcome.FINE, text=text)


def _read_speed(directory: Path) -> Estimate:
    """Estimate the speed of a restore in bytes per second: at most the measured speed of reading the largest
    image, since restoring the memory is slower than reading the file."""
    largest = max(sizes_by_file(directory).items(), key=lambda item: item[1])[0]
    begin, count = time.monotonic(), 0
    with UntrustedDirectory(directory).open_file(largest) as file:
        while count < _READ and (data := file.read(1 << 20)):
            count += len(data)
    speed = max(count, 1) / max(time.monotonic() - begin, 1e-6)
    return Estimate(speed / 8, speed / 2, speed)
