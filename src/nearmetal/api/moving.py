"""Checkpoint, restore and move instances of the user's own, with a prediction beforehand.

Nothing that these functions make carries a label of nearmetal: images and restored instances belong to the
user, and outlive nearmetal and `nearmetal clean`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..environments import Criu, Unavailable
from ..environments.external import (
    External,
    Facts,
    MovedAway,
    Moves,
    Saved,
    Target,
    Way,
    Work,
    find_external,
    named,
    read_saved,
    require_new,
    require_room,
    write_saved,
)
from ..errors import NearmetalError, RunError, UnavailableError, UsageError
from ..host import Host, LocalHost
from ..host.pages import sample_pages
from ..host.runtime import scratch_directory, user_state
from ..host.ssh import SshHost, SshWay, ssh_host
from ..images import ImageStore
from ..lifecycle import (
    Bounded,
    Candidate,
    Conditions,
    Dirtying,
    Estimate,
    Method,
    PastMove,
    Prediction,
    choose,
    corrected,
    dirtying,
    predict,
)
from ..node.criu import find_criu

CHECKPOINT, MIGRATE = "checkpoint", "migrate"
USUAL_BOUND = 0.3
"""Seconds of downtime for which a method is chosen if no bound is given."""
_PROBE = 32 << 20
"""Bytes that are written to measure a destination."""
_REMOTE = "/var/tmp/nearmetal-move.XXXXXX"
_SECONDS = 600.0
_KEPT = 1000
"""Number of earlier moves that are kept."""
Said = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class How:
    """How an instance is checkpointed or moved.

    method: AUTO chooses one for the bound.
    bound: seconds of the time that `of` names; AUTO keeps it if it can.
    keep_running: whether the instance goes on after its checkpoint.
    images: a new directory for the images of a move to another host; None for one in the user's state
        directory.
    bandwidth: most bytes per second; None for no limit.
    time_limit: seconds after which a move is given up.
    """

    method: Method = Method.AUTO
    bound: float = USUAL_BOUND
    of: Bounded = Bounded.DOWNTIME
    keep_running: bool = False
    images: Path | None = None
    bandwidth: float | None = None
    time_limit: float = _SECONDS


@dataclass(frozen=True, kw_only=True)
class MovePlan:
    """What is expected of a checkpoint or a move. Nothing has been changed.

    action: CHECKPOINT or MIGRATE.
    method: the method that would be used.
    reason: why, in one sentence.
    holds: whether the bound is expected to hold.
    methods: the prediction of every method that could be used.
    uncorrected: these predictions before they were corrected by earlier moves.
    memory: bytes that are written or sent at most.
    free: free bytes of the file system of the images; None if none are written.
    dirty: how fast it dirties its memory; None if that cannot be seen or does not matter.
    notes: what is not known.
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
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Prediction:
        return next(p for p in self.methods if p.method is self.method)


@dataclass(frozen=True, kw_only=True)
class MoveResult:
    """A finished checkpoint, restore or move. Times are in seconds.

    now: name of the instance as it runs now; empty if it does not run.
    total: from the request.
    downtime: None if it is not known.
    size: bytes of the images, or bytes that were sent; None if it is not known.
    images: directory of the images that are left; None if there are none.
    plan: the prediction; None of a restore.
    """

    action: str
    now: str
    total: float
    downtime: float | None
    size: int | None
    images: str | None
    plan: MovePlan | None


def plan_checkpoint(instance: str, to: Path, how: How) -> MovePlan:
    """Return what is expected of a checkpoint."""
    host = LocalHost()
    return _planned(host, find_external(host, instance), _directory(to), how, CHECKPOINT)


def plan_migrate(instance: str, to: str, how: How) -> MovePlan:
    """Return what is expected of a move."""
    host = LocalHost()
    external = find_external(host, instance)
    external.inspect(host)
    with _reached(host, external, to) as (target, remote):
        return _planned(host, external, target, how, MIGRATE, remote)


