"""Stores in the user's cache how long the rounds of a study took on this machine. Later plans of the study,
and the times of the parts of a series, then need not rely on estimates."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from ..errors import RecordsError
from ..host import Host
from ..host.durable import write_file
from ..host.facts.provenance import cpu_model
from ..host.runtime import cache_directory
from ..host.untrusted import UntrustedDirectory
from ..model.design import LEAST_SLICES
from ..model.environments.guest import Accelerator, GuestSettings
from ..model.record import TrialRecord, slice_phase
from ..model.study import Study
from ..plan import FIXED_FROM
from ..records.json_files import json_bytes, json_object
from .estimate import BlockCosts, RunCosts, estimated_costs

MOST_FILES = 1000
"""Largest number of studies whose costs are stored. Those that were measured least recently are removed."""


def store_costs(study: Study, host: Host, costs: RunCosts) -> None:
    """Store how long a run of a study took. If the cache cannot be written, nothing is stored.

    study: the study as requested, including the arms that were left out.
    """
    file = _file(study, host)
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(file, json_bytes(asdict(costs)))
        others = sorted(file.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in others[:-MOST_FILES]:
            old.unlink(missing_ok=True)


def stored_costs(study: Study, host: Host) -> RunCosts | None:
    """Return how long the last run of a study took on this machine; None if nothing is stored. That run may
    have had another time budget, number of rounds or seed."""
    try:
        file = _file(study, host)
        found = msgspec.convert(json_object(UntrustedDirectory(file.parent), file.name), RunCosts)
    except (RecordsError, ValueError):
        return None
    blocks = (found.block, found.late or found.block)
    seconds = (found.rehearsal, *(s for block in blocks for s in (block.beside, block.slices)))
    return found if all(0 <= s < math.inf for s in seconds) else None


def measured_costs(
    study: Study,
    *,
    rehearsal: float,
    walls: Mapping[int, float],
    records: Iterable[TrialRecord],
    decided: bool = False,
) -> RunCosts | None:
    """Compute the costs of a run from its blocks. Returns None for a run without blocks.

    If no arm dropped out, the costs of later blocks are those of the first ones, scaled as estimated.

    study: the study as requested, including the arms that were left out.
    rehearsal: seconds until the end of block 0.
    walls: seconds from the beginning of each block to that of the next, by number of the block.
    records: the records of these blocks.
    decided: whether the run ended because everything was decided.
    """
    blocks: dict[int, list[TrialRecord]] = {}
    for record in records:
        blocks.setdefault(record.block, []).append(record)
    whole = [(n, walls[n], blocks[n]) for n in sorted(blocks.keys() & walls.keys())]
    if not whole:
        return None
    most = len(whole[0][2])
    early = [b for b in whole if b[0] <= FIXED_FROM] or whole[:1]
    late = [b for b in whole if b[0] > FIXED_FROM and len(b[2]) < most]
    block, guess = _mean(study, early), estimated_costs(study)
    later = None
    if late:
        later = _mean(study, late, as_run=True)
    elif guess.late is not None:
        part = guess.late.seconds / guess.block.seconds
        later = BlockCosts(beside=block.beside * part, slices=block.slices * part)
    until = whole[-1][0] if decided else None
    if not late and not decided:
        until = guess.until  # too few rounds to know
    return RunCosts(rehearsal=rehearsal, block=block, late=later, until=until)


def _mean(
    study: Study, blocks: Iterable[tuple[int, float, list[TrialRecord]]], *, as_run: bool = False
) -> BlockCosts:
    """Return the mean costs of blocks.

    blocks: number, seconds and records of each block.
    as_run: whether to count the slices that were run, and not the smallest number that a block may have.
        After the first look, a block has more slices, since fewer arms share its time.
    """
    names = [w.name for w in study.workloads if w.sliced]
    beside, slices = [], []
    for _, seconds, records in blocks:
        timed = least = 0.0
        for r in records:
            for name in names:
                took = r.phases.get(slice_phase(name), 0.0)
                number = max((len(row.values) for row in r.rows if row.workload == name), default=0)
                timed += took * number
                least += took * (number if as_run else study.design.slices or LEAST_SLICES)
        beside.append(max(0.0, seconds - timed))
        slices.append(least)
    return BlockCosts(beside=fmean(beside), slices=fmean(slices))


def _file(study: Study, host: Host) -> Path:
    """Return the file with the costs of a study on this machine. Its name is a digest of all that the costs
    depend on."""
    design = study.design
    about: tuple[Any, ...] = (
        (cpu_model(host), len(host.cpus())),
        study.name,
        [
            (
                a.name,
                e.backend,
                e.image,
                e.attachment.value,
                (g := e.guest or GuestSettings()).accelerator is Accelerator.TCG,
                (g.memory, g.vcpus, g.nic, g.disk),
                (e.limits, e.network, e.storage, e.own, e.inside, e.beside),
            )
            for a in study.arms()
            for e in (a.environment,)
        ],
        [(p.name, p.nodes, p.instances, p.tasks, p.link) for p in study.placements],
        study.workloads,
        (design.baselines, design.mode.value, design.slices, design.runs, design.warm_up, design.profile),
        (design.margin, design.confidence, design.target_width, design.min_blocks, design.primary),
    )
    digest = hashlib.sha256(repr(about).encode()).hexdigest()
    return cache_directory() / "costs" / f"{digest}.json"
