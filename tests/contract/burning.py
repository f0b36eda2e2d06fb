"""Instances that burn a CPU under limits. Without pytest: the nested test brings it into a machine whose
control groups are of version 2."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

from nearmetal.environments import Instance, InstanceRequest, Tools
from nearmetal.environments.containers.namespaces import Namespaces
from nearmetal.host import LocalHost, Process
from nearmetal.host.counters.trial import delta, snapshot
from nearmetal.model.study import Attachment, Environment, Limits

HOST = LocalHost()
SECONDS = 1.0


class Burning:
    """Instances that each burn one and the same CPU, by limits."""

    def __init__(self, tools: Tools, directory: Path, stack: ExitStack) -> None:
        self._tools, self._directory, self._stack = tools, directory, stack
        self.instances: list[Instance] = []

    def start(self, limits: Limits) -> Instance:
        number = len(self.instances)
        scratch = self._directory / f"scratch-{number}"
        scratch.mkdir()
        request = InstanceRequest(
            label=f"nearmetal-test{os.getpid()}-{number}",
            hostname=f"nm{number}",
            environment=Environment(
                name="limited",
                backend="namespaces",
                attachment=Attachment.NONE,
                limits=limits,
                placements=(),
            ),
            cpus=HOST.cpus()[-1:],
            seat=None,
            binds=(),
            scratch=scratch,
        )
        # Not by its entry point: the sources are carried elsewhere without being installed.
        instance = self._stack.enter_context(Namespaces().start(HOST, self._tools, request))
        self.instances.append(instance)
        return instance

    def shares(self) -> list[float]:
        """The CPU time of each as a share of one CPU, while all burn."""
        burning: list[Process] = []
        try:
            for number, instance in enumerate(self.instances):
                said = self._directory / f"said-{number}"
                argv = instance.command(["sh", "-c", "while :; do :; done"])
                burning.append(HOST.start(argv, stdout=said, stderr=said))
            time.sleep(0.2)
            begin = time.monotonic()
            before = [snapshot(HOST, i.cgroups) for i in self.instances]
            time.sleep(SECONDS)
            after = [snapshot(HOST, i.cgroups) for i in self.instances]
            slept = time.monotonic() - begin
        finally:
            for process in burning:
                process.kill()
        used = [delta(b, a, slept)["cpu"] for b, a in zip(before, after, strict=True)]
        return [(seconds or 0.0) / slept for seconds in used]