def checkpoint(instance: str, to: Path, how: How, say: Said = lambda _: None) -> MoveResult:
    """Write an instance to a new directory. It ends, unless how.keep_running.

    Raises UsageError, UnavailableError, and RunError, which says whether the instance goes on.
    """
    host = LocalHost()
    external, target = find_external(host, instance), _directory(to)
    plan = _planned(host, external, target, how, CHECKPOINT)
    require_new(to)
    say(f"writing {plan.instance} to {to}")
    work, begin = _work(how), time.monotonic()
    with _removed_if_failed(to):
        own = external.checkpoint(host, work, to.absolute())
    total = time.monotonic() - begin
    size = write_saved(to, Saved(name=external.name, method=plan.method, own=own))
    _remember(plan, _kind(plan.instance, plan.action, target), total, total)
    return MoveResult(
        action=CHECKPOINT,
        now=external.name if how.keep_running else "",
        total=total,
        downtime=total,
        size=size,
        images=str(to),
        plan=plan,
    )


def restore(directory: Path, into: str | None = None, say: Said = lambda _: None) -> MoveResult:
    """Restore an instance from a directory that checkpoint() has written. The images stay.

    into: its name after the restore, such as another QMP socket; None for the one that it had.
    Raises UsageError, UnavailableError and RunError.
    """
    host, work = LocalHost(), _work(How())
    saved = read_saved(directory)
    external = named(saved.name if into is None else into)
    if external.name.partition(":")[0] != saved.name.partition(":")[0]:
        raise UsageError(
            f"{directory} contains {saved.name}, which does not become {external.name}",
            remedy=f"--into {saved.name}",
        )
    external.require_programs(host, work)
    say(f"restoring {external.name} from {directory}")
    begin = time.monotonic()
    now = external.restore(host, work, directory.absolute(), saved)
    return MoveResult(
        action="restore",
        now=now,
        total=time.monotonic() - begin,
        downtime=None,
        size=None,
        images=str(directory),
        plan=None,
    )


def migrate(instance: str, to: str, how: How, say: Said = lambda _: None) -> MoveResult:
    """Move an instance: to a waiting QEMU, to another host, or by a directory to this machine.

    Raises UsageError, UnavailableError, and RunError, which says whether the instance goes on.
    """
    host = LocalHost()
    external = find_external(host, instance)
    external.inspect(host)
    with _reached(host, external, to) as (target, remote):
        plan = _planned(host, external, target, how, MIGRATE, remote)
        say(f"moving {plan.instance} by {plan.method} to {to}")
        if isinstance(external, Moves):
            done, images = external.migrate(host, _work(how, plan), target, plan.method), None
        else:
            done, images = _by_images(host, external, target, how, plan, remote)
    _remember(plan, _kind(plan.instance, plan.action, target), done.total, done.downtime)
    return MoveResult(
        action=MIGRATE,
        now=done.now,
        total=done.total,
        downtime=done.downtime,
        size=done.sent,
        images=images,
        plan=plan,
    )


def _by_images(
    host: Host, external: External, target: Target, how: How, plan: MovePlan, remote: SshHost | None
) -> tuple[MovedAway, str | None]:
    """Move by a checkpoint. Returns the directory of the images unless they were removed."""
    images = _images_of(target, how, plan)
    work, begin = _work(how), time.monotonic()
    require_new(images)
    with _removed_if_failed(images):
        own = external.checkpoint(host, work, images.absolute())
    saved = Saved(name=external.name, method=plan.method, own=own)
    size = write_saved(images, saved)
    if remote is None:
        try:
            now = external.restore(host, work, images.absolute(), saved)
        except RunError as e:
            raise RunError(f"{external.name} runs nowhere: {e.what}", where=e.where, remedy=e.remedy) from e
    else:
        now = _on_remote(host, external, work, images.absolute(), saved, remote)
        shutil.rmtree(images)
    total = time.monotonic() - begin
    moved = MovedAway(now=now, total=total, downtime=total, sent=size)
    return moved, None if remote is not None else str(images)


