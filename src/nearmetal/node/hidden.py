"""Programs of the user's own that an instance would not see: those that lie where it has directories of its
own."""

from __future__ import annotations

import re
from pathlib import Path

from ..environments.guest import FRESH
from ..model.study import ApplicationWorkload, Arm, CommandWorkload, Study
from ..workloads.applications.registry import application, choices

_HIDDEN = re.compile("|".join(rf"{re.escape(str(directory))}/" for directory in FRESH))


def hidden_programs(study: Study, arm: Arm) -> tuple[Path, ...]:
    """Directories of the user's own programs that lie where an instance has directories of its own: with a
    program in bin, what lies beside that, as an interpreter needs it."""
    own = [w for w in study.workloads if arm.environment.takes(w.name)]
    named = [w.argv_on(arm.placement.ranks)[0] for w in own if isinstance(w, CommandWorkload)]
    for w in own:
        if isinstance(w, ApplicationWorkload):
            named += application(w.application).needs(choices(w)).programs
    programs = [p for p in map(Path, filter(_HIDDEN.match, named)) if p.is_file()]
    return tuple(dict.fromkeys(_around(p) for p in programs))


def _around(program: Path) -> Path:
    above = program.parent.parent
    return above if program.parent.name == "bin" and above not in FRESH else program.parent
