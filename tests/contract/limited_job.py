"""Starts an instance in the groups of a batch job, and prints which limits its program has. It is run by
test_job_limits.py as a process of its own.

Arguments: the backend, the directory of the programs, an empty directory, the groups of the job.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from tests.contract.test_backends import Rig, in_instance

from nearmetal.environments import Tools
from nearmetal.environments.registry import get_backend
from nearmetal.host import LocalHost, cgroups


def main(backend: str, tools: str, directory: str, *groups: str) -> None:
    for group in groups:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    rig = Rig(
        backend=get_backend(backend),
        tools=Tools(directory=Path(tools)),
        directory=Path(directory),
        user_namespace=None,
    )
    with rig.instance() as instance:
        said = Path(directory) / "said"
        process = LocalHost().start(instance.command(["sleep", "600"]), stdout=said, stderr=said)
        try:
            found = cgroups.effective_limits(str(in_instance(instance, "sleep", 60)))
            escaped = cgroups.escaped_limits(instance.pid, instance.cgroups, alone=False)
        finally:
            process.kill()
    print(json.dumps({"program": asdict(found), "escaped": escaped.words}))


if __name__ == "__main__":
    main(*sys.argv[1:])