def _on_remote(
    host: Host, external: External, work: Work, images: Path, saved: Saved, remote: SshHost
) -> str:
    """Copy images to another machine and restore there. If that fails, it is restored here."""
    try:
        there = _sent(host, images, remote)
        now = external.restore(remote, work, there, saved)
        remote.run(["rm", "-r", "-f", str(there)], timeout=_SECONDS)
    except RunError as e:
        if not remote.run(["true"], timeout=_SECONDS).ok:
            raise RunError(
                f"the connection to {remote.name} is lost, and it is not known whether {external.name} "
                f"runs there: {e.what}",
                where=str(images),
                remedy=f"look there; if it does not run: nearmetal restore {images}",
            ) from e
        try:
            back = external.restore(host, work, images, saved)
        except RunError as second:
            raise RunError(
                f"{external.name} runs nowhere: {e.what}; and here: {second.what}",
                where=str(images),
                remedy=second.remedy,
            ) from e
        shutil.rmtree(images)
        raise RunError(
            f"{external.name} was not moved to {remote.name}, and continues here as {back}: {e.what}",
            remedy="the same programs, libraries and files there, and a free PID",
        ) from e
    return f"{now} at {remote.name}"


def _sent(host: Host, images: Path, remote: SshHost) -> Path:
    """Copy a directory to a new one on another machine."""
    made = remote.run(["mktemp", "--directory", _REMOTE], timeout=_SECONDS)
    if not made.ok:
        raise RunError(f"no directory on {remote.name}: {made.failure()}")
    there = made.stdout.strip()
    unpack = shlex.join(remote.words(["tar", "--directory", there, "--extract", "--file", "-"]))
    pack = shlex.join(["tar", "--directory", str(images), "--create", "--file", "-", "."])
    done = host.run(["sh", "-c", f"{pack} | {unpack}"], timeout=_SECONDS)
    if not done.ok:
        remote.run(["rm", "-r", "-f", there], timeout=_SECONDS)
        raise RunError(f"the images are not copied to {remote.name}: {done.failure()}")
    return Path(there)


def _images_of(target: Target, how: How, plan: MovePlan) -> Path:
    if target.way is Way.DIRECTORY:
        return Path(target.text)
    if how.images is not None:
        return how.images
    name = re.sub(r"\W+", "-", plan.instance).strip("-")
    return user_state() / "nearmetal" / "checkpoints" / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}"


def _directory(to: Path) -> Target:
    return Target(way=Way.DIRECTORY, text=str(to))


@contextmanager
def _removed_if_failed(images: Path) -> Iterator[None]:
    """Remove torn images, and keep CRIU's logs, since the error names them."""
    try:
        yield
    except BaseException:
        for file in images.iterdir():
            if file.suffix != ".log":
                file.unlink()
        if not any(images.iterdir()):
            images.rmdir()
        raise


@contextmanager
def _reached(host: Host, external: External, to: str) -> Iterator[tuple[Target, SshHost | None]]:
    """Open a connection to another host if images go there.

    Hypervisors that move by themselves make their own connection, and need none of ours.
    """
    target = Target.parse(to)
    if target.way is not Way.HOST or Way.HOST not in external.moves_by or isinstance(external, Moves):
        yield target, None
        return
    label = f"nearmetal-check-{os.getpid()}-move"
    with (
        scratch_directory(label) as scratch,
        ssh_host(host, SshWay(destination=target.text), label=label, scratch=scratch) as remote,
    ):
        yield target, remote


def _work(how: How, plan: MovePlan | None = None) -> Work:
    return Work(
        criu=_criu,
        keep_running=how.keep_running,
        bandwidth=how.bandwidth,
        downtime_limit=_limit(how, plan.chosen.downtime.low if plan is not None else 0.0),
        time_limit=how.time_limit,
    )


def _limit(how: How, fixed: float) -> float:
    """Return the seconds of a bound on the downtime that pre-copy may spend on the rest of the memory.

    fixed: seconds that do not depend on the memory.
    """
    bound = how.bound if how.of is Bounded.DOWNTIME else USUAL_BOUND
    return max(bound - fixed, bound / 4) if fixed else bound / 2


def _criu(host: Host) -> Criu:
    """Return a CRIU that works on a host; on another machine only an installed one."""
    found = find_criu(host) if isinstance(host, LocalHost) else find_criu(host, ImageStore(Path(os.devnull)))
    if isinstance(found, Unavailable):
        raise UnavailableError(f"CRIU on {host.name}: {found.reason}", remedy=found.remedy)
    return found


