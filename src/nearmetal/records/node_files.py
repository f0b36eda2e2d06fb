"""The machines on which the workers of a run measure, each described in a file of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import RecordsError
from ..host.untrusted import UntrustedDirectory
from ..model.record import JsonValue, TrialRecord
from .codec import to_line
from .disk import failure
from .json_files import json_bytes, json_object, names_in, safe_name

NODES = "nodes"
"""Name of the directory of these files in a results directory."""
LEFT_OUT = "left_out"
"""Key of the reason in the description of a node that cannot take part in the run."""


class NodeFiles:
    """The descriptions of the nodes of one results directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = UntrustedDirectory(directory)
        self.place = self._directory.below(NODES)

    def write(
        self,
        run: str,
        provenance: Mapping[str, Any],
        *,
        node: str = "",
        rehearsal: Iterable[TrialRecord] = (),
    ) -> None:
        """Write the description of this machine, on which a worker runs blocks. An earlier description by the
        same worker is replaced.

        run: label of the worker, as in its records.
        provenance: as in provenance.json, or {LEFT_OUT: reason} if the worker cannot take part.
        node: name of the node, stored under 'node'; '' for the host name of this machine.
        rehearsal: records of the rehearsal on this machine, stored in nodes/<run>.jsonl. No analysis uses
            them.

        Raises DiskFullError and RecordsError.
        """
        lines = b"".join(map(to_line, rehearsal))
        try:
            self.place.path_to("").mkdir(exist_ok=True)
            if lines:
                self.place.replace_file(f"{safe_name(run)}.jsonl", lines)
            self.place.replace_file(
                f"{safe_name(run)}.json",
                json_bytes({"run": run, "node": node or os.uname().nodename, **provenance}),
            )
        except OSError as e:
            raise failure(e, self._directory.path, kept="the records are whole") from e

    def read(self) -> dict[str, dict[str, JsonValue]]:
        """Return all descriptions, by label of the worker. The name of the node is under 'node'. The
        description of a worker that cannot take part has the reason under LEFT_OUT.

        Raises RecordsError.
        """
        found = {}
        for name in names_in(self.place, ".json"):
            data = json_object(self.place, name)
            if "run" not in data:
                raise RecordsError(
                    "corrupt: no worker is named",
                    where=str(self.place.path_to(name)),
                    remedy="take it from a copy",
                )
            found[str(data.pop("run"))] = data
        return found
