"""Reduces the parts of a series to those environments, placements and workloads that a machine can run.
Everything left out is listed with the reason.

No I/O: the properties of the machine are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..model.environments.environment import BackendSettings
from ..model.environments.image import HOST
from ..model.series import Omission, Part, Series
from ..model.series_file import CpuNumbers, Narrowing, PartEntry, RankChoice, SeriesFiles
from ..model.study import Attachment, Environment, Placement, StorageKind, Study

_EVERY = "every placement"


@dataclass(frozen=True, kw_only=True)
class Substitute:
    """The backend that replaces a backend named in the study files of a series.

    backend: the first backend of the series' list (Narrowing.backends) that works on this machine; None if
        none works.
    own_kernel: whether its instances have their own kernel.
    settings: its own settings on this machine; None for the defaults.
    notes: differences on this machine, and why a preferred backend is not used.
    reason, remedy: why no backend works, and what to do about it; '' if one works.
    """

    backend: str | None
    own_kernel: bool = False
    settings: BackendSettings | None = None
    notes: tuple[str, ...] = ()
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class MachineOffer:
    """The properties of a machine that narrow a series.

    cpus: numbers of the usable CPUs, in the order in which ranks take them.
    cores: number of cores that these CPUs belong to.
    substitutes: the replacement of a backend, by its name in the study files.
    lacking: attachments that cannot be built, with the reason.
    cards: names of network devices with virtual functions (SR-IOV).
    unusable: optional workloads that cannot run, by name, with the reason.
    programs: the programs of Narrowing.host_images that the machine has.
    images: the images of Narrowing.imports that were imported.
    devices: the devices named in the study files that exist.
    own_kernel: returns whether the instances of a backend have their own kernel, given its name.
    """

    cpus: tuple[int, ...]
    cores: int
    substitutes: Mapping[str, Substitute] = field(default_factory=dict)
    lacking: Mapping[Attachment, Omission] = field(default_factory=dict)
    cards: tuple[str, ...] = ()
    unusable: Mapping[str, Omission] = field(default_factory=dict)
    programs: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    own_kernel: Callable[[str], bool] = lambda _backend: False


def narrow(
    files: SeriesFiles, offer: MachineOffer, *, seed: int, max_time: float, only: Sequence[str] = ()
) -> Series:
    """Return the series that a machine can run.

    seed: seed of all random orders.
    max_time: time of all parts in seconds.
    only: keys of the requested parts; empty for all.
    """
    head = files.head
    entries = [e for e in head.parts if not only or e.name in only]
    used = {e.backend for entry in entries for e in files.studies[entry.name].environments}
    notes = [note for name in head.narrow.backends if name in used for note in offer.substitutes[name].notes]
    return Series(
        name=head.name,
        title=head.title,
        scale=head.scale,
        paper="" if files.table else head.published,
        seed=seed,
        max_time=max_time,
        parts=tuple(_part(e, files.studies[e.name], head.narrow, offer) for e in entries),
        notes=(*head.notes, *dict.fromkeys(notes)),
    )


def _part(entry: PartEntry, study: Study, rules: Narrowing, offer: MachineOffer) -> Part:
    left_out = [Omission(what=n.name, reason=n.reason, remedy=n.remedy) for n in entry.not_asked]
    left = _with_own_needs(study, rules, offer, left_out)
    left = _with_substitutes(left, rules, offer, left_out)
    left = _with_attachments(left, offer, left_out)
    left = _with_workloads(left, rules, offer, left_out)
    left = _with_placements(left, rules, entry.ranks or rules.ranks, offer, left_out)
    alone = not study.comparisons()  # a study of the baseline alone
    left = left if alone else _compared(left)
    new_names = _names(study, rules, offer)
    lacking = left_out[len(entry.not_asked) :]
    absent = _absent(left, [new_names.get(n, n) for n in entry.needs], lacking, alone=alone)
    arms = () if absent else tuple(a.name for a in left.arms())
    places = {word: _place(named, arms, new_names) for word, named in entry.places.items()}
    return Part(
        key=entry.name,
        title=entry.title,
        share=entry.share,
        study=None if absent else left,
        places={word: arm for word, arm in places.items() if arm},
        absent=absent,
        notes=entry.notes,
        figures=entry.figures,
        sizes_from=entry.sizes_from,
        left_out=tuple(left_out),
    )


def _place(named: Sequence[str], arms: Sequence[str], new_names: Mapping[str, str]) -> str:
    """Return the first of the named arms that the machine can run; '' if there is none.

    named: arms ('bare/1x1'), or environments ('bare'), which stand for their first arm.
    arms: names of the arms that the machine can run.
    new_names: see _names().
    """
    for name in named:
        environment, slash, placement = name.partition("/")
        own = f"{new_names.get(environment, environment)}/{placement}"
        found = next((a for a in arms if a == own or (not slash and a.startswith(own))), "")
        if found:
            return found
    return ""


def _names(study: Study, rules: Narrowing, offer: MachineOffer) -> dict[str, str]:
    """Return the new names, by old name, of environments whose guests are replaced by containers."""
    return {
        e.name: rules.containers[e.name]
        for e in study.environments
        if e.name in rules.containers and _contained(e, offer)
    }


def _contained(e: Environment, offer: MachineOffer) -> bool:
    """Return whether the guests of an environment are replaced by containers on this machine."""
    chosen = offer.substitutes.get(e.backend)
    if chosen is None or chosen.backend is None:
        return False
    return offer.own_kernel(e.backend) and not chosen.own_kernel


def _with_own_needs(study: Study, rules: Narrowing, offer: MachineOffer, left_out: list[Omission]) -> Study:
    """Return the study without environments that lack an imported image, a device, a kernel of their own, or
    their own backend."""
    kept: list[Environment] = []
    for e in study.environments:
        chosen = offer.substitutes.get(e.backend)
        missing = [d for d in devices_of(e) if d not in offer.devices]
        if e.image in rules.imports and e.image not in offer.images:
            reason, remedy = f'there is no image "{e.image}"', rules.imports[e.image]
        elif e.name in rules.own_backend and chosen is not None and chosen.backend not in (e.backend, None):
            reason = f"it is of backend {e.backend}, and {chosen.backend} takes its place here"
            remedy = f"a machine where {e.backend} works"
        elif _contained(e, offer) and e.guest is not None and e.guest.kernel is not None:
            reason = "a container has no kernel of its own"
            remedy = "leave the choice of the backend to the series"
        elif missing:
            reason = f"this machine has no {' and no '.join(missing)}"
            remedy = "make it, or write the path of another one into the study file; its content is lost"
        else:
            kept.append(e)
            continue
        left_out.append(Omission(what=e.name, reason=reason, remedy=remedy))
    return replace(study, environments=tuple(kept))


def devices_of(e: Environment) -> tuple[str, ...]:
    """Return the paths of the devices and volume groups that an environment needs on this machine."""
    own = () if e.own is None else e.own.devices
    if e.storage is None or e.storage.kind is not StorageKind.BLOCK or e.storage.path is None:
        return own
    return (*own, e.storage.path)


def _with_substitutes(study: Study, rules: Narrowing, offer: MachineOffer, left_out: list[Omission]) -> Study:
    new_names = _names(study, rules, offer)
    kept: list[Environment] = []
    for e in study.environments:
        chosen = offer.substitutes.get(e.backend)
        if chosen is None:
            kept.append(e)
        elif chosen.backend is None:
            left_out.append(Omission(what=e.name, reason=chosen.reason, remedy=chosen.remedy))
        else:
            kept.append(_by(e, chosen, new_names.get(e.name, e.name), _contained(e, offer)))
    boots = {e.image for e in kept if _boots(e, offer)}
    own = {image for image, program in rules.host_images.items() if program in offer.programs}
    kept = [replace(e, image=HOST) if e.image in own - boots else e for e in kept]
    design = study.design
    baselines = tuple(new_names.get(b, b) for b in design.baselines)
    return replace(study, environments=tuple(kept), design=replace(design, baselines=baselines))


def _boots(e: Environment, offer: MachineOffer) -> bool:
    chosen = next((s for s in offer.substitutes.values() if s.backend == e.backend), None)
    return chosen.own_kernel if chosen is not None else offer.own_kernel(e.backend)


def _by(e: Environment, chosen: Substitute, name: str, contained: bool) -> Environment:
    """Return the environment with another backend and a new name.

    contained: whether containers replace guests. A container gets the memory of the guest as its limit.
    """
    assert chosen.backend is not None
    own = _joined(e.own if chosen.backend == e.backend else None, chosen.settings)
    out = replace(e, name=name, backend=chosen.backend, own=own)
    if e.beside is not None and e.beside.backend == e.backend:
        out = replace(out, beside=replace(e.beside, backend=chosen.backend))
    if contained and e.guest is not None:
        out = replace(out, guest=None, limits=replace(e.limits, memory=e.guest.memory or e.limits.memory))
    return out


def _joined(own: BackendSettings | None, here: BackendSettings | None) -> BackendSettings | None:
    """Combine settings of a backend: those of the study file, and those of this machine for keys that the
    file leaves at their defaults. Returns None if there are neither.

    own: settings of the study file.
    here: settings of this machine.
    """
    if own is None or here is None:
        return here if own is None else own
    usual = type(own)()
    return replace(here, **{name: v for name, v in vars(own).items() if v != getattr(usual, name)})


def _with_attachments(study: Study, offer: MachineOffer, left_out: list[Omission]) -> Study:
    kept: list[Environment] = []
    for e in study.environments:
        # The network of an environment inside another one is built by the guest.
        why = offer.lacking.get(e.attachment) if e.inside is None else None
        if why is not None:
            left_out.append(replace(why, what=e.name))
        elif e.attachment is Attachment.SRIOV and offer.cards:
            kept.append(replace(e, network=replace(e.network, devices=offer.cards)))
        else:
            kept.append(e)
    return replace(study, environments=tuple(kept))


def _with_workloads(study: Study, rules: Narrowing, offer: MachineOffer, left_out: list[Omission]) -> Study:
    """Return the study without the optional workloads that the machine cannot run."""
    dropped = {w.name for w in study.workloads if w.name in rules.optional and w.name in offer.unusable}
    if not dropped:
        return study
    left_out += [replace(offer.unusable[w.name], what=w.name) for w in study.workloads if w.name in dropped]
    environments = [
        replace(e, workloads=tuple(w for w in e.workloads if w not in dropped))
        for e in study.environments
        if not e.workloads or set(e.workloads) - dropped
    ]
    workloads = tuple(w for w in study.workloads if w.name not in dropped)
    primary = tuple(p for p in study.design.primary if p.partition(".")[0] not in dropped)
    return replace(
        study,
        environments=tuple(environments) if workloads else (),
        workloads=workloads,
        design=replace(study.design, primary=primary),
    )


def _with_placements(
    study: Study, rules: Narrowing, ranks: RankChoice, offer: MachineOffer, left_out: list[Omission]
) -> Study:
    used = {name for e in study.environments for name in e.placements}
    every = [p for p in study.placements if p.name in used]
    fitting = [q for p in every if (q := _on(p, rules, offer)) is not None]
    if every and not fitting:
        least = min(p.ranks for p in every)
        cores = f"{offer.cores} core" if offer.cores == 1 else f"{offer.cores} cores"
        reason = f"this machine has {cores}, and the smallest placement has {least} ranks"
        remedy = f"a machine with {least} cores or more: ranks that share a core spin while they wait"
        left_out.append(Omission(what=_EVERY, reason=reason, remedy=remedy))
    if ranks is RankChoice.LARGEST:
        most = max((p.ranks for p in fitting), default=0)
        fitting = [p for p in fitting if p.ranks == most]
    names = {p.name for p in fitting}
    environments = tuple(
        replace(e, placements=own)
        for e in study.environments
        if (own := tuple(n for n in e.placements if n in names))
    )
    return replace(study, environments=environments, placements=tuple(fitting))


def _on(place: Placement, rules: Narrowing, offer: MachineOffer) -> Placement | None:
    """Return a placement with the numbers of the machine's CPUs; None if it does not fit on the machine."""
    if not place.cpus:
        fits = place.ranks <= offer.cores and place.ranks * (place.width or 1) <= len(offer.cpus)
        return place if place.oversubscribe or fits else None
    if rules.cpus is CpuNumbers.NUMBER:
        return place if set(place.cpus) <= set(offer.cpus) else None
    if max(place.cpus) >= len(offer.cpus):
        return None
    return replace(place, cpus=tuple(offer.cpus[n] for n in place.cpus))