# ------------------------------------------------------------------------------------------------ prediction


def _planned(
    host: Host, external: External, target: Target, how: How, action: str, remote: SshHost | None = None
) -> MovePlan:
    """Predict every method, and choose one. Only a file of 32 MiB is written, and removed again."""
    facts = external.inspect(host)
    able = _able(external, target, how, action)
    work = _work(how)
    external.require_programs(host, work)
    if action == MIGRATE and isinstance(external, Moves):
        external.require_target(target)
    free = None
    if action == CHECKPOINT or not isinstance(external, Moves):
        if remote is not None:
            external.require_programs(remote, work)
            _require_remote_room(remote, facts.memory)
        at = Path(target.text) if target.way is Way.DIRECTORY else how.images or user_state()
        free = require_room(at, facts.memory)
    seen, notes = _dirtying(facts, able)
    known = {m: _conditions(external, facts, seen, m, target, how, action, remote) for m in able}
    past, kind = _past(), _kind(external.name, action, target)
    uncorrected = tuple(predict(m, known[m]) for m in able)
    methods = tuple(corrected(p, past, kind) for p in uncorrected)
    choice = choose(how.bound, [Candidate(prediction=p) for p in methods], how.of)
    auto = how.method is Method.AUTO
    reason = choice.reason if auto and len(able) > 1 else _only(external, how, able[0], action)
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
        notes=notes,
    )


def _only(external: External, how: How, method: Method, action: str) -> str:
    if how.method is method:
        return f"{method} was requested"
    return f"{method} is the only method for a {action} of {external.name}"


def _able(external: External, target: Target, how: How, action: str) -> tuple[Method, ...]:
    """Return the methods to choose from. Raises UsageError if the requested one is not among them."""
    if action == CHECKPOINT:
        methods = external.checkpoints_by
    elif target.way in external.moves_by:
        methods = external.moves_by[target.way]
    else:
        why = external.refuses(target.way)
        raise UsageError(f"{external.name}: {why.reason}", remedy=why.remedy)
    if how.method is Method.AUTO:
        return methods
    if how.method not in methods:
        raise UsageError(
            f"method {how.method} does not {action} {external.name}",
            remedy=f"--method {' or '.join(m.value for m in methods)}",
        )
    return (how.method,)


def _dirtying(facts: Facts, methods: tuple[Method, ...]) -> tuple[Dirtying | None, tuple[str, ...]]:
    """Sample pages if the prediction depends on them."""
    if facts.guest is None and not any(m.copies_first for m in methods):
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
    target: Target,
    how: How,
    action: str,
    remote: SshHost | None,
) -> Conditions:
    costs, memory = external.costs(method), float(facts.memory)
    if facts.guest is None:
        sent = Estimate(0.7 * memory, memory, 1.1 * memory)
    elif seen is None:
        sent = Estimate(0.05 * memory, 0.6 * memory, memory)
    else:
        sent = Estimate(seen.full.low * memory, seen.full.value * memory, seen.full.high * memory)
    unknown = Estimate(0.0, sent.value / 2, sent.high), Estimate(0.0, 1e8, math.inf)
    hot, rate = (seen.working_set, seen.rate) if seen is not None else unknown
    bandwidth = (costs.bandwidth if action == MIGRATE else None) or _measured(target, action, remote)
    if how.bandwidth is not None:
        most = how.bandwidth
        bandwidth = Estimate(*(min(v, most) for v in (bandwidth.low, bandwidth.value, bandwidth.high)))
    return Conditions(
        memory=sent,
        working_set=hot,
        dirty_rate=rate,
        bandwidth=bandwidth,
        fixed=costs.fixed,
        setup=costs.setup,
        downtime_limit=_limit(how, costs.fixed.value),
    )


