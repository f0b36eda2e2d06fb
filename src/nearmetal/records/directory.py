"""The results directory of one run: frozen files, trials, samples, logs; closed by checksums."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RecordsError
from ..model.record import JsonValue
from .disk import failure, sync_directory, write_file
from .manifest import CRATE, SUMS, Verification, verify_sums, write_crate, write_sums
from .reading import Trials, read_trials
from .writer import TrialWriter

STUDY, PLAN, PROVENANCE = "study.yaml", "plan.json", "provenance.json"
_SCHEMA = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class PlanMeta:
    """What fixes the order of the trials, with the study: the seed, the expected number of blocks N, and the
    names of the arms in the order of the study."""

    seed: int
    expected_blocks: int
    arms: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ResultsDirectory:
    """path: of the directory; study: name of the study; created: Unix seconds; plan: as frozen."""

    path: Path
    study: str
    created: float
    plan: PlanMeta

    @classmethod
    def create(
        cls,
        parent: Path,
        study_name: str,
        *,
        study_yaml: str,
        plan: PlanMeta,
        provenance: Mapping[str, Any],
    ) -> ResultsDirectory:
        """A new directory `<study>-<UTC time>` below parent (made if missing), never an existing one.
        Raises DiskFullError and RecordsError; what was made is then removed."""
        created = time.time()
        name = f"{_safe(study_name)}-{time.strftime('%Y-%m-%dT%H-%M-%S', time.gmtime(created))}"
        try:
            parent.mkdir(parents=True, exist_ok=True)
            path = _new_directory(parent, name)
        except OSError as e:
            raise failure(e, parent, kept="nothing was written") from e
        meta = {
            "schema": _SCHEMA,
            "study": study_name,
            "created": created,
            "seed": plan.seed,
            "expected_blocks": plan.expected_blocks,
            "arms": list(plan.arms),
        }
        try:
            write_file(path / STUDY, study_yaml.encode())
            write_file(path / PROVENANCE, _json(provenance))
            for below in ("trials", "samples", "logs"):
                (path / below).mkdir()
            write_file(path / PLAN, _json(meta))  # last: a directory with a plan is whole
            sync_directory(parent)
        except OSError as e:
            _remove_new(path)
            raise failure(e, parent, kept="the new results directory was removed") from e
        return cls(path=path, study=study_name, created=created, plan=plan)

    @classmethod
    def open(cls, path: Path) -> ResultsDirectory:
        """Raises RecordsError when path is no results directory, or one of another schema."""
        file = path / PLAN
        try:
            data = json.loads(file.read_bytes())
            if data["schema"] != _SCHEMA:
                raise RecordsError(
                    f"plan schema {data['schema']!r} is not known to this nearmetal, which reads {_SCHEMA}",
                    where=str(file),
                    remedy="read the directory with the nearmetal that wrote it, or upgrade this one",
                )
            plan = PlanMeta(
                seed=int(data["seed"]),
                expected_blocks=int(data["expected_blocks"]),
                arms=tuple(str(a) for a in data["arms"]),
            )
            return cls(path=path, study=str(data["study"]), created=float(data["created"]), plan=plan)
        except OSError as e:
            raise RecordsError(
                f"not a results directory ({PLAN}: {e.strerror})",
                where=str(path),
                remedy="name a directory that nearmetal run made, such as results/<study>-<time>",
            ) from e
        except (ValueError, KeyError, TypeError) as e:
            raise RecordsError(f"corrupt: {e!r}", where=str(file), remedy="take it from a copy") from e

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def study_yaml(self) -> str:
        """The study as it was asked. Raises RecordsError."""
        return self._frozen(STUDY).decode()

    @property
    def provenance(self) -> dict[str, JsonValue]:
        """The machine as it was when the run began. Raises RecordsError."""
        try:
            data = json.loads(self._frozen(PROVENANCE))
        except ValueError as e:
            raise RecordsError(f"corrupt: {e}", where=str(self.path / PROVENANCE)) from e
        if type(data) is not dict:
            raise RecordsError("corrupt: not an object", where=str(self.path / PROVENANCE))
        return data

    def _frozen(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError as e:
            raise RecordsError(f"cannot be read: {e.strerror}", where=str(self.path / name)) from e

    def writer(self, name: str) -> TrialWriter:
        """The writer of trials/<name>.jsonl. Raises RecordsError when the directory is closed (reopen it
        first) or another process writes the same file; DiskFullError."""
        if self.closed:
            raise RecordsError(
                "closed: its checksums were taken",
                where=str(self.path),
                remedy=f"nearmetal resume {self.path} opens it again",
            )
        return TrialWriter(self.path / "trials" / f"{_checked(name)}.jsonl", directory=self.path)

    def trials(self) -> Trials:
        """The records of all writers. Raises RecordsError."""
        return read_trials(sorted((self.path / "trials").glob("*.jsonl")))

    def samples_file(self, writer: str) -> Path:
        """Where the sampler of one writer keeps what it saw."""
        return self.path / "samples" / f"{_checked(writer)}.jsonl.zst"

    def samples_files(self) -> tuple[Path, ...]:
        """The samples of all writers."""
        return tuple(sorted((self.path / "samples").glob("*.jsonl.zst")))

    def logs(self, trial: str) -> Path:
        """The directory for stdout, stderr and consoles of one trial, made if missing."""
        path = self.path / "logs" / _safe(trial)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise failure(e, self.path, kept="the records are whole") from e
        return path

    # --- closing ---

    @property
    def closed(self) -> bool:
        return (self.path / SUMS).exists()

    def close(self) -> None:
        """Write ro-crate-metadata.json and SHA256SUMS over every file there is now; again when closed
        already, so that a report made since is covered. Raises DiskFullError."""
        try:
            write_crate(self.path, name=self.name, study=self.study, created=self.created)
            write_sums(self.path)
        except OSError as e:
            raise failure(e, self.path, kept="the records are whole") from e

    def reopen(self) -> None:
        """Take the checksums away, so that a resumed run may append. Harmless when open."""
        for name in (SUMS, CRATE):
            (self.path / name).unlink(missing_ok=True)

    def verify(self) -> Verification:
        """Hold every file against SHA256SUMS. Raises RecordsError when the directory is not closed."""
        return verify_sums(self.path)


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _safe(name: str) -> str:
    """A name of a study or trial as one part of a path ('0.native/1x2' -> '0.native~1x2')."""
    return re.sub(r"[^A-Za-z0-9._-]", "~", name).lstrip(".") or "unnamed"


def _checked(writer: str) -> str:
    if not _NAME.fullmatch(writer):
        raise RecordsError(f"{writer!r} cannot name a writer: letters, digits, dot, dash and underscore only")
    return writer


def _new_directory(parent: Path, name: str) -> Path:
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def _remove_new(path: Path) -> None:
    for name in (STUDY, PROVENANCE, PLAN):
        (path / name).unlink(missing_ok=True)
    for below in ("trials", "samples", "logs"):
        if (path / below).is_dir():
            (path / below).rmdir()
    path.rmdir()