def _compared(study: Study) -> Study:
    """Return the study without arms that are in no comparison, and without baselines that nothing is compared
    with. It has no environments if the first baseline is missing."""
    names = {e.name for e in study.environments}
    baselines = tuple(b for b in study.design.baselines if b in names)
    if study.design.baselines[0] not in names:
        return replace(study, environments=())
    study = replace(study, design=replace(study.design, baselines=baselines))
    comparisons = study.comparisons()
    study = study.with_arms({c.arm for c in comparisons} | {c.baseline for c in comparisons})
    owners = {a.environment.name for a in study.arms() if a.name in {c.baseline for c in comparisons}}
    used = tuple(b for b in study.design.baselines if b in owners)
    places = {p for e in study.environments for p in e.placements}
    return replace(
        study,
        design=replace(study.design, baselines=used),
        placements=tuple(p for p in study.placements if p.name in places),
    )


def _absent(study: Study, needs: Iterable[str], left_out: Sequence[Omission], *, alone: bool) -> str:
    """Return why a part cannot be measured; '' if it can.

    study: the study of the part, reduced to what the machine can run.
    needs: names of environments without which the part is not measured.
    left_out: omissions from the study, whose reasons are returned.
    alone: whether the study file of the part has only a baseline, so that no comparison is needed.
    """
    left = {e.name for e in study.environments}
    missing = [name for name in needs if name not in left]
    if study.environments and (alone or study.comparisons()) and not missing:
        return ""
    why = [o for o in left_out if o.what in missing]
    why = why or [o for o in left_out if o.what == _EVERY] or list(left_out)
    return "; ".join(dict.fromkeys(o.reason for o in why)) or "nothing is left to compare with a baseline"