def _measured(target: Target, action: str, remote: SshHost | None) -> Estimate:
    """Measure how fast bytes reach a destination; what reads them out of an instance is slower."""
    if remote is not None:
        return _factor(_ssh_speed(remote), 2.0)
    if target.way is Way.HOST:  # at the URI of a hypervisor
        return Estimate(3e7, 2e8, 3e9)
    speed = _write_speed(Path(target.text))
    return _factor(speed, 1.0 if action == CHECKPOINT else 2.0)


def _factor(speed: float, passes: float) -> Estimate:
    """passes: how often the bytes go the way, for example to a file and back."""
    return Estimate(speed / (8 * passes), speed / (2 * passes), speed / passes)


def _write_speed(directory: Path) -> float:
    at = next(p for p in (directory, *directory.absolute().parents) if p.is_dir())
    file, block = at / f".nearmetal-probe-{os.getpid()}", os.urandom(1 << 20)
    try:
        begin = time.monotonic()
        with file.open("wb", buffering=0) as out:
            for _ in range(_PROBE // len(block)):
                out.write(block)
        return _PROBE / (time.monotonic() - begin)
    except OSError as e:
        raise UsageError(f"{at}: {e.strerror}", remedy="a directory that can be written to") from e
    finally:
        file.unlink(missing_ok=True)


def _ssh_speed(remote: SshHost) -> float:
    begin = time.monotonic()
    done = LocalHost().run(
        ["sh", "-c", f"head -c {_PROBE} /dev/zero | {shlex.join(remote.words(['wc', '-c']))}"],
        timeout=_SECONDS,
    )
    if not done.ok or done.stdout.strip() != str(_PROBE):
        raise UnavailableError(
            f"nothing is sent to {remote.name}: {done.failure()}", remedy=f"ssh {remote.name} wc -c"
        )
    return _PROBE / (time.monotonic() - begin)


def _require_remote_room(remote: SshHost, memory: int) -> None:
    where = str(Path(_REMOTE).parent)
    done = remote.run(["df", "--output=avail", "--block-size=1", where], timeout=_SECONDS)
    words = done.stdout.split()
    if not done.ok or not words or not words[-1].isdigit():
        raise UnavailableError(f"{remote.name}: {done.failure()}", remedy=f"ssh {remote.name} df {where}")
    if int(words[-1]) < memory:
        raise UnavailableError(
            f"the images need up to {memory >> 20} MiB, and {int(words[-1]) >> 20} MiB are free",
            where=f"{remote.name}:{where}",
            remedy="make room there",
        )


# ---------------------------------------------------------------------------------------------- experience


def _kind(instance: str, action: str, target: Target) -> str:
    """Return what moves must have in common so that one tells something about another."""
    return f"{instance.partition(':')[0]} {action} {target.way.value}"


def _file() -> Path:
    return user_state() / "nearmetal" / "moves.jsonl"


def _past() -> list[PastMove]:
    """Read the earlier moves on this machine. Lines that cannot be read are left out."""
    found = []
    for line in _lines():
        try:
            read: Mapping[str, str | float | None] = json.loads(line)
            times = {k: _number(v) for k, v in read.items() if k not in ("kind", "method")}
            found.append(PastMove(kind=str(read["kind"]), method=Method(str(read["method"])), **times))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _lines() -> list[str]:
    try:
        return _file().read_text().splitlines()
    except OSError:
        return []


def _number(value: str | float | None) -> float:
    return math.nan if value is None else float(value)


def _remember(plan: MovePlan, kind: str, total: float, downtime: float | None) -> None:
    """Keep a finished move, by which later predictions are corrected.

    The uncorrected prediction is kept, so that no correction is corrected again.
    """
    said = next(p for p in plan.uncorrected if p.method is plan.method)
    times = {
        "predicted_total": said.total.value,
        "total": total,
        "predicted_downtime": said.downtime.value,
        "downtime": downtime,
    }
    known = {k: v if v is not None and math.isfinite(v) else None for k, v in times.items()}
    line = json.dumps({"kind": kind, "method": plan.method.value, **known})
    with contextlib.suppress(OSError):  # a full disk must not turn a finished move into a failure
        _file().parent.mkdir(parents=True, exist_ok=True)
        _file().write_text("\n".join([*_lines()[-_KEPT:], line, ""]))
