"""Reads a study of several parts, and shows its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ...api.images import unbuilt_images
from ...api.measuring import checked_on
from ...api.series import read_series
from ...api.studies import draw_seed
from ...errors import NearmetalError, UnavailableError, UsageError
from ...host import LocalHost
from ...images.build import build_seconds
from ...model.series import Part, Series
from ...model.series_file import SeriesFiles
from ...model.study import Study
from ...plan.narrowing import MachineOffer, narrow
from ...report.text import plural
from ...run.estimate import estimate
from ...units import show_clock
from ..common import SeriesOptions, print_json
from ..plan_text import foreseen, show_plan

if TYPE_CHECKING:
    from ...node.machine import Machine
    from ...node.progress import Progress


@dataclass(frozen=True, kw_only=True)
class RequestedSeries:
    """A series as read from its files, before this machine narrows it.

    only: keys of the requested parts; empty for all.
    """

    files: SeriesFiles
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


def requested_series(options: SeriesOptions) -> RequestedSeries:
    """Read the files of the series.

    Raises StudyError if they have mistakes, UsageError if there is no part with a given key.
    """
    seed = draw_seed() if options.seed is None else options.seed
    files = read_series(options.source, scale=options.scale, seed=seed)
    known = [entry.name for entry in files.head.parts]
    keys = tuple(k for text in options.only for k in text.split(",") if k)
    for key in keys:
        if key not in known:
            raise UsageError(f"--only: no part {key}", remedy=f"one of {', '.join(known)}")
    seconds = options.seconds or files.head.time
    return RequestedSeries(files=files, seed=seed, seconds=seconds, only=keys)


def planned_series(options: SeriesOptions) -> Series:
    """Return the series as a plan shows it. Nothing is started."""
    from ...run.series import able, offer_planned

    found = requested_series(options)
    series = found.narrowed(offer_planned(found.files, LocalHost(), options.backend), able)
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
        if part.study is not None and not unbuilt_images(part.study):  # what needs an image is not known
            try:
                study = checked_on(machine, part.study, progress, require_kvm=require_kvm)
                part = replace(part, study=study)
            except NearmetalError as e:
                errors.append(e)
                part = replace(part, study=None, absent=e.what)
        parts.append(part)
    if errors and all(part.study is None for part in parts):
        raise errors[0]
    return replace(series, parts=tuple(parts))


def show_series(series: Series, *, json: bool, blocks: int | None, shown: str = "") -> None:
    """Show the order and time of every part, before anything is measured.

    shown: the series as named on the command line.
    """
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
                "parts": [_planned(series, p) for p in series.parts],
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
        for omission in part.left_out:
            print(f"  left out: {omission}")
        if part.study is None:
            print(f"  not here: {part.absent}")
        else:
            show_plan(_timed(series, part, part.study), json=False, blocks=blocks or 1, shown=shown)
    known = [estimate(_timed(series, p, p.study)) for p in series.parts if p.study is not None]
    builds = _builds(series)
    for name, seconds in builds.items():
        print(f"\nimage {name} is not built and is built first: about {show_clock(seconds)} (estimated)")
    whole = sum(e.seconds for e in known) + sum(builds.values())
    print(f"\nall parts: about {show_clock(whole)} (estimated)")


def _builds(series: Series) -> dict[str, float]:
    """Return the estimated time to build each image that is not built yet, in seconds."""
    found = [unbuilt_images(p.study) for p in series.parts if p.study is not None]
    return {name: build_seconds(d) for images in found for name, d in images.items()}


def _planned(series: Series, part: Part) -> dict[str, object]:
    head: dict[str, object] = {
        "part": part.key,
        "title": part.title,
        "notes": list(part.notes),
        "left_out": [asdict(o) for o in part.left_out],
    }
    if part.study is None:
        return {**head, "absent": part.absent}
    guess = estimate(_timed(series, part, part.study))
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


def _timed(series: Series, part: Part, study: Study) -> Study:
    from ...run.series import budget

    waiting = [p for p in series.parts if p.study is not None]
    return with_time(study, budget(part, waiting, series.max_time))


def with_time(study: Study, seconds: float) -> Study:
    return replace(study, design=replace(study.design, max_time=seconds))
