"""One block: all its arms by slices between standing instances, or one plain trial after the other."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ..launchers import verify_places
from ..meters.groups import Account, Window
from ..meters.inside import counted_run, counted_slices
from ..meters.instances import timed_each, watch_each
from ..meters.network import timed_run, timed_slice, timed_slices
from ..meters.transport import TransportWatch
from ..model.design import REHEARSED_SLICES
from ..model.plan import NextBlock, TrialSpec
from ..model.record import GROUP_PHASE, Fold, Row, Status, TrialRecord, slice_phase, verify_phase
from ..model.scope import RANKS
from ..model.study import ApplicationWorkload, CommandWorkload, KernelWorkload, Mode
from ..node.companion import companion, still_well
from ..node.guests import guests_among, out_of_guests, settled_networks
from ..node.node import Session
from ..node.starting import start_instances
from ..node.trial import Standing
from ..records import safe_name
from ..subjects.application import prepare_application, run_application
from ..subjects.command import run_command
from ..subjects.job import READY_LIMIT
from ..subjects.mpi_job import make_reachable, start_job
from ..subjects.profiles import read_profiles
from ..subjects.rounds import borrow_guest, guarded, rounds, shuffled, sound, taking
from ..subjects.start_stop import cycle, densities, execs, start_and_stop_rows
from ..workloads.kernels.registry import rows as kernel_rows
from ..workloads.protocol import SliceLine, VerifyLine


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What block 0 does besides: each is called while instances are running.

    audit: with the arms of a group, before anything is timed.
    fit: with a kernel workload and the arms that run it, once they have verified it; returns the units of
        work in a slice by number of ranks.
    """

    audit: Callable[[Sequence[Standing]], None]
    fit: Callable[[KernelWorkload, Sequence[Standing]], Mapping[int, int]]


def run_block(
    session: Session, order: NextBlock, rehearsal: Rehearsal | None = None
) -> Iterator[TrialRecord]:
    """Run every trial of a block and yield the records of each group when it ends.

    A failed trial is a record like any other, with its reason. Interruptions pass through: what was running
    is undone, and nothing of the torn group is yielded.
    """
    trials = order.block.trials
    together = session.study.design.mode is Mode.SLICES
    groups = [trials] if together else [(t,) for t in trials]
    if rehearsal is not None:  # which fits the work of a slice on the baseline, before the other arms use it
        groups.sort(key=lambda group: group[0].arm not in _baseline_arms(session))
    rng = random.Random(order.block.slice_seed)
    for group in groups:
        yield from _run_group(session, group, rng, order, rehearsal)


def _baseline_arms(session: Session) -> set[str]:
    first = session.study.design.baselines[0]
    return {arm.name for arm in session.arms.values() if arm.environment.name == first}


def _run_group(
    session: Session,
    trials: Sequence[TrialSpec],
    rng: random.Random,
    order: NextBlock,
    rehearsal: Rehearsal | None,
) -> list[TrialRecord]:
    workloads = session.study.workloads
    kernels = [w for w in workloads if isinstance(w, KernelWorkload)]
    arms = [_standing(session, t, order) for t in trials]
    begin = time.monotonic()
    rows: dict[str, list[Row]] = {s.trial.id: [] for s in arms}
    with ExitStack() as stack:
        for s in arms:
            if s.work is not None:
                stack.callback(shutil.rmtree, s.work, ignore_errors=True)
        cycle(session, arms, rng)
        densities(session, arms, rows, rng)
        _start_all(session, arms, stack)
        if rehearsal is not None:
            rehearsal.audit(sound(arms))
        account = Account(session, arms, stack)
        for s in sound(arms):
            with guarded(s):
                s.each = watch_each(session, s, stack)
        execs(session, arms, rows, rng)
        if kernels:
            _run_kernels(session, arms, kernels, rows, stack, rng, order, rehearsal)
        for w in workloads:
            if isinstance(w, CommandWorkload | ApplicationWorkload):
                _run_programs(session, taking(arms, w), w, rows, rng)
        for s in sound(arms):
            if s.beside is not None:
                with guarded(s):
                    still_well(s.beside)
        window = account.close()
        for s in sound(arms):
            if s.each is not None:
                with guarded(s):
                    s.counted = s.each.counters()
    seconds = time.monotonic() - begin
    for s in arms:
        s.phases[GROUP_PHASE] = seconds
        rows[s.trial.id] += start_and_stop_rows(session, s)
    fold = Fold.PAIRED if len(trials) > 1 else Fold.MEDIAN
    return [_record(session, s, rows[s.trial.id], window, order, fold) for s in arms]


def _standing(session: Session, trial: TrialSpec, order: NextBlock) -> Standing:
    directory = session.scratch / f"b{trial.block}-{trial.position}-{order.attempt}"
    log = session.logs / safe_name(trial.id)
    directory.mkdir()
    work = None if session.work is None else session.work / directory.name
    if work is not None:
        work.mkdir()
    return Standing(
        trial=trial,
        arm=session.arms[trial.arm],
        left_out=order.left_out.get(trial.arm, frozenset()),
        directory=directory,
        work=work,
        log=log,
    )


