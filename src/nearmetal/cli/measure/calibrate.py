"""The command calibrate. It checks that no difference is found where there is none, and that a planted cost
is found."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...api.calibrating import calibrate as calibrate_here
from ...api.calibrating import checked_calibration
from ...errors import ExitCode
from ...units import show_effect, show_overhead
from ..options import OF_ENGINES, RunOptions, with_run_options
from ..output import complain, print_json, print_lines
from ..plan_text import show_plan
from ..view import View, analysed
from .measuring import changed, finish, order_of

if TYPE_CHECKING:
    from ...api.calibrating import Calibration


@with_run_options(
    *("max_blocks", "mode", "width", "everything", "fail_on", "overrun", "require", *OF_ENGINES), time="5m"
)
def calibrate(*, options: RunOptions) -> int:
    change = partial(changed, options=options)
    if options.dry_run:
        with View(quiet=options.json) as view:
            study = checked_calibration(change, view, seed=options.seed, note=complain)
        show_plan(study, json=options.json, blocks=None)
        return ExitCode.DONE
    found = calibrate_here(
        change,
        order_of(options),
        partial(View, quiet=options.json),
        seed=options.seed,
        note=complain,
        analyse=partial(analysed, quiet=options.json),
    )
    if found.interrupted is not None:
        return finish(found.interrupted, options)
    _show(found, json=options.json)
    return ExitCode.DONE if found.passed else ExitCode.FINDING


def _show(found: Calibration, *, json: bool) -> None:
    directories = [str(d) for d in found.directories]
    if found.unchecked:
        where = ", ".join(map(str, found.unchecked))
        complain(f"nothing was checked in {where}: no round ended in time; next: a longer --time")
    if json:
        checks = [c.as_json() for c in found.checks]
        print_json({"passed": found.passed, "checks": checks, "results_dirs": directories})
        return
    if found.checks:
        print_lines(*table(found))
    reports = [f"{d}/report.html" for d in found.directories if d not in found.unchecked]
    print_lines("Reports: " + ", ".join(reports) if reports else "No report was written.")


def table(found: Calibration) -> list[str]:
    """Return the lines of a table, one per check, and how many misses are expected by chance."""
    checks = found.checks
    lines = [f"{'':5}{'design':<8}{'environment':<16}{'metric':<22}{'planted':>9}  found"]
    for c in checks:
        mark = "ok" if c.passed else "MISS"
        lines.append(
            f"{mark:<5}{c.design:<8}{c.environment:<16}{c.what:<22}{show_overhead(c.planted):>9}"
            f"  {show_effect(c.overhead, c.low, c.high)}  n = {c.n}  {c.verdict}  {c.reason}".rstrip()
        )
    missed = sum(not c.passed for c in checks)
    lines.append(
        f"{len(checks) - missed} of {len(checks)} planted values found; of {len(checks)} intervals "
        f"of {100 * found.confidence:.3g} %, up to {found.likely_misses} miss by chance"
    )
    return lines
