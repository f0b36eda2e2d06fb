"""The results directory of one run: the study and the plan, which never change, and trials, samples and logs.
A file of checksums marks the directory as closed."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import RecordsError
from ..host.durable import sync_directory, write_file
from ..host.untrusted import UntrustedDirectory
from ..model.plan import GROWING, GrowingLooks, Schedule, Work
from ..model.record import JsonValue, TrialRecord
from ..model.roof import MeasuredRoof, RoofRequest, best_of, read_roofs, roof_record
from .codec import to_line
from .disk import failure, is_there, resume_line, store_file
from .json_files import corrupt_at, json_bytes, json_object, names_in, new_directory, safe_name, text_in
from .manifest import CRATE, SUMS, Verification, verify_sums, write_crate, write_sums
from .node_files import LEFT_OUT, NodeFiles
from .plan_file import PlanMeta, plan_form, read_plan
from .reading import ENDING, Trials, read_trials
from .writer import TrialWriter

STUDY, PLAN, PROVENANCE, REHEARSAL = "study.yaml", "plan.json", "provenance.json", "rehearsal.jsonl"
TRIALS = "trials"
ROOFS, WANTED_ROOFS = "roofs.json", "wanted-roofs.json"
_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
STAMP = "%Y-%m-%dT%H-%M-%S"
_NAME = re.compile(r"(?P<study>.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-\d+)?")


def report_paths(directory: Path) -> list[Path]:
    """Return the paths of the report of a results directory: the page, Markdown, LaTeX and CSV."""
    return [directory / f"report.{ending}" for ending in ("html", "md", "tex", "csv")]


def directories_with(file: str, parent: Path) -> list[Path]:
    """Return the sorted paths of the directories directly below parent that contain a file of this name. A
    link to a directory counts only if it leads to a place below parent.

    Raises RecordsError if parent cannot be read.
    """
    files = UntrustedDirectory(parent)
    names = names_in(files, "") if parent.is_dir() else []
    return [parent / n for n in names if files.is_directory(n) and files.exists(f"{n}/{file}")]


@dataclass(frozen=True, kw_only=True)
class ResultsDirectory:
    """An existing results directory. A run writes the plan to it before the first trial (freeze())."""

    path: Path

    @property
    def files(self) -> UntrustedDirectory:
        """The files of the directory, which may come from somebody else."""
        return UntrustedDirectory(self.path)

    @classmethod
    def create(cls, parent: Path, study_name: str, *, study_yaml: str) -> ResultsDirectory:
        """Make a new directory `<study>-<UTC time>` below parent, which is made if it is missing. An existing
        directory is never used.

        study_yaml: text of the study file.

        Raises DiskFullError and RecordsError. Nothing is left of a failed attempt.
        """
        path: Path | None = None
        try:
            parent.mkdir(parents=True, exist_ok=True)
            path = new_directory(parent, f"{safe_name(study_name)}-{time.strftime(STAMP, time.gmtime())}")
            for below in (TRIALS, "samples", "logs"):
                (path / below).mkdir()
            write_file(path / STUDY, study_yaml.encode())
            sync_directory(parent)
        except OSError as e:
            if path is not None:
                shutil.rmtree(path)
            raise failure(e, parent, kept="nothing was kept of the new results directory") from e
        return cls(path=path)

    @staticmethod
    def check_parent(parent: Path) -> None:
        """Check, before anything is measured, that a directory can be made below parent.

        Raises RecordsError if not.
        """
        there = next(p for p in (parent, *parent.absolute().parents) if p.exists())
        try:
            with tempfile.TemporaryDirectory(prefix=".nearmetal-", dir=there):
                pass
        except OSError as e:
            remedy = "choose another directory: --results DIR"
            raise failure(e, parent, kept="nothing was measured", remedy=remedy) from e

    @classmethod
    def open(cls, path: Path) -> ResultsDirectory:
        """Open an existing directory.

        Raises RecordsError if path is not a results directory.
        """
        if not UntrustedDirectory(path).exists(STUDY):
            raise RecordsError(
                f"not a results directory: no {STUDY} in it",
                where=str(path),
                remedy="name a directory that a run made, such as results/<study>-<time>",
            )
        return cls(path=path)

    def freeze(
        self,
        *,
        seed: int,
        arms: Sequence[str],
        provenance: Mapping[str, Any],
        rehearsal: Iterable[TrialRecord] = (),
        slices: Mapping[str, int] | None = None,
        work: Work | None = None,
        schedule: Schedule = GROWING,
        started: float | None = None,
    ) -> PlanMeta:
        """Write plan.json, provenance.json and the rehearsal. Must be called exactly once, before the first
        trial.

        provenance: description of the machine.
        rehearsal: records of block 0, stored in rehearsal.jsonl. No analysis uses them.
        seed, arms, slices, work, schedule, started: see PlanMeta.

        Raises RecordsError if the plan was already written or the directory cannot be written, and
        DiskFullError.
        """
        if self.frozen:
            raise RecordsError("its plan is fixed already", where=str(self.path))
        name = _NAME.fullmatch(self.path.name)
        plan = PlanMeta(
            study=name["study"] if name else self.path.name,
            seed=seed,
            arms=tuple(arms),
            created=time.time(),
            started=started,
            schedule=schedule,
            slices=dict(slices or {}),
            work={name: dict(units) for name, units in (work or {}).items()},
        )
        files = {REHEARSAL: b"".join(map(to_line, rehearsal)), PROVENANCE: json_bytes(provenance)}
        files[PLAN] = json_bytes(plan_form(plan))  # written last, so that a plan always has its provenance
        for file, data in files.items():
            if data:
                store_file(self.files, file, data, kept="no trial had begun")
        return plan

    def close_looks(self, block: int) -> PlanMeta:
        """Add a closing look after block `block`, the last complete one, to plan.json, and return the plan.

        Call this when a time budget or a block limit ends a run, never when verdicts or an interrupt end it:
        the position of a closing look must not depend on the data. Nothing changes if the plan already has a
        closing look after that block, or if the directory is older and its schedule has no closing looks.

        Raises RecordsError, DiskFullError.
        """
        plan = self.plan()
        if not isinstance(plan.schedule, GrowingLooks) or block < 1 or block in plan.schedule.closing:
            return plan
        closing = (*plan.schedule.closing, block)
        return self._rewrite(replace(plan, schedule=replace(plan.schedule, closing=closing)))

    def give_up(self, block: int) -> PlanMeta:
        """Add a block whose workers were lost to the missing blocks in plan.json, and return the plan. If
        records of the block arrive later, they do not count.

        Raises RecordsError, DiskFullError.
        """
        plan = self.plan()
        if block in plan.missing:
            return plan
        return self._rewrite(replace(plan, missing=tuple(sorted((*plan.missing, block)))))

    def _rewrite(self, plan: PlanMeta) -> PlanMeta:
        store_file(self.files, PLAN, json_bytes(plan_form(plan)))
        return plan

    @property
    def frozen(self) -> bool:
        return is_there(self.files, PLAN)

    def plan(self) -> PlanMeta:
        """Return the plan in plan.json.

        Raises RecordsError if there is no plan, if its schema is unknown, or if it is corrupt.
        """
        if not self.frozen:
            raise RecordsError(
                "this run ended before its first round: there is no plan and nothing was measured",
                where=str(self.path),
                remedy=f"start it again: nearmetal run {shlex.quote(str(self.path / STUDY))}",
            )
        return read_plan(self.files, PLAN)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def study_yaml(self) -> str:
        """The text of the study file.

        Raises RecordsError if it cannot be read or is not UTF-8.
        """
        return text_in(self.files, STUDY)

    @property
    def provenance(self) -> dict[str, JsonValue]:
        """The description of the machine when the run began.

        Raises RecordsError.
        """
        return json_object(self.files, PROVENANCE)

    @property
    def node_files(self) -> NodeFiles:
        """The descriptions of the machines on which workers run."""
        return NodeFiles(self.path)

    def nodes(self) -> dict[str, dict[str, JsonValue]]:
        """Return the descriptions of the machines of all workers that take part in the run, by label of the
        worker; empty for a run without workers, and in older directories.

        Raises RecordsError.
        """
        return {run: found for run, found in self.node_files.read().items() if LEFT_OUT not in found}

    def write_roofs(self, roofs: Iterable[MeasuredRoof]) -> None:
        """Write the upper bounds known so far.

        Raises DiskFullError and RecordsError.
        """
        store_file(self.files, ROOFS, json_bytes({"roofs": [roof_record(r) for r in roofs]}))

    def want_roofs(self, wanted: Iterable[RoofRequest]) -> None:
        """Write the upper bounds that workers must measure. Must be called before the first order.

        Raises DiskFullError and RecordsError.
        """
        store_file(self.files, WANTED_ROOFS, json_bytes({"wanted": [vars(roof) for roof in wanted]}))

    def wanted_roofs(self) -> tuple[RoofRequest, ...]:
        """Return the upper bounds that want_roofs() requested; () if it was not called.

        Raises RecordsError.
        """
        there = self.files.exists(WANTED_ROOFS)
        found = json_object(self.files, WANTED_ROOFS).get("wanted", []) if there else []
        with corrupt_at(self.path / WANTED_ROOFS):
            return msgspec.convert(found, tuple[RoofRequest, ...])

    def roofs(self) -> tuple[MeasuredRoof, ...]:
        """Return the measured upper bounds: those of write_roofs(). Without these, each is the best value in
        the descriptions of the workers' nodes. Without workers, as in older directories, the upper bounds are
        in the provenance.

        Raises RecordsError.
        """
        there = self.files.exists(ROOFS)
        own = () if there else [read_roofs(node.get("roofs")) for node in self.nodes().values()]
        if any(own):
            return best_of(roof for roofs in own for roof in roofs)
        return read_roofs((json_object(self.files, ROOFS) if there else self.provenance).get("roofs"))

    def writer(self, name: str = "local") -> TrialWriter:
        """Return the writer of trials/<name>.jsonl. Every process that runs blocks has its own name.

        Raises RecordsError if the directory has no plan yet, if it is closed (reopen it first), or if another
        process writes the same file; DiskFullError.
        """
        if not self.frozen:
            raise RecordsError("a trial may not be recorded before the plan is fixed", where=str(self.path))
        if self.closed:
            raise RecordsError(
                "closed: its checksums were taken",
                where=str(self.path),
                remedy=f"{resume_line(self.path)} opens it again",
            )
        if not _WRITER.fullmatch(name):
            raise RecordsError(
                f"{name!r} cannot name a writer: letters, digits, dot, dash and underscore only"
            )
        return TrialWriter(self.path / TRIALS / f"{name}.jsonl", directory=self.path)

    def trials_bytes(self) -> int:
        """Return the size in bytes of the records of all writers.

        Raises RecordsError.
        """
        trials = self.files.below(TRIALS)
        found = (trials.stat(name) for name in names_in(trials, ENDING))
        return sum(status.st_size for status in found if status is not None)

    def trials(self) -> Trials:
        """Return the records of all writers. Each record is read from its file whenever it is accessed.

        Raises RecordsError; see read_trials().
        """
        trials = self.files.below(TRIALS)
        return read_trials(trials, names_in(trials, ENDING))

    def rehearsal(self) -> tuple[TrialRecord, ...]:
        """Return the records of the rehearsal, ordered by (position, attempt). No analysis uses them.

        Raises RecordsError.
        """
        return tuple(read_trials(self.files, [REHEARSAL] if self.files.exists(REHEARSAL) else []))

    @property
    def closed(self) -> bool:
        return is_there(self.files, SUMS)

    def close(self) -> None:
        """Write ro-crate-metadata.json, and the checksums of all files to SHA256SUMS.

        A closed directory can be closed again, to include later reports.

        Raises RecordsError, DiskFullError.
        """
        plan = self.plan()
        try:
            write_crate(self.files, study=plan.study, created=plan.created)
            write_sums(self.files)
        except OSError as e:
            raise failure(e, self.path, kept="the records are whole") from e

    def reopen(self) -> None:
        """Remove the checksums, so that a resumed run may append. Harmless if the directory is not closed."""
        for name in (SUMS, CRATE):
            self.files.unlink(name)

    def verify(self) -> Verification:
        """Compare every file with its checksum in SHA256SUMS.

        Raises RecordsError if the directory is not closed, or if a line is not a checksum.
        """
        return verify_sums(self.files)