def _start_all(session: Session, arms: Sequence[Standing], stack: ExitStack) -> None:
    """Start every arm's instances in the order of the block, guests before what stands inside them."""
    for s in sorted(sound(arms), key=lambda s: s.arm.environment.inside is not None):
        with guarded(s):
            borrow_guest(s, arms)
            s.instances = stack.enter_context(start_instances(session, s))
            s.guests = guests_among(s.instances)
            settled_networks(s)
            make_reachable(session, s, stack)
            if s.arm.environment.beside is not None:
                s.beside = stack.enter_context(companion(session, s, s.arm.environment.beside))


def _run_kernels(
    session: Session,
    arms: Sequence[Standing],
    kernels: Sequence[KernelWorkload],
    rows: dict[str, list[Row]],
    stack: ExitStack,
    rng: random.Random,
    order: NextBlock,
    rehearsal: Rehearsal | None,
) -> None:
    """One launch per arm for all kernels; then the token goes round, kernel by kernel."""
    begin = time.monotonic()
    for s in arms:
        s.kernels = tuple(w for w in kernels if s.takes(w))
    arms = [s for s in arms if s.kernels]
    for s in sound(arms):
        with guarded(s):
            s.job = stack.enter_context(start_job(session, s))
    for s in sound(arms):
        with guarded(s):
            _await_ready(session, s, begin)
    for w in kernels:
        _run_kernel(session, [s for s in arms if w in s.kernels], w, rows, rng, order, rehearsal)
    for s in sound(arms):
        with guarded(s):
            if s.watch is not None:
                s.watch.look()
            if s.transport is not None:
                s.transport.worked()
            s.standing_job.quit()
    for s in sound(arms):
        with guarded(s):
            s.standing_job.ended()
            out_of_guests(s)
            if s.profiles is not None:
                found = read_profiles(s.profiles, s.arm.placement.ranks)
                s.profile |= {w.name: tuple(p.kernel(k) for p in found) for k, w in enumerate(s.kernels)}


def _run_kernel(
    session: Session,
    arms: Sequence[Standing],
    workload: KernelWorkload,
    rows: dict[str, list[Row]],
    rng: random.Random,
    order: NextBlock,
    rehearsal: Rehearsal | None,
) -> None:
    """Verify or warm up on every arm, then slices in random order: never two at once."""
    design, name = session.study.design, workload.name
    work = order.work.get(name, {})
    wanted = order.slices.get(name, design.slices or REHEARSED_SLICES)
    slices: dict[str, list[SliceLine]] = {s.trial.id: [] for s in arms}
    turns: dict[str, float] = {s.trial.id: 0.0 for s in arms}
    verified: dict[str, VerifyLine] = {}
    first = rng.sample(arms, len(arms))
    for s in sound(first):
        if order.verifies(s.trial.arm, name):
            with guarded(s):
                begin = time.monotonic()
                verified[s.trial.id] = s.standing_job.verify(s.kernels.index(workload))
                s.phases[verify_phase(name)] = time.monotonic() - begin
    if rehearsal is not None:
        work = rehearsal.fit(workload, arms)
    for s in sound(first):
        # Slices are never cold: one is discarded where no verification ran, whatever the study asks for.
        for _ in range(max(design.warm_up, s.trial.id not in verified)):
            with guarded(s):
                s.standing_job.slice(s.kernels.index(workload), work[s.arm.placement.ranks])
    with timed_slices(arms, name), counted_slices(arms, name):
        begin = time.monotonic()
        for s in rounds(arms, rng, wanted, after=first[-1] if first else None):
            with guarded(s), timed_slice(s, name):
                line = s.standing_job.slice(s.kernels.index(workload), work[s.arm.placement.ranks])
                slices[s.trial.id].append(line)
                if s.inside is not None:
                    s.inside.slice(name, line)
            turns[s.trial.id] -= begin - (begin := time.monotonic())
    for s in arms:
        if wanted and len(slices[s.trial.id]) == wanted:
            rows[s.trial.id] += kernel_rows(workload, slices[s.trial.id], verified.get(s.trial.id))
            s.phases[slice_phase(name)] = turns[s.trial.id] / wanted


def _ready_limit(session: Session) -> float:
    """Seconds. Ranks of every arm start while guests of others still boot, and as slowly as these."""
    guests = (arm.environment.guest for arm in session.arms.values())
    return max([READY_LIMIT, *(guest.boot_timeout for guest in guests if guest is not None)])


