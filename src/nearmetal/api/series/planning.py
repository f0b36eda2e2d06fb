"""Plans a study of several parts: the parts that this machine can run, and the time of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import NearmetalError, UnavailableError, UsageError
from ...host import LocalHost
from ...images.build import build_seconds
from ...model.series import Scale, Series
from ...model.series_file import SeriesFiles
from ...model.study import Study
from ...plan.narrowing import MachineOffer, narrow
from ...studies import SeriesSource
from ..estimates import PartProgress, estimated, foreseen
from ..images import unbuilt_images
from ..measuring import checked, machine_here
from ..studies import draw_seed
from .files import read_series

if TYPE_CHECKING:
    from ...node.machine import Machine
    from ...node.progress import Progress
    from ...run.estimate import RunEstimate


@dataclass(frozen=True, kw_only=True)
class RequestedSeries:
    """A series as read from its files, before this machine narrows it.

    backend: backend of its instances; None for those that the series file prefers.
    seconds: time budget of all parts together.
    only: keys of the requested parts; empty for all.
    """

    files: SeriesFiles
    backend: str | None
    seed: int
    seconds: float
    only: tuple[str, ...]

    def narrowed(self, offer: MachineOffer, able: Callable[[Series], Series] | None = None) -> Series:
        """Return the series that a machine can run.

        able: removes what no machine can run; None to remove nothing more.

        Raises UnavailableError if the machine can run no part.
        """
        series = narrow(self.files, offer, seed=self.seed, max_time=self.seconds, only=self.only)
        series = series if able is None else able(series)
        if all(p.study is None for p in series.parts):
            omissions = dict.fromkeys(o for p in series.parts for o in p.left_out)
            raise UnavailableError(
                f"no part of {series.name} runs here: "
                + "; ".join(dict.fromkeys(p.absent for p in series.parts)),
                remedy="; ".join(dict.fromkeys(o.remedy for o in omissions if o.remedy)),
            )
        return series


def requested_series(
    source: SeriesSource,
    *,
    scale: Scale | None = None,
    only: Sequence[str] = (),
    backend: str | None = None,
    time: float | None = None,
    seed: int | None = None,
) -> RequestedSeries:
    """Read the files of a series.

    scale: None for the default.
    only: keys of parts; each text may contain several, with commas between them. Empty for all parts.
    backend: see RequestedSeries.
    time: time budget of all parts together, in seconds; None for that of the series file.
    seed: None to draw one.

    Raises StudyError if the files have mistakes, UsageError if there is no part with a given key.
    """
    seed = draw_seed() if seed is None else seed
    files = read_series(source, scale=scale, seed=seed)
    known = [entry.name for entry in files.head.parts]
    keys = tuple(k for text in only for k in text.split(",") if k)
    if only and not keys:
        raise UsageError("--only: no part is named", remedy=f"one of {', '.join(known)}")
    for key in keys:
        if key not in known:
            raise UsageError(f"--only: no part {key}", remedy=f"one of {', '.join(known)}")
    seconds = time or files.head.time
    return RequestedSeries(files=files, backend=backend, seed=seed, seconds=seconds, only=keys)


def series_here(found: RequestedSeries, progress: Progress) -> tuple[Machine, Series]:
    """Return this machine, ready to measure, and the series that it can run."""
    from ...run.series import able, offer_here

    machine = machine_here(progress, None)
    return machine, found.narrowed(offer_here(found.files, machine, progress, found.backend), able)


def planned_series(found: RequestedSeries) -> Series:
    """Return the series as a plan shows it: as it is expected to run on this machine. Nothing is started."""
    from ...run.series import able, offer_planned

    series = found.narrowed(offer_planned(found.files, LocalHost(), found.backend), able)
    parts = (p if p.study is None else replace(p, study=foreseen(p.study)) for p in series.parts)
    return replace(series, parts=tuple(parts))


def checked_series(
    series: Series, machine: Machine, progress: Progress, *, require_kvm: bool = False
) -> Series:
    """Return the series as it would run here. A part that cannot run on this machine gets the reason instead
    of its study. Nothing is measured.

    require_kvm: as in with_accelerators().

    Raises the error of the first part if none can run.
    """
    parts, errors = [], []
    for part in series.parts:
        if part.study is not None and unbuilt_images(part.study):  # it cannot be checked without its image
            part = replace(part, study=foreseen(part.study))
        elif part.study is not None:
            try:
                study = checked(part.study, progress, machine=machine, require_kvm=require_kvm)
                part = replace(part, study=study)
            except NearmetalError as e:
                errors.append(e)
                part = replace(part, study=None, absent=reason(e))
        parts.append(part)
    if errors and all(part.study is None for part in parts):
        raise errors[0]
    return replace(series, parts=tuple(parts))


def reason(error: NearmetalError) -> str:
    """Return the message and the remedy of an error in one line."""
    return f"{error.what}; next: {error.remedy}" if error.remedy else error.what


def part_times(series: Series, begun: Mapping[str, PartProgress]) -> dict[str, tuple[Study, RunEstimate]]:
    """Divide the time of a series among its parts. See planned_times() for the result.

    begun: the state of the parts that were begun, by key.
    """
    from ...run.series import planned_times

    return planned_times(series, lambda part, study: estimated(study, begun.get(part.key)))


def images_to_build(series: Series) -> dict[str, float]:
    """Return the estimated time to build each image that is not built yet, in seconds."""
    found = [unbuilt_images(p.study) for p in series.parts if p.study is not None]
    return {name: build_seconds(d) for images in found for name, d in images.items()}
