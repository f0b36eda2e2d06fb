"""Predict how long a checkpoint or a move of a user's instance takes, choose a method, and correct
predictions by earlier moves. Nothing is changed, except that a file of 32 MiB is written to a destination and
removed again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...environments import Criu, Unavailable
from ...environments.external import (
    CheckOutcome,
    DestinationKind,
    External,
    Facts,
    HostCheck,
    Moves,
    Saved,
    Target,
    Work,
    compare,
    describe,
    read_by_command,
    require_room,
    require_way,
)
from ...errors import NearmetalError, UnavailableError, UsageError
from ...host import Host, LocalHost
from ...host.pages import sample_pages, shares_memory
from ...host.runtime import user_state
from ...host.ssh import SshHost
from ...images import ImageStore
from ...lifecycle import (
    Bounded,
    Candidate,
    Conditions,
    Dirtying,
    Estimate,
    Method,
    Prediction,
    allowed_rest,
    choose,
    corrected,
    depends_on_dirtying,
    dirtying,
    guest_conditions,
    predict,
    process_conditions,
)
from ...node.criu import find_criu
from .past import keep, past_moves
from .speeds import measured_speeds

CHECKPOINT, MIGRATE = "checkpoint", "migrate"
USUAL_BOUND = 0.3
"""Bound on the downtime, in seconds, for which a method is chosen if the user gives no bound."""
REMOTE = "/var/tmp/nearmetal-move.XXXXXX"
"""Template of the directory for images on another host."""
SECONDS = 600.0
"""Time limit of a move if the user gives none, and of a command that copies data, in seconds."""
ASK_SECONDS = 30.0
"""Time limit of a short command on another host, in seconds."""


@dataclass(frozen=True, kw_only=True)
class MoveOptions:
    """How an instance is checkpointed or moved.

    method: AUTO chooses one by the bound.
    bound: limit in seconds for the time that `of` names. AUTO chooses a method that keeps it, if there is
        one.
    keep_running: whether the instance continues after its checkpoint.
    images: a new directory for the images of a move to another host; None for one in the user's state
        directory.
    bandwidth: largest number of bytes per second; None for no limit.
    time_limit: seconds after which a move is given up.
    """

    method: Method = Method.AUTO
    bound: float = USUAL_BOUND
    of: Bounded = Bounded.DOWNTIME
    keep_running: bool = False
    images: Path | None = None
    bandwidth: float | None = None
    time_limit: float = SECONDS

    @property
    def most_downtime(self) -> float:
        return self.bound if self.of is Bounded.DOWNTIME else USUAL_BOUND


@dataclass(frozen=True, kw_only=True)
class MovePlan:
    """The prediction of a checkpoint or a move. Nothing has been changed yet.

    action: CHECKPOINT or MIGRATE.
    instance, target: names of the instance and of its destination.
    method: the chosen method.
    reason: why it was chosen, in one sentence.
    holds: whether the bound is expected to hold.
    methods: the prediction for every method that can be used.
    uncorrected: these predictions before they were corrected by earlier moves.
    memory: largest number of bytes that are written or sent.
    free: free bytes of the file system of the images; None if no images are written.
    dirty: how fast the instance dirties its memory; None if that cannot be measured or does not matter.
    findings: how another host compares with this machine, if images are copied to one.
    notes: what is left out or not known, and the risk of the method.
    warning: why this machine may start a second copy at its next boot; empty if it does not.
    """

    action: str
    instance: str
    target: str
    method: Method
    reason: str
    holds: bool
    methods: tuple[Prediction, ...]
    uncorrected: tuple[Prediction, ...]
    memory: int
    free: int | None
    dirty: Dirtying | None
    findings: tuple[HostCheck, ...] = ()
    notes: tuple[str, ...] = ()
    warning: str = ""

    @property
    def chosen(self) -> Prediction:
        return next(p for p in self.methods if p.method is self.method)


def work_of(how: MoveOptions, external: External, method: Method = Method.AUTO) -> Work:
    """Return the settings with which an instance is checkpointed, restored or moved.

    method: the chosen method, which determines the downtime that pre-copy may use.
    """
    return Work(
        criu=_criu,
        keep_running=how.keep_running,
        bandwidth=how.bandwidth,
        downtime_limit=allowed_rest(how.most_downtime, external.costs(method)),
        time_limit=how.time_limit,
    )


_FOUND: dict[int, tuple[Host, Criu]] = {}
"""CRIU by id() of the host. The host is stored too, so that no other object can get its id."""


def _criu(host: Host) -> Criu:
    """Return a CRIU that works on a host. On this machine it may come from an image; on another one it must
    be installed.

    The answer is stored, so that no time is spent on the search while an instance is stopped.

    Raises UnavailableError if there is none.
    """
    if id(host) not in _FOUND:
        local = isinstance(host, LocalHost)
        found = find_criu(host) if local else find_criu(host, ImageStore(Path(os.devnull)))
        if isinstance(found, Unavailable):
            raise found.error(f"CRIU on {host.name}: ")
        _FOUND[id(host)] = (host, found)
    return _FOUND[id(host)][1]


def planned(
    host: Host,
    external: External,
    target: Target,
    how: MoveOptions,
    action: str,
    remote: SshHost | None = None,
) -> MovePlan:
    """Predict the downtime and the total time of every method, and choose one. Nothing is moved; a file of
    32 MiB is written to measure the speed of a destination, and removed again.

    action: CHECKPOINT or MIGRATE.
    remote: the other host, if images are copied to one.

    Raises UsageError if the request does not fit the instance, UnavailableError if a machine lacks something.
    """
    facts = external.inspect(host)
    if any(method.by_criu for method in external.checkpoints_by):
        _require_own_memory(external, facts.processes)
    able, left_out = _able(host, external, target, how, action, remote)
    work = work_of(how, external)
    external.require_programs(host, work)
    if action == MIGRATE and isinstance(external, Moves):
        external.require_target(host, target)
    free = None
    findings: tuple[HostCheck, ...] = ()
    if action == CHECKPOINT or not isinstance(external, Moves):
        at = Path(target.text) if target.way is DestinationKind.DIRECTORY else how.images or user_state()
        if remote is not None:
            external.require_programs(remote, work)
        able, free, more = _with_room(able, facts, at, remote)
        left_out += more
        if remote is not None:
            findings = _require_like(host, external, remote, facts)
    seen, notes = _dirtying(facts, able)
    # Measured once: from two measurements of one speed, noise could choose the method.
    needs_speed = action == CHECKPOINT or any(external.costs(m).bandwidth is None for m in able)
    speeds = measured_speeds(target, remote, restored=action == MIGRATE) if needs_speed else None
    known = {m: _conditions(external, facts, seen, m, how, action, speeds) for m in able}
    past, kind = past_moves(), _kind(external.name, action, target)
    uncorrected = tuple(predict(m, known[m]) for m in able)
    methods = tuple(corrected(p, past, kind) for p in uncorrected)
    choice = choose(how.bound, [Candidate(prediction=p) for p in methods], how.of)
    auto = how.method is Method.AUTO
    reason = choice.reason if auto and len(able) > 1 else _only(external, how, able[0], action)
    chosen = next(p for p in methods if p.method is choice.method)
    if chosen.total.value > how.time_limit:
        notes += (f"it is expected to be given up after {how.time_limit:g} s (--time-limit)",)
    notes += tuple(filter(None, (choice.method.risk, facts.warning)))
    return MovePlan(
        action=action,
        instance=external.name,
        target=target.text,
        method=choice.method,
        reason=reason,
        holds=choice.holds,
        methods=methods,
        uncorrected=uncorrected,
        memory=facts.memory,
        free=free,
        dirty=seen,
        findings=findings,
        notes=(*left_out, *notes),
        warning=facts.warning,
    )


def _require_own_memory(external: External, processes: Sequence[int]) -> None:
    """Check that an instance shares no memory with a process outside of it. Otherwise the restored instance
    would have a copy of that memory, while the other process continues with the original.

    Raises UsageError if it does.
    """
    other = shares_memory(processes)
    if other is not None:
        raise UsageError(
            f"{external.name} shares memory with process {other}, which is not part of it; a restored"
            " instance would no longer share it",
            remedy=f"the process that started both, or end process {other}",
        )


def _only(external: External, how: MoveOptions, method: Method, action: str) -> str:
    if how.method is method:
        return f"{method} was requested"
    return f"{method} is the only method that can {action} {external.name}"


def _able(
    host: Host, external: External, target: Target, how: MoveOptions, action: str, remote: SshHost | None
) -> tuple[tuple[Method, ...], tuple[str, ...]]:
    """Return the methods to choose from, and a note about each method that cannot be used here.

    Raises UsageError or UnavailableError if the requested method, or every method, cannot be used.
    """
    if action == CHECKPOINT:
        methods = external.checkpoints_by
    elif target.way in external.moves_by:
        methods = external.moves_by[target.way]
    else:
        why = external.refuses(target.way)
        raise UsageError(f"{external.name}: {why.reason}", remedy=why.remedy)
    auto = how.method is Method.AUTO
    if not auto and how.method not in methods:
        if action == MIGRATE:
            require_way(target.way, how.method)
        raise UsageError(
            f"method {how.method} does not {action} {external.name}",
            remedy=f"--method {' or '.join(m.value for m in methods)}",
        )
    asked = methods if auto else (how.method,)
    reasons = {m: _why_not(host, external, target, how, m, remote) for m in asked}
    able = tuple(m for m, why in reasons.items() if why is None)
    if not able:
        error = next(why for why in reasons.values() if why is not None)
        raise error
    return able, tuple(f"{m} is left out: {e.what}" for m, e in reasons.items() if e is not None)


def _why_not(
    host: Host, external: External, target: Target, how: MoveOptions, method: Method, remote: SshHost | None
) -> NearmetalError | None:
    """Return why a method cannot be used on this machine, on the other one, or with the requested bandwidth;
    None if it can."""
    if how.bandwidth is not None:
        limit = external.exceeds(target.way, method, how.bandwidth)
        if limit is not None:
            return UsageError(f"--bandwidth: {limit.reason}", remedy=limit.remedy)
    if method.by_criu and method is not Method.CRIU:
        lack = _criu(host).unable.get(method)
        if lack is not None:
            return lack.error(f"{method}: ")
    if method.by_criu and method.fetches_later and remote is not None:
        lack = _criu(remote).unable.get(method)
        if lack is not None:
            return lack.error(f"{method} on {remote.name}: ")
    return None


def _dirtying(facts: Facts, methods: tuple[Method, ...]) -> tuple[Dirtying | None, tuple[str, ...]]:
    """Measure how fast an instance dirties its memory, if a prediction depends on it. Returns None without a
    measurement; the second value contains a note if that matters."""
    if facts.guest is None and not depends_on_dirtying(methods):
        return None, ()
    if not facts.processes:
        return None, ("its memory cannot be seen from here, so the dirty rate is not known",)
    try:
        return dirtying(sample_pages(facts.processes, guest=facts.guest)), ()
    except NearmetalError as e:
        return None, (f"the dirty rate is not known: {e.what}",)


def _conditions(
    external: External,
    facts: Facts,
    seen: Dirtying | None,
    method: Method,
    how: MoveOptions,
    action: str,
    speeds: tuple[Estimate, Estimate | None] | None,
) -> Conditions:
    """Return the inputs of a prediction.

    speeds: from measured_speeds(); None if every method has a bandwidth of its own.
    """
    costs, memory, (bandwidth, read) = external.costs(method), float(facts.memory), speeds or (None, None)
    if action == MIGRATE and costs.bandwidth is not None:
        bandwidth = costs.bandwidth
    assert bandwidth is not None
    bound, most = how.most_downtime, how.bandwidth
    if facts.guest is not None:
        return guest_conditions(memory, seen, costs, bandwidth, bound=bound, most=most)
    return process_conditions(memory, seen, costs, bandwidth, bound=bound, most=most, read_speed=read)


def _with_room(
    able: tuple[Method, ...], facts: Facts, at: Path, remote: SshHost | None
) -> tuple[tuple[Method, ...], int, tuple[str, ...]]:
    """Return the methods whose images fit on the disks, the free bytes here, and a note about each other
    method.

    at: directory of the images.
    remote: the other host, if images are copied to one.
    Raises UnavailableError if the images of no method fit.
    """

    def free(methods: tuple[Method, ...]) -> int:
        room = facts.image_bytes(methods)
        if remote is not None:
            _require_remote_room(remote, room)
        return require_room(at, room)

    later = tuple(method for method in able if method.fetches_later)
    try:
        return able, free(able), ()
    except UnavailableError as e:
        if later in ((), able):
            raise
        why = f"{e.what} ({e.where}; next: {e.remedy})"
        notes = tuple(f"{method} is left out: {why}" for method in able if method not in later)
        return later, free(later), notes


def _require_remote_room(remote: SshHost, size: int) -> None:
    where = str(Path(REMOTE).parent)
    done = remote.run(["df", "--output=avail", "--block-size=1", where], timeout=SECONDS)
    words = done.stdout.split()
    if not done.ok or not words or not words[-1].isdigit():
        raise UnavailableError(f"{remote.name}: {done.failure()}", remedy=f"ssh {remote.name} df {where}")
    if int(words[-1]) < size:
        raise UnavailableError(
            f"the images need up to {size >> 20} MiB, and {int(words[-1]) >> 20} MiB are free",
            where=f"{remote.name}:{where}",
            remedy="make room there",
        )


def _require_like(host: Host, external: External, remote: SshHost, facts: Facts) -> tuple[HostCheck, ...]:
    """Compare another host with this machine, look whether names and PIDs of the instance are free there, and
    return the findings.

    Raises UnavailableError if the instance may fail there. It runs here, so unlike a restore this move is not
    tried.
    """
    source = describe(host, facts.processes)
    findings = tuple(compare(source, read_by_command(remote, source), facts.memory))
    if not _same_machine(host, remote):  # there the instance itself still has its name and its PIDs
        saved = Saved(name=external.name, method=Method.CRIU, own=external.needs(host))
        findings += tuple(external.look(remote, Path(REMOTE).parent, saved))
    unlike = [f for f in findings if f.answer in (CheckOutcome.DIFFERS, CheckOutcome.PREVENTS)]
    if not unlike:
        return findings
    remedies = [f.remedy for f in unlike if f.remedy]
    if all(f.answer is CheckOutcome.DIFFERS for f in unlike):
        remedies.append("or write a checkpoint, and restore a copy of it there, which is tried in any case")
    raise UnavailableError(
        f"{external.name} is not moved, and continues here: "
        + "; ".join(f"{f.subject}: {f.text}" for f in unlike),
        where=remote.name,
        remedy="; ".join(remedies),
    )


def _same_machine(host: Host, remote: SshHost) -> bool:
    """Return whether another host is this machine, with the same PIDs."""
    words = ["sh", "-c", "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/pid"]
    here, there = (one.run(words, timeout=ASK_SECONDS).stdout for one in (host, remote))
    return bool(here) and here == there


def _kind(instance: str, action: str, target: Target) -> str:
    """Return the kind of a move. Predictions are corrected by earlier moves of the same kind."""
    return f"{instance.partition(':')[0]} {action} {target.way.value}"


def remember(plan: MovePlan, target: Target, total: float, downtime: float | None) -> None:
    """Record a finished move, so that later predictions are corrected by it.

    The uncorrected prediction is recorded, so that no correction is corrected again. Ctrl-C ends the
    recording without an error: the caller must still say where the instance runs.

    total, downtime: measured seconds; None if the downtime is not known.
    """
    prediction = next(p for p in plan.uncorrected if p.method is plan.method)
    with contextlib.suppress(KeyboardInterrupt):
        keep(_kind(plan.instance, plan.action, target), prediction, total, downtime)