def _await_ready(session: Session, s: Standing, begin: float) -> None:
    s.ready = s.standing_job.ready(_ready_limit(session))
    s.phases |= {
        "ready": time.monotonic() - begin,
        "mpi_init": s.ready.init_seconds,
        "prepare": s.ready.prepare_seconds,
    }
    s.places = s.ready.places
    verify_places(s.places, s.arm.placement, session.cpus(s.arm), tuple(i.hostname for i in s.instances))
    s.transport = TransportWatch(s)
    s.transport.look(connected=True)


def _run_programs(
    session: Session,
    arms: Sequence[Standing],
    workload: CommandWorkload | ApplicationWorkload,
    rows: dict[str, list[Row]],
    rng: random.Random,
) -> None:
    """A program cannot be cut into slices: it runs whole, the arms in random order each round.
    The values of the rounds stand in one row per metric, as those of slices do."""
    design = session.study.design
    if isinstance(workload, ApplicationWorkload):
        for s in shuffled(arms, rng):
            with guarded(s):
                prepare_application(session, s, workload)
    for _ in range(design.warm_up):
        for s in shuffled(arms, rng):
            with guarded(s):
                _run_once(session, s, workload)
    ran: dict[str, list[tuple[Row, ...]]] = {s.trial.id: [] for s in arms}
    for s in rounds(arms, rng, design.runs):
        with (
            guarded(s),
            timed_each(s, workload.name),
            timed_run(s, workload.name),
            counted_run(s, workload.name),
        ):
            ran[s.trial.id].append(_run_once(session, s, workload))
    for s in arms:
        rows[s.trial.id] += _merge_rounds(ran[s.trial.id])


def _run_once(
    session: Session, s: Standing, workload: CommandWorkload | ApplicationWorkload
) -> tuple[Row, ...]:
    if isinstance(workload, CommandWorkload):
        return run_command(session, s, workload)
    return run_application(session, s, workload)


def _merge_rounds(rounds: Sequence[tuple[Row, ...]]) -> list[Row]:
    if len(rounds) == 1:
        return list(rounds[0])
    out: list[Row] = []
    by_name = [{r.metric: r for r in run} for run in rounds]
    for metric in by_name[0] if by_name else ():
        same = [run[metric] for run in by_name if metric in run]
        if len(same) < len(rounds):  # what a run wrote, say, may have been nothing
            continue
        failed = next((r for r in same if r.status is Status.FAILED), None)
        values = tuple(v for r in same for v in r.values)
        first = failed or same[0]
        out.append(
            Row(
                workload=first.workload,
                metric=first.metric,
                unit=first.unit,
                better=first.better,
                values=values,
                status=first.status,
                reason=first.reason,
                parts={kind: tuple(v for r in same for v in r.parts[kind]) for kind in first.parts},
                verification=first.verification,
            )
        )
    return out


def _pages(s: Standing) -> dict[str, dict[str, float | None]]:
    """What madvise asked for may not be what was got: the ranks say, in kB."""
    if s.ready is None:
        return {}
    return {
        s.kernels[p.kernel].name: {
            "huge": None if p.huge_kb is None else p.huge_kb * 1024.0,
            "total": p.total_kb * 1024.0,
        }
        for p in s.ready.pages
    }


def _nothing_usable(rows: Sequence[Row]) -> str:
    """Why no row of a trial can be used; empty where one can, or none was measured."""
    reasons = [r.reason for r in rows if r.status is Status.FAILED]
    return f"{rows[0].workload}: {reasons[0]}" if reasons and len(reasons) == len(rows) else ""


def _record(
    session: Session,
    s: Standing,
    rows: Sequence[Row],
    window: Window,
    order: NextBlock,
    fold: Fold,
) -> TrialRecord:
    failure = s.failure or _nothing_usable(rows)
    transport = dict(s.launch.transport) if s.launch is not None else {}
    if s.ready is not None:
        transport["library"] = s.ready.mpi
    if s.transport is not None:
        transport["seen"] = s.transport.words()
    network = window.networks.get(s.trial.id)
    counted = {} if network is None else dict(network.counters)
    if s.transport is not None and s.transport.tcp_bytes is not None:
        counted[RANKS] = {"tcp_bytes": float(s.transport.tcp_bytes)}
    return TrialRecord(
        run=session.label,
        trial=s.trial.id,
        block=s.trial.block,
        attempt=order.attempt,
        arm=s.arm.name,
        aa=s.trial.aa,
        position=s.trial.position,
        begin=window.begin,
        end=window.end,
        fold=fold,
        status=Status.FAILED if failure else Status.OK,
        reason=failure,
        rows=tuple(rows),
        places=s.places,
        transport=transport,
        counters={**window.counters(s), **s.counted},
        disturbance=window.disturbance,
        flags=window.flags,
        phases=s.phases,
        pages=_pages(s),
        network=counted,
        connections=network.connections if network else None,
        profile=s.profile,
        facts=s.facts,
        members=len(order.block.trials),
        left_out=tuple(sorted(s.left_out)),
    )
