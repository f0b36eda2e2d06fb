"""Backend hive, as another package has it: virtual machines with keys of their own, which cannot run here."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from nearmetal.environments import (
    GUEST_ATTACHMENTS,
    KERNEL,
    OWN_ALL,
    Available,
    Capabilities,
    Instance,
    InstanceRequest,
    Tools,
    Unavailable,
)
from nearmetal.errors import UnavailableError
from nearmetal.host import Host
from nearmetal.model.capabilities import KeyPath, Misfits
from nearmetal.model.environments.environment import BackendSettings
from nearmetal.model.keys import SIZE, SOME_TEXT, key
from nearmetal.model.study import Attachment, Environment

REASON, REMEDY = "this machine has no hive", "apt-get install hive"


@dataclass(frozen=True, kw_only=True)
class HiveSettings(BackendSettings):
    """Settings of a guest of the hive: what boots it, and the bytes of its buffer."""

    section = "hive"
    title = "the hive"
    doc = "of a guest of the hive"
    example = {"loader": "uefi"}  # noqa: RUF012  a ClassVar of the base

    loader: str = field(default="bios", metadata=key(SOME_TEXT, "what boots it", "uefi"))
    buffer: int | None = field(default=None, metadata=key(SIZE, "of its disk", "1 MiB"))


def misfits(environment: Environment, _given: Collection[KeyPath]) -> Misfits:
    """Yield what else does not fit."""
    if environment.limits.cpu_quota is not None:
        yield ("limits", "cpu"), "the hive gives whole CPUs"


class Hive:
    """Starts nothing: it is what such a package says about itself that is read."""

    name = "hive"
    capabilities = Capabilities(
        own=OWN_ALL | {KERNEL},
        attachments=GUEST_ATTACHMENTS - {Attachment.USER},
        settings=HiveSettings,
        not_attached={Attachment.USER: "the hive has no network of users; write attachment: none"},
        not_of_guest={"numa": "the hive has no NUMA nodes"},
        misfits=misfits,
        steps={"wax": "wax, until it is soft"},
        title="Hive",
    )

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        return Unavailable(reason=REASON, remedy=REMEDY)

    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> AbstractContextManager[Instance]:
        return _start(request)


@contextmanager
def _start(request: InstanceRequest) -> Iterator[Instance]:
    raise UnavailableError(f"environment {request.environment.name}: {REASON}", remedy=REMEDY)
    yield
