"""The directory of a series: its definition, which never changes, and one results directory for each part."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..host.durable import sync_directory, write_file
from ..host.untrusted import UntrustedDirectory
from ..model.series import PER_NODE, Figure, Omission, Part, Scale, Series
from ..model.study import Study
from .directory import PLAN, STAMP, ResultsDirectory, directories_with
from .disk import failure
from .json_files import (
    corrupt_at,
    json_bytes,
    json_object,
    new_directory,
    parse_json,
    read_bytes,
    require_schema,
    safe_name,
    text_in,
    unix_time,
)

SERIES, STUDIES, ENDS, TABLE = "series.json", "studies", "ends.jsonl", "published.toml"
SIZES = "sizes.jsonl"
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class SeriesDirectory:
    """An existing directory with a series."""

    path: Path

    @property
    def files(self) -> UntrustedDirectory:
        """The files of the directory, which may come from somebody else."""
        return UntrustedDirectory(self.path)

    @classmethod
    def create(
        cls, parent: Path, series: Series, texts: Mapping[str, str], table: str = ""
    ) -> SeriesDirectory:
        """Make a new directory `<name>-<UTC time>` below parent.

        texts: text of the study file of each part that has a study, by key of the part.
        table: text of the user's file with published numbers; '' for none.

        Raises DiskFullError and RecordsError.
        """
        try:
            parent.mkdir(parents=True, exist_ok=True)
            path = new_directory(parent, f"{safe_name(series.name)}-{time.strftime(STAMP, time.gmtime())}")
            (path / STUDIES).mkdir()
            for key, text in texts.items():
                write_file(path / STUDIES / f"{key}.yaml", text.encode())
            if table:
                write_file(path / TABLE, table.encode())
            head = {k: v for k, v in asdict(series).items() if k != "parts"}
            parts = [{k: v for k, v in asdict(p).items() if k != "study"} for p in series.parts]
            data = {"schema": _SCHEMA, "created": time.time(), **head, "parts": parts}
            write_file(path / SERIES, json_bytes(data))  # last: an existing series is complete
            sync_directory(parent)
        except OSError as e:
            raise failure(e, parent, kept="nothing was measured yet") from e
        return cls(path=path)

    @classmethod
    def at(cls, path: Path) -> SeriesDirectory | None:
        """Return the series in a directory; None if it contains none."""
        return cls(path=path) if UntrustedDirectory(path).exists(SERIES) else None

    @property
    def table_file(self) -> Path:
        """The path of the user's file with published numbers; the file may be missing."""
        return self.path / TABLE

    @property
    def table(self) -> str:
        """The text of the user's file with published numbers; '' if there is none.

        Raises RecordsError if it cannot be read or is not UTF-8.
        """
        return text_in(self.files, TABLE) if self.files.exists(TABLE) else ""

    @property
    def created(self) -> float:
        """Time of creation in Unix seconds.

        Raises RecordsError if the file of the series cannot be read or is corrupt.
        """
        file = self.path / SERIES
        with corrupt_at(file):
            return unix_time(json_object(self.files, SERIES)["created"])

    def series(self, load: Callable[[str, str], Study]) -> Series:
        """Return the series as it was stored by create().

        load: returns the study of a text; the second argument is the path of its file for messages.

        Raises RecordsError if the file is corrupt or its schema is unknown.
        """
        file = self.path / SERIES
        data = json_object(self.files, SERIES)
        require_schema(data, "series", _SCHEMA, file)
        with corrupt_at(file):
            return Series(
                name=str(data["name"]),
                title=str(data["title"]),
                scale=None if data["scale"] is None else Scale(data["scale"]),
                paper=str(data["paper"]),
                seed=int(data["seed"]),
                max_time=float(data["max_time"]),
                parts=tuple(
                    Part(
                        key=str(p["key"]),
                        title=str(p["title"]),
                        share=float(p["share"]),
                        study=None if p["absent"] else self._study(str(p["key"]), load),
                        places={str(k): str(v) for k, v in p["places"].items()},
                        sizes_from=str(p.get("sizes_from", "")),
                        absent=str(p["absent"]),
                        notes=tuple(map(str, p["notes"])),
                        figures=_figures(p),
                        left_out=tuple(Omission(**o) for o in p.get("left_out", ())),
                    )
                    for p in data["parts"]
                ),
                notes=tuple(map(str, data["notes"])),
            )

    def _study(self, key: str, load: Callable[[str, str], Study]) -> Study:
        if "/" in key:  # the user is shown the studies in this directory only, before they are executed
            raise ValueError(f"{key!r} is no key of a part")
        name = f"{STUDIES}/{key}.yaml"
        return load(text_in(self.files, name), str(self.path / name))

    def part(self, part: Part) -> ResultsDirectory | None:
        """Return the newest results directory of a part; None if there is none. Directories without a plan
        are ignored."""
        if part.study is None:
            return None
        # The name of another study may go on with a hyphen and a digit, but not with a date.
        stamped = re.compile(re.escape(safe_name(part.study.name)) + r"-\d{4}-\d\d-\d\dT.*")
        found = [path for path in directories_with(PLAN, self.path) if stamped.fullmatch(path.name)]
        return ResultsDirectory.open(found[-1]) if found else None

    def ended(self, key: str, why: str) -> None:
        """Record why a part stopped, or could not run.

        Raises DiskFullError and RecordsError.
        """
        self._append(ENDS, key, why)

    def ends(self) -> dict[str, str]:
        """Return the last recorded reason why each part stopped, by key. A corrupt line is skipped."""
        return self._last(ENDS)

    def choose(self, key: str, what: str) -> None:
        """Record the problem sizes that were chosen for a part, as text, before the part begins.

        Raises DiskFullError and RecordsError.
        """
        self._append(SIZES, key, what)

    def choices(self) -> dict[str, str]:
        """Return the problem sizes that were chosen, as text, by key of the part."""
        return self._last(SIZES)

    def _append(self, name: str, key: str, why: str) -> None:
        line = json.dumps({"part": key, "why": why, "at": time.time()}, ensure_ascii=False) + "\n"
        try:
            with os.fdopen(self.files.open_to_append(name), "ab") as file:
                file.write(line.encode())
        except OSError as e:
            raise failure(e, self.path, kept="the records are whole") from e

    def _last(self, name: str) -> dict[str, str]:
        out: dict[str, str] = {}
        for line in read_bytes(self.files, name).splitlines() if self.files.exists(name) else ():
            try:
                entry = parse_json(line)
                out[str(entry["part"])] = str(entry["why"])
            except (ValueError, KeyError, TypeError):
                continue
        return out


def _figures(part: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Return the charts of a part. Older versions stored none; the chart then follows from the places."""
    if "figures" in part:
        return tuple(map(Figure, part["figures"]))
    packed = any(word.endswith(PER_NODE) for word in part["places"])
    return (Figure.PACKING if packed else Figure.OVERHEADS,)
