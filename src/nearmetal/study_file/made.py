"""Combines placements, environments and design into a study without workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..model.study import Design, Environment, Placement, Study
from .checks import reach_memory, usable
from .tree import Located


def frame_of(
    top: Located,
    name: str,
    placements: Mapping[str, Placement | None],
    environments: Mapping[str, Environment | None],
    design: Design | None,
) -> Study | None:
    """Return the study without its workloads; None if a part has mistakes or a name in it is unknown."""
    known = {k: v for k, v in placements.items() if v is not None}
    sound = {k: v for k, v in environments.items() if v is not None}
    if (
        design is None
        or len(known) < len(placements)
        or len(sound) < len(environments)
        or not known
        or not sound
    ):
        return None
    if not design.baselines or any(n not in sound for n in design.baselines):
        return None
    built = []
    for key, section in sound.items():
        usual = tuple(n for n, p in known.items() if usable(section, p) and reach_memory(section, p))
        used = section.placements or usual
        if not used:
            what = f"attachment {section.attachment} can serve no placement; write attachment: veth-bridge"
            top.mistake(("environments", key), what, key=True)
        if not used or any(n not in known for n in used):
            return None
        around = section if section.inside is None else sound.get(section.inside, section)
        built.append(replace(section, image=around.image, guest=around.guest, placements=used))
    return Study(
        name=name,
        question="",
        environments=tuple(built),
        placements=tuple(known.values()),
        workloads=(),
        design=design,
    )
