"""The command calibrate. It checks that no difference is found where there is none, and that a planted cost
is found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...api.measuring import checked, measured
from ...api.results import write_report
from ...api.studies import study_from, study_text
from ...errors import ExitCode
from ...model.study import Mode
from ..common import complain, print_json
from ..options import OF_ENGINES, RunOptions, with_run_options
from ..plan_text import show_plan
from ..view import View, analysed
from .measuring import changed, finish, order_of

if TYPE_CHECKING:
    from ...run.calibration import PlantedCheck

#: Study, mode and share of the budget. Plain trials are the alternative design to slices.
CALIBRATION = (
    ("calibrate", Mode.SLICES, 0.55),
    ("calibrate", Mode.PLAIN, 0.25),
    ("calibrate-quota", Mode.PLAIN, 0.2),
)


@with_run_options(
    *("max_blocks", "mode", "width", "everything", "fail_on", "overrun", "require", *OF_ENGINES), time="5m"
)
def calibrate(*, options: RunOptions) -> int:
    from ...run.calibration import judge, table

    if options.dry_run:
        with View(quiet=options.json) as view:
            # Two of the three studies have the same environments. The plan is that of the first.
            for name in ("calibrate-quota", "calibrate"):
                study = checked(changed(study_from(name, options.seed, complain), options), view)
        show_plan(study, json=options.json, blocks=None)
        return ExitCode.DONE
    checks: list[PlantedCheck] = []
    directories: list[str] = []
    unchecked: list[str] = []
    for name, mode, share in CALIBRATION:
        study = changed(study_from(name, options.seed, complain), options)
        assert study.design.max_time is not None, "--time has a default"
        design = replace(study.design, mode=mode, max_time=study.design.max_time * share)
        study = replace(study, design=design)
        with View(quiet=options.json) as view:
            order = order_of(options, study_text(study))
            order = replace(order, longer=f"this part gets {100 * share:.0f} % of --time, of which")
            outcome = measured(study, order, view)
        if outcome.interrupted or outcome.directory is None:
            return finish(outcome, options)
        found = analysed(outcome.directory, quiet=options.json)
        write_report(found)
        outcome.directory.close()
        directories.append(str(outcome.directory.path))
        own = judge(found.study, found.analysis, mode)
        unchecked += [] if own else [str(outcome.directory.path)]
        checks += own
    if unchecked:
        where = ", ".join(unchecked)
        complain(f"nothing was checked in {where}: no round ended in time; next: a longer --time")
    passed = not unchecked and all(c.passed for c in checks)
    if options.json:
        print_json({"passed": passed, "checks": [c.as_json() for c in checks], "results_dirs": directories})
    else:
        if checks:
            print(table(checks, 1 - study.design.confidence))
        print("Reports: " + ", ".join(f"{d}/report.html" for d in directories))
    return ExitCode.DONE if passed else ExitCode.FINDING
