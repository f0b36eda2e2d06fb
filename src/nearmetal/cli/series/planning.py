"""Reads a study of several parts, and shows its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ...api.images import unbuilt_images
from ...api.measuring import checked
from ...api.series import read_series
from ...api.studies import draw_seed
from ...errors import NearmetalError, UnavailableError, UsageError
from ...host import LocalHost
from ...images.build import build_seconds
from ...model.series import Part, Scale, Series, omission_lines
from ...model.series_file import SeriesFiles
from ...model.study import Study
from ...plan.narrowing import MachineOffer, narrow
from ...report.text import plural
from ...studies import SeriesSource
from ...units import show_clock
from ..common import duration, print_json
from ..plan_text import Begun, estimated, foreseen, show_plan

if TYPE_CHECKING:
    from ...node.machine import Machine
    from ...node.progress import Progress
    from ...run.estimate import RunEstimate


@dataclass(frozen=True, kw_only=True)
class RequestedSeries:
    """A series as read from its files, before this machine narrows it.

    backend: backend of its instances; None for those that the series file prefers.
    seconds: time of all parts.
    only: keys of the requested parts; empty for all.
    """

    files: SeriesFiles
    backend: str | None
    seed: int
    seconds: float
    only: tuple[str, ...]

    def narrowed(self, offer: MachineOffer, able: Callable[[Series], Series] | None = None) -> Series:
        """Return the series that a machine can run.

        able: removes what no machine can run.

        Raises UnavailableError if it can run no part.
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
    time: str | None = None,
    seed: int | None = None,
) -> RequestedSeries:
    """Read the files of a series, with options as on the command line.

    scale: None for the default.
    only: keys of parts; all if empty.

    Raises StudyError if they have mistakes, UsageError if there is no part with a given key.
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
    seconds = duration(time) or files.head.time
    return RequestedSeries(files=files, backend=backend, seed=seed, seconds=seconds, only=keys)


def planned_series(found: RequestedSeries) -> Series:
    """Return the series as a plan shows it. Nothing is started."""
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
    """Return why a part does not run, and what helps, in one line."""
    return f"{error.what}; next: {error.remedy}" if error.remedy else error.what


def show_series(
    series: Series,
    *,
    json: bool,
    blocks: int | None,
    begun: Mapping[str, Begun] | None = None,
) -> None:
    """Show the order and time of every part, before anything is measured.

    blocks: how many to show of each part; one if None.
    begun: the state of the parts that were begun, by key, if the series is to be resumed; the series has the
        parts that are not done.
    """
    from ...run.series import planned_times

    resuming, begun = begun is not None, begun or {}
    timed = planned_times(series, lambda part, study: estimated(study, begun.get(part.key)))
    if json:
        print_json(
            {
                "study": series.name,
                "title": series.title,
                "scale": None if series.scale is None else series.scale.value,
                "seed": series.seed,
                "max_time": series.max_time,
                "notes": list(series.notes),
                "images_to_build": _builds(series),
                "parts": [_planned(p, timed, begun.get(p.key)) for p in series.parts],
            }
        )
        return
    print(series.title)
    scale = "" if series.scale is None else f"scale {series.scale} · "
    print(f"{scale}{plural(len(series.parts), 'part')} · {show_clock(series.max_time)} in all")
    for note in series.notes:
        print(f"  {note}")
    for part in series.parts:
        print(f"\n{part.key}  {part.title}")
        for note in part.notes:
            print(f"  {note}")
        for line in omission_lines(part.left_out):
            print(f"  left out: {line}")
        if part.study is None:
            print(f"  not here: {part.absent}")
        elif part.key not in timed:
            more = alone(part, resuming=resuming)
            print(f"  not in this time: the parts before it use it up; next: {more} TIME")
        else:
            show_plan(
                timed[part.key][0],
                json=False,
                blocks=blocks or 1,
                begun=begun.get(part.key),
                longer=alone(part, resuming=resuming),
            )
    builds = _builds(series)
    for name, seconds in builds.items():
        print(f"\nimage {name} is not built and is built first: about {show_clock(seconds)} (estimated)")
    whole = sum(e.seconds for _, e in timed.values()) + sum(builds.values())
    beside = "; building images does not count against the time of the study" if builds else ""
    print(f"\nall parts: about {show_clock(whole)} (estimated){beside}")


def alone(part: Part, *, resuming: bool) -> str:
    """Return the options that give a part more time: of a resumption, which has no --only, for all parts."""
    return "--time" if resuming else f"--only {part.key} --time"


def _builds(series: Series) -> dict[str, float]:
    """Return the estimated time to build each image that is not built yet, in seconds."""
    found = [unbuilt_images(p.study) for p in series.parts if p.study is not None]
    return {name: build_seconds(d) for images in found for name, d in images.items()}


def _planned(
    part: Part, timed: Mapping[str, tuple[Study, RunEstimate]], begun: Begun | None
) -> dict[str, object]:
    head: dict[str, object] = {
        "part": part.key,
        "title": part.title,
        "notes": list(part.notes),
        "left_out": [asdict(o) for o in part.left_out],
    }
    if part.study is None:
        return {**head, "absent": part.absent}
    head["blocks_done"] = 0 if begun is None else len(begun.done)
    if part.key not in timed:
        return {**head, "estimated_blocks": 0, "estimated_seconds": 0.0}
    guess = timed[part.key][1]
    return {
        **head,
        "question": part.study.question,
        "arms": [a.name for a in part.study.arms()],
        "estimated_blocks": guess.blocks,
        "estimated_block_seconds": guess.block_seconds,
        "estimated_late_blocks": guess.late_blocks,
        "estimated_late_block_seconds": guess.late_seconds if guess.late_blocks else None,
        "estimated_seconds": guess.seconds,
    }
