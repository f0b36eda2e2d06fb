"""Finds out which of the things that a series needs are on this machine: backends, attachments, programs.
Divides the time among the parts of a series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..environments import QuickCheck, Tuned, Unavailable
from ..environments.registry import get_backend, named_backend
from ..errors import NearmetalError, UnavailableError, UsageError
from ..host import Host
from ..host.facts import devices
from ..host.facts.topology import topology
from ..model.environments.image import HOST
from ..model.environments.network import NetworkSettings
from ..model.series import Omission, Part, Series
from ..model.series_file import SeriesFiles
from ..model.study import Attachment, Study
from ..network.plan import NetworkRequest
from ..node.machine import Hardware, Machine, hardware_of, image_store
from ..node.progress import Progress
from ..node.survey.attachments import NEEDS_CARD, try_networks
from ..node.survey.available import asks_for_moves
from ..node.survey.programs import find_on, install_line, lacking, two_ranks
from ..plan import FIXED_FROM
from ..plan.narrowing import MachineOffer, Substitute, devices_of
from ..subjects.registry import without_unable
from ..workloads.applications.registry import application, choices
from .estimate import RunEstimate

LONGER_ROUNDS = 1.1
"""Safety factor on the estimated duration of rounds, for a part whose time only lasts until its first
look."""
OVERESTIMATE = 2.0
"""Factor by which the estimate of a rehearsal may be too long. A part is not begun if even a rehearsal that
is shorter by this factor would not end in time. The first part is always begun, because a later resumption
would have no more time for it."""


def offer_here(files: SeriesFiles, machine: Machine, progress: Progress, backend: str | None) -> MachineOffer:
    """Return what this machine offers for a series.

    Starts an instance of each preferred backend in turn until one works, and builds the networks that any
    part needs.

    backend: the only backend to test, in place of every list of backends in the series file; None to test
        those lists.

    Raises UsageError if the backend does not exist, or if the series has no list of backends.
    """
    host = machine.host
    moves = any(asks_for_moves(study) for study in files.studies.values())
    substitutes = {
        name: _substitute(preferred, machine, progress, moves=moves)
        for name, preferred in _preferred(files, backend).items()
    }
    wanted = [a for a in _attachments(files) if not a.on_device]
    progress.phase("which attachments can be built here")
    wants = [NetworkRequest(attachment=a, settings=NetworkSettings(), instances=2) for a in wanted]
    tried = zip(wanted, try_networks(host, machine.tools, wants), strict=True)
    lacking = {
        a: Omission(what=a.value, reason=e.what, remedy=e.remedy)
        for a, e in tried
        if isinstance(e, UnavailableError)
    }
    return MachineOffer(
        cpus=machine.cpus,
        cores=machine.cores,
        substitutes=substitutes,
        lacking=lacking | _cards_lacking(host, files),
        cards=devices.physical_functions(host),
        unusable=_unusable(host, files, machine.hardware),
        programs=_programs(host, files),
        images=_imported(files),
        devices=_devices(files),
        own_kernel=_own_kernel,
    )


def offer_planned(files: SeriesFiles, host: Host, backend: str | None) -> MachineOffer:
    """Return what a plan assumes about this machine: of each list of backends, the first that is not known to
    fail works, and attachments that need no special network card can be built. Nothing is started.

    Raises UsageError if the backend does not exist, or if the series has no list of backends.
    """
    places = topology(host, host.cpus())
    return MachineOffer(
        cpus=places.order,
        cores=places.cores,
        substitutes={
            name: _assumed(preferred, host) for name, preferred in _preferred(files, backend).items()
        },
        lacking=_cards_lacking(host, files),
        cards=devices.physical_functions(host) if Attachment.SRIOV in _attachments(files) else (),
        unusable=_unusable(host, files, hardware_of(host)) if files.head.narrow.optional else {},
        programs=_programs(host, files),
        images=_imported(files),
        devices=_devices(files),
        own_kernel=_own_kernel,
    )


def _preferred(files: SeriesFiles, backend: str | None) -> Mapping[str, tuple[str, ...]]:
    if backend is None:
        return files.head.narrow.backends
    named_backend(backend)
    if not files.head.narrow.backends:
        raise UsageError(
            f"--backend: the series {files.head.name} has no list of backends to replace",
            remedy=f"write narrow: {{backends: {{{backend}: [{backend}]}}}} into its series file",
        )
    return dict.fromkeys(files.head.narrow.backends, (backend,))


def _substitute(
    preferred: tuple[str, ...], machine: Machine, progress: Progress, *, moves: bool
) -> Substitute:
    """Test backends in their order, and return the first that works, or why none does.

    moves: whether a part asks for moves or checkpoints.
    """
    refused: list[tuple[str, Unavailable]] = []
    for name in preferred:
        progress.phase(f"does {name} work here")
        backend = get_backend(name)
        answer = backend.check(machine.host, machine.tools)
        if isinstance(answer, Unavailable):
            refused.append((name, answer))
            continue
        return Substitute(
            backend=name,
            own_kernel=backend.capabilities.virtual,
            settings=backend.settings_here(machine.host) if isinstance(backend, Tuned) else None,
            notes=(
                f"{_instances(name)} by {name}.",
                *(f"Not by {other}: {why.reason}; next: {why.remedy}." for other, why in refused),
                *(f"{name}: {note}." for note in (*answer.notes, *(answer.of_moves if moves else ()))),
            ),
        )
    return Substitute(
        backend=None,
        reason="; ".join(f"{other} does not work here: {why.reason}" for other, why in refused),
        remedy="; or ".join(f"for {other}: {why.remedy}" for other, why in refused)
        + "; or another backend, by --backend",
    )


def _assumed(preferred: tuple[str, ...], host: Host) -> Substitute:
    """Return the first backend that is not known to fail here, without starting anything; the last backend if
    all others are known to fail."""
    refused: dict[str, str] = {}
    for name in preferred[:-1]:
        backend = get_backend(name)
        why = backend.quick_check(host) if isinstance(backend, QuickCheck) else ""
        if not why:
            break
        refused[name] = why
    else:
        name = preferred[-1]
    others = preferred[preferred.index(name) + 1 :]
    note = f"{_instances(name)} by {name}"
    note += f" where it works here, else by {' or '.join(others)}: the run finds out." if others else "."
    notes = (note, *(f"Not by {other}: {why}." for other, why in refused.items()))
    return Substitute(backend=name, own_kernel=_own_kernel(name), notes=notes)


def _instances(backend: str) -> str:
    """Return 'Guests' or 'Containers', whichever the instances of a backend are."""
    return "Guests" if _own_kernel(backend) else "Containers"


def _own_kernel(backend: str) -> bool:
    try:
        return get_backend(backend).capabilities.virtual
    except NearmetalError:
        return False  # the run reports that this backend does not exist


def _attachments(files: SeriesFiles) -> tuple[Attachment, ...]:
    """Return the attachments for which nearmetal would build a network."""
    every = (e.attachment for s in files.studies.values() for e in s.environments)
    return tuple(dict.fromkeys(a for a in every if a.seated))


def _cards_lacking(host: Host, files: SeriesFiles) -> dict[Attachment, Omission]:
    a = Attachment.SRIOV
    if a not in _attachments(files) or devices.physical_functions(host):
        return {}
    return {a: Omission(what=a.value, reason="no network card with SR-IOV", remedy=NEEDS_CARD)}


def _programs(host: Host, files: SeriesFiles) -> frozenset[str]:
    wanted = files.head.narrow.host_images.values()
    return frozenset(p for p in wanted if host.which(p) is not None)


def _imported(files: SeriesFiles) -> frozenset[str]:
    wanted = files.head.narrow.imports
    return frozenset(i.name for i in image_store().all() if i.name in wanted) if wanted else frozenset()


def _devices(files: SeriesFiles) -> frozenset[str]:
    wanted = (d for s in files.studies.values() for e in s.environments for d in devices_of(e))
    return frozenset(d for d in wanted if Path(d).exists())


Guess = Callable[[Part, Study], RunEstimate]
"""A function that estimates the run of a part."""


def planned_times(series: Series, guess: Guess) -> dict[str, tuple[Study, RunEstimate]]:
    """Divide the time of a series among its parts. Returns, by key of the part, its study with the time as
    its time budget, and the estimate of its run. Parts without a study, and parts for which no time is left,
    are missing."""
    waiting = [p for p in series.parts if p.study is not None]
    least = {p.key: shortest(p, guess) for p in waiting}
    left = series.max_time
    out: dict[str, tuple[Study, RunEstimate]] = {}
    while waiting:
        part, seconds = next_part(waiting, left, least)
        assert part.study is not None
        waiting.remove(part)
        if left <= 0 or (out and left < least[part.key].rehearsal_seconds / OVERESTIMATE):
            continue
        study = with_time(part.study, seconds)
        found = guess(part, study)
        out[part.key] = study, found
        left -= found.seconds
    return out


def with_time(study: Study, seconds: float) -> Study:
    """Return the study with another time budget."""
    return replace(study, design=replace(study.design, max_time=seconds))


def shortest(part: Part, guess: Guess) -> RunEstimate:
    """Return the estimate of the shortest run of a part: one round, as short as its rounds can be."""
    assert part.study is not None
    return guess(part, with_time(part.study, 0.0))


def next_part(waiting: Sequence[Part], left: float, least: Mapping[str, RunEstimate]) -> tuple[Part, float]:
    """Return the part to run next and its time in seconds.

    Every waiting part is first given the time of its rehearsal and of one round. The time that is left after
    that is divided by the shares of the parts. If there is not enough time for a round in every part, the
    parts that need least run first. If no part would reach its first look with its share, one part is given
    the time until its first look, provided that the others keep their round. A part never runs before the one
    that chooses its sizes. Time that a part does not use is left to the others.

    waiting: the parts that have not run yet.
    left: seconds that are left for all of them.
    least: the estimates of their shortest runs, by key.
    """
    needed = {p.key: least[p.key].least_seconds for p in waiting}
    spare = left - sum(needed.values())
    ready = [p for p in waiting if p.sizes_from not in needed]
    if spare < 0:
        part = min(ready, key=lambda p: needed[p.key])
        return part, max(1.0, min(left, needed[part.key]))
    each = spare / sum(p.share for p in waiting)
    seconds = {p.key: needed[p.key] + each * p.share for p in waiting}
    looks = {p.key: least[p.key] for p in waiting if p.study and p.study.comparisons()}
    if all(seconds[key] < _until_look(guess) for key, guess in looks.items()):
        longer = {key: _until_look(guess, LONGER_ROUNDS) for key, guess in looks.items()}
        able = [p for p in ready if p.key in longer and longer[p.key] - needed[p.key] <= spare]
        if able:
            part = max(able, key=lambda p: p.share / longer[p.key])
            return part, longer[part.key]
    return ready[0], seconds[ready[0].key]


def _until_look(guess: RunEstimate, longer: float = 1.0) -> float:
    """Return the seconds until a part's first look.

    longer: factor by which its rounds take longer than estimated.
    """
    return guess.rehearsal_seconds + max(1, FIXED_FROM - guess.done) * guess.block_seconds * longer


def _unusable(host: Host, files: SeriesFiles, hardware: Hardware) -> dict[str, Omission]:
    """Return the optional workloads that this machine cannot run, by name, with the reason."""
    found = {}
    for study in files.studies.values():
        for w in study.applications:
            if w.name not in files.head.narrow.optional:
                continue
            known, given = application(w.application), choices(w)
            needs = known.needs(given)
            missing = lacking(needs, find_on(host))
            if problem := known.problem(given, two_ranks(hardware)):
                found[w.name] = Omission(what=w.name, reason=problem, remedy="another machine")
            elif missing:
                what = " and ".join(missing)
                reason = f"{what} {'is' if len(missing) == 1 else 'are'} not on this machine"
                found[w.name] = Omission(what=w.name, reason=reason, remedy=install_line(needs, HOST))
    return found


def able(series: Series) -> Series:
    """Return the series without the environments that no machine can run, such as those with a method that
    their backend lacks. They are added to what is left out. A part that no machine can run has no study."""
    return replace(series, parts=tuple(_able(p) for p in series.parts))


def unable_omission(name: str, why: str) -> Omission:
    """Return the record of an environment that is left out.

    why: the reason. If it ends with '; use ...', that becomes the remedy.
    """
    reason, use, remedy = why.partition("; use ")
    if use and "; use " not in remedy:
        return Omission(what=name, reason=reason, remedy=f"use {remedy}")
    return Omission(what=name, reason=why, remedy="")  # no remedy, or several


def _able(part: Part) -> Part:
    if part.study is None or not any(w.event for w in part.study.workloads):
        return part
    try:
        backends = {e.backend: get_backend(e.backend) for e in part.study.environments}
        study, said = without_unable(part.study, backends)
    except UnavailableError as e:
        return replace(part, study=None, absent=e.what, places={})
    omissions = tuple(unable_omission(name, why) for name, why in said.items())
    arms = {a.name for a in study.arms()}
    places = {word: arm for word, arm in part.places.items() if arm in arms}
    return replace(part, study=study, places=places, left_out=(*part.left_out, *omissions))
