"""One checkpoint and restore of an instance, as the subject makes it, with a fault at a chosen moment. As a
program, it is the tool that is killed: BACKEND METHOD LABEL DIRECTORY PHASE CRIU, the last as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.docker_daemon import offer_criu

from nearmetal.environments import Checkpoints, Criu, InstanceRequest, Tools, Unavailable
from nearmetal.environments.leftovers import find_all, remove_any
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.host import LocalHost
from nearmetal.host.processes import labelled as processes
from nearmetal.host.runtime import cache_directory, scratch_directory
from nearmetal.images import builtin_definition
from nearmetal.images.build import build
from nearmetal.lifecycle import Method, Phase
from nearmetal.model.study import Attachment, Environment
from nearmetal.node.criu import IMAGE, find_criu
from nearmetal.node.machine import image_store
from nearmetal.subjects.events.checkpoint_event import CheckpointEvent
from nearmetal.subjects.events.pace import ignore
from nearmetal.workloads.build import build_tools

HOST = LocalHost()
MEMORY = 4 << 20
METHODS = (Method.CRIU, Method.CRIU_PAGESERVER, Method.CRIU_LAZY, Method.CRIU_PRECOPY)


def checkpointing_backends() -> dict[str, tuple[Method, ...]]:
    """The backends that offer checkpoints, with their methods."""
    backends = {name: get_backend(name) for name in backend_names()}
    return {name: b.checkpoints_by for name, b in backends.items() if isinstance(b, Checkpoints)}


def require_checkpoints(name: str) -> None:
    """Skip the test if the instances of a backend cannot be checkpointed here."""
    backend = get_backend(name)
    assert isinstance(backend, Checkpoints)
    alone = Attachment.NONE if "net" in backend.capabilities.own else Attachment.HOST
    refused = backend.refuses_checkpoint(HOST, Environment(name=name, backend=name, attachment=alone))
    if refused is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{refused.reason}; {refused.remedy}")


def find_or_build_criu() -> Criu | Unavailable:
    """The CRIU that is installed, or that of the image, which is built once on a machine, as a user would."""
    found = find_criu(HOST)
    if isinstance(found, Unavailable) and HOST.is_root():
        definition = builtin_definition(IMAGE)
        assert definition is not None
        build(HOST, image_store(), definition, progress=lambda _: None)
        found = find_criu(HOST)
    return found


@dataclass(frozen=True, kw_only=True)
class Case:
    """A backend and a method with what an event takes.

    directory: of the trial; root: directory for images, which a kill of the tool leaves.
    """

    name: str
    method: Method
    criu: Criu
    label: str
    directory: Path
    root: Path

    @property
    def record(self) -> Path:
        return self.directory / "shared" / "record"

    @property
    def here(self) -> Path:
        return self.root / "here"

    @property
    def there(self) -> Path:
        return self.root / "there"

    def make(self) -> None:
        for path in (self.directory / "scratch", self.directory / "shared", self.root / "layers"):
            path.mkdir(exist_ok=True)
        for path in (self.here, self.there):
            path.mkdir(exist_ok=True)

    def event(self, notify: Callable[[Phase], None] = ignore) -> CheckpointEvent:
        backend = get_backend(self.name)
        offer_criu(self.criu)
        own = "net" in backend.capabilities.own
        environment = Environment(
            name="tested",
            backend=self.name,
            attachment=Attachment.NONE if own else Attachment.HOST,
            placements=(),
        )
        tools = Tools(directory=build_tools(HOST, cache_directory(), progress=None).directory)
        request = InstanceRequest(
            label=self.label,
            hostname="nmc",
            environment=environment,
            cpus=HOST.cpus()[-1:],
            seat=None,
            binds=(self.directory / "shared",),
            scratch=self.directory / "scratch",
        )
        return CheckpointEvent(
            host=HOST,
            tools=tools,
            criu=self.criu,
            backend=backend,
            request=request,
            method=self.method,
            memory=MEMORY,
            images=self.here,
            there=self.there,
            layers=self.root / "layers",
            record=self.record,
            log=self.directory / "log",
            notify=notify,
        )

    def processes(self) -> dict[int, str]:
        """The processes of the case, those of CRIU included."""
        return processes.labelled(lambda label: label.startswith(self.label))

    def clean(self) -> None:
        """What `nearmetal clean` does, for this label alone."""
        for item in find_all(HOST, self.label):
            remove_any(HOST, item)


def killed_at(phase: str) -> Callable[[Phase], None]:
    def notify(now: Phase) -> None:
        if now.value == phase:
            os.kill(os.getpid(), signal.SIGKILL)

    return notify


def main(name: str, method: str, label: str, directory: str, phase: str, argv: str) -> None:
    (Path(directory) / "tool").write_text(str(os.getpid()))
    criu = Criu(argv=tuple(json.loads(argv)), version="")
    with scratch_directory(f"{label}-images") as root:
        case = Case(
            name=name, method=Method(method), criu=criu, label=label, directory=Path(directory), root=root
        )
        case.make()
        case.event(killed_at(phase)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
