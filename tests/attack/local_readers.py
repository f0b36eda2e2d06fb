"""Readers of what runs leave on a machine, and of what ranks, instances and nodes print."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from unittest import mock

from tests.attack.fuzzing import Reader
from tests.attack.hostile_results import STUDY

from nearmetal.api.moves import past
from nearmetal.api.nodes import Checked, NodeCheck, compared, read_answer
from nearmetal.api.trust import require_trust
from nearmetal.cli.nodes_text import nodes_lines
from nearmetal.environments.external.saved import HANDED_OVER, RESTORED, require_kept
from nearmetal.environments.guests.guest import console_words, how_far
from nearmetal.environments.leftovers import Cleaned
from nearmetal.environments.xen import dom0
from nearmetal.errors import UsageError
from nearmetal.host import lock, notes, undo
from nearmetal.host.processes.birth import birth
from nearmetal.host.processes.failure import describe_failure
from nearmetal.host.processes.helper import parse_report as parse_helper
from nearmetal.host.processes.ranks import parse_holdings
from nearmetal.host.untrusted import LIMIT, UntrustedDirectory
from nearmetal.images.build import packages
from nearmetal.lifecycle import Estimate, Method, Prediction
from nearmetal.lifecycle.experience import corrected
from nearmetal.records import own_runs
from nearmetal.report.tables.inside import inside_of
from nearmetal.run import cost_cache
from nearmetal.run.bounds import measuring
from nearmetal.samplers.profile import LaunchProfile
from nearmetal.samplers.sampler import cost_of_samples, costs_in
from nearmetal.subjects.events.progress import read_progress
from nearmetal.subjects.launches.profiles import read_profiles
from nearmetal.subjects.launches.reports import read_reports, resources_of
from nearmetal.testing.fake_host import FakeHost
from nearmetal.workloads import build
from nearmetal.workloads.json_text import documents, value_at
from nearmetal.workloads.peak import parse_peak
from nearmetal.workloads.protocol import parse_line, parse_offered

_LABEL = "nearmetal-000000000abc"


def _json(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


_NOTE = Path(notes._directory(Path()), f"{_LABEL}.1.json")
_CHANGES = (
    {"type": "Directories", "parent": "/var/tmp"},
    {"type": "Functions", "card": "ens1", "before": 0, "made": 2},
    {"type": "Controllers", "group": "/sys/fs/cgroup/a", "names": ["cpu"], "leaf": "b"},
    {"type": "Card", "name": "ens1", "netns": "/run/netns/a", "alias": "", "mtu": 1500}
    | {"queue_length": 1000, "up": True, "offloads": {"tx": True}},
)


def _private(directory: Path) -> None:
    """Make the directory of undo notes as nearmetal makes it."""
    for parent in (*reversed(_NOTE.parent.parents), _NOTE.parent):
        (directory / parent).mkdir(mode=0o700, exist_ok=True)


def _undo_notes(path: Path) -> object:
    with mock.patch.object(notes, "_bases", lambda: (path.parents[2],)):
        found, refused = notes.read_notes()
        return refused, notes.unfinished_notes(), [undo.has_effect(note) for note in found]


def _lock(path: Path) -> object:
    with mock.patch.object(lock, "bears_mark", lambda *_: True):  # else a line shows nothing
        runs = lock.living_runs(path)
    return lock.is_left_over(path), [str(lock.busy(run, "this machine", None)) for run in runs]


def _results(directory: Path) -> None:
    directory.chmod(0o700)
    (directory / "study.yaml").write_text(STUDY)


def _own_run(path: Path) -> object:
    with mock.patch.multiple(own_runs, _place=lambda: path.parent, _name=lambda _: path.name):
        run = own_runs.own_run(path.parent)
        with mock.patch.object(own_runs, "KEPT", 0):
            own_runs._forget_oldest(path.parent)
        return run


def _trust(path: Path) -> None:
    require_trust(path.parent, ask=lambda _, shown: bool("".join(shown)), dry_run=True)


def _notes_of_checkpoint(path: Path) -> None:
    for name in (HANDED_OVER, RESTORED):
        (path.parent / name).unlink(missing_ok=True)
        (path.parent / name).hardlink_to(path)
        try:
            require_kept(path.parent)
        except UsageError as e:
            assert e.where == str(path.parent)


def _past(path: Path) -> object:
    some = Estimate(1.0, 2.0, 3.0)
    prediction = Prediction(method=Method.CRIU, total=some, downtime=some)
    with mock.patch.object(past, "_directory", lambda: path.parent):
        return corrected(prediction, past.past_moves(), "a")


def _costs(path: Path) -> object:
    with mock.patch.object(cost_cache, "_file", lambda *_: path):
        return cost_cache.stored_costs(None, FakeHost())  # type: ignore[arg-type]


def _dom0(path: Path) -> object:
    with mock.patch("nearmetal.host.runtime.own_notes", lambda _: [printed(path)]):
        return dom0.noted()


def _cost_of_samples(path: Path) -> None:
    with suppress(OSError):
        cost_of_samples(UntrustedDirectory(path.parent), path.name)


def _programs(directory: Path) -> None:
    (directory / "bin").mkdir()
    for name in build.PROGRAMS:
        (directory / "bin" / name).touch()


def printed(path: Path) -> str:
    """Return what a program has printed. Of long outputs, nearmetal reads the beginning."""
    with path.open("rb") as file:
        return file.read(LIMIT).decode(errors="replace")


def _profile(path: Path) -> object:
    (found,) = read_profiles(path.parent, 1)
    assert isinstance(found, LaunchProfile)
    return found.whole(), found.kernel(0)


def _checked(path: Path) -> object:
    answer = read_answer(printed(path), Checked, "n")
    node = NodeCheck(name="n", machine=answer.machine, checks=answer.checks)
    return nodes_lines(compared([node, NodeCheck(name="m", machine={}, checks=())]), 80, everything=True)


_PLACE = {"rank": 0, "host": "n0", "cpu": 1, "affinity": [1, 3], "namespaces": {"mnt": 4026531841}}
_REPORT = {
    "place": _PLACE, "wall": 1.5, "user": 1.0, "system": 0.5, "max_rss": 4096, "io": {"rchar": 7},
    "used": {"cycles": None}, "status": 0, "left": ["sleep"],
}  # fmt: skip
_READY = {
    "event": "ready", "mpi": "Open MPI", "ranks": 1, "init_s": 0.1, "prepare_s": 0.1, "places": [_PLACE],
    "pages": [{"kernel": 0, "huge_kb": None, "total_kb": 8}],
}  # fmt: skip
_PART = {"metric": "rate", "seconds": 0.01, "comm_seconds": 0.002, "work": 5}
_SLICE = {"event": "slice", "kernel": 0, "name": "cg", "parts": [_PART], "used": {"cycles": None}}
_VERIFY = {
    "event": "verify", "kernel": 0, "name": "cg", "ok": True, "expected": {"a": 1.5}, "found": {"a": [1]},
    "seconds": 0.1, "work": 5,
}  # fmt: skip
_CALL = {"MPI_Send": {"count": 2, "seconds": 0.25, "bytes": 16}}
_LEVEL = {
    "level": 3, "compute": 2.0, "communication": 0.5, "calls": _CALL,
    "peers": [{"rank": 0, "messages": 2, "bytes": 16}],
}  # fmt: skip
_PROFILE = {
    "rank": 0, "ranks": 1, "complete": True, "mpi": "MPICH", "before": 0.5, "init": 1.0, "finalize": 0.1,
    "sections": [_LEVEL, _LEVEL],
}  # fmt: skip
_CHECKS = {
    "machine": {"cpu": {"model": "c"}, "memory": {"bytes": 5}, "kernel": {"release": "6.1"}},
    "checks": [{"state": "works", "what": "podman 4", "why": "", "remedy": "", "group": "environments"}],
}
_ITEM = {"kind": "process", "name": _LABEL, "detail": "4711"}
_RUN = {
    "pid": os.getpid(), "born": birth(os.getpid()), "run": _LABEL, "since": 1.0, "command": "nearmetal run",
    "group": "",
}  # fmt: skip
_FAILED = b"mpirun noticed that process rank 1 with PID 7 on node a exited on signal 11 (Segmentation fault)."
_HOLDINGS = b"0 link 0100007F:0050 0100007F:0051\nmaps 7f00-7f10 rw-s 00000000 00:01 1024 /dev/zero\n1\n"
_MOVE = {
    "rules": past._RULES, "kind": "a", "method": "criu", "predicted_total": 1.0, "total": 2.0,
    "predicted_downtime": None, "downtime": 1.0,
}  # fmt: skip
_OWN = {"path": "/a", "owner": 0, "studies": "00", "since": 1.0}
_WORKERS = {"engine": "slurm", "options": {"partition": "a"}, "ids": ["7"]}
_BLOCK = {"beside": 1.0, "slices": 1.0}
_BUILT = {"digest": "00", "compiler": "gcc", "flags": "-O2", "mpi": "Open MPI", "cpu": "00"}
_PACKAGES = b"Package: gcc\nStatus: install ok installed\nVersion: 12\n\nPackage: a\nStatus: deinstall\n"

LOCAL_READERS = (
    Reader(
        name="undo note",
        read=_undo_notes,
        file=str(_NOTE),
        seeds=tuple(_json({"boot": notes.boot_id(), "change": change}) for change in _CHANGES),
        prepare=_private,
    ),
    Reader(name="lock", read=_lock, seeds=(_json(_RUN), _json(_RUN, {**_RUN, "pid": 2}))),
    Reader(
        name="own run",
        read=_own_run,
        file="own.json",
        seeds=(_json(_OWN), _json({**_OWN, "workers": _WORKERS})),
        prepare=_results,
    ),
    Reader(name="commands to trust", read=_trust, file="study.yaml", seeds=(STUDY.encode(),)),
    Reader(
        name="notes of a checkpoint", read=_notes_of_checkpoint, seeds=(b"host\n", b"pid:7\nunfinished\n")
    ),
    Reader(name="moves of the past", read=_past, file="moves.jsonl", seeds=(_json(*[_MOVE] * 5),)),
    Reader(
        name="costs of a study",
        read=_costs,
        seeds=(_json({"rehearsal": 1.0, "block": _BLOCK, "late": _BLOCK, "until": 5}),),
    ),
    Reader(
        name="upper bounds of a machine",
        read=lambda path: measuring._read(path, "k"),
        seeds=(_json({"of": "k", "roofs": [{"name": "dgemm"}]}),),
    ),
    Reader(
        name="build",
        read=lambda path: build._recorded(path.parent),
        file=build.RECORD,
        seeds=(_json(_BUILT),),
        prepare=_programs,
    ),
    Reader(name="note about dom0", read=_dom0, seeds=(_json({"dom0": {"destination": "d"}, "disks": "/a"}),)),
    Reader(
        name="report of a rank",
        read=lambda path: resources_of(read_reports(path.parent, 1)),
        file="rank.0.json",
        seeds=(_json(_REPORT),),
    ),
    Reader(
        name="line of nm-micro",
        read=lambda path: parse_line(printed(path)),
        seeds=tuple(map(_json, (_READY, _SLICE, _VERIFY))),
    ),
    Reader(
        name="events of nm-rank",
        read=lambda path: parse_offered(printed(path)),
        seeds=(_json({"cycles": ""}),),
    ),
    Reader(
        name="products of nm-dgemm",
        read=lambda path: parse_peak(printed(path)).best(),
        seeds=(_json({"library": "l", "core": None, "cpus": [0], "sizes": [{"n": 8, "seconds": [0.5]}]}),),
    ),
    Reader(name="profile", read=_profile, file="d/profile.0.json", seeds=(_json(_PROFILE),)),
    Reader(name="progress of nm-keeper", read=read_progress, seeds=(bytes(40),)),
    Reader(
        name="cost of sampling",
        read=lambda path: list(inside_of({}, costs_in(UntrustedDirectory(path.parent))).lines()),
        file="w.cost.json",
        seeds=(_json({"seconds": 9.0, "cpu": 0.1, "samples": 9}),),
    ),
    Reader(
        name="cost of raw samples",
        read=_cost_of_samples,
        by_lines=True,
        seeds=(_json({"monotonic": 1.0, "own": 0.1}, {"monotonic": 2.0, "own": 0.2}),),
    ),
    Reader(
        name="report of a helper",
        read=lambda path: parse_helper(printed(path).encode()),
        seeds=(b'{"a": 1}\nb\n',),
    ),
    Reader(name="checks of a node", read=_checked, seeds=(_json(_CHECKS), b"Welcome\n" + _json(_CHECKS))),
    Reader(
        name="leftovers of a node",
        read=lambda path: read_answer(printed(path), Cleaned, "n"),
        seeds=(_json({"found": [_ITEM], "left": [], "failures": ["a"], "not_searched": []}),),
    ),
    Reader(
        name="failure of a program",
        read=lambda path: describe_failure("a", 1, printed(path), launcher="mpirun").encode(),
        seeds=(
            _FAILED,
            _json({"event": "error", "program": "nm-box", "process": "rank 1", "what": "mount: no"}),
        ),
    ),
    Reader(
        name="console of a guest",
        read=lambda path: (console_words(printed(path)), how_far(printed(path))),
        seeds=(b"[1.0] invalid opcode: 0000\n[1.1] Kernel panic - not syncing\n", b"nm-guest\n"),
    ),
    Reader(
        name="links of ranks in a guest",
        read=lambda path: parse_holdings(printed(path), "guest"),
        seeds=(_HOLDINGS,),
    ),
    Reader(
        name="JSON in an output",
        read=lambda path: [value_at(found, "a.0.b") for found in documents(printed(path))],
        seeds=(b'text {"a": [{"b": 1}]}\n[1]\n',),
    ),
    Reader(
        name="packages of an image",
        read=lambda path: packages(path.parents[3]),
        file="var/lib/dpkg/status",
        seeds=(_PACKAGES,),
    ),
)
