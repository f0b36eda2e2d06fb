"""Backend handicap: native with a known slow-down, to test the whole method on this machine.

The slow-down is a CPU quota set here, or extra work that the workload itself adds (Environment.extra_work).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from ..host import Host, MissingValue, cgroups
from ..model.capabilities import BARE_ATTACHMENTS, Capabilities
from ..model.study import Attachment
from .contract import Available, InstanceRequest, Tools, Unavailable
from .instance import BoxInstance, control_groups
from .native import ACCOUNTS, start_native
from .probe import probe

PERIOD_US = 5000
"""A short period, so that a slice of a few milliseconds gets its share of the quota rather than all or
nothing."""


class Handicap:
    """Native, slowed down by limits.cpu_quota or by extra_work. With neither, it is a second native
    environment, whose measured overhead must be zero."""

    name = "handicap"
    capabilities = Capabilities(own=frozenset(), attachments=BARE_ATTACHMENTS, plants_work=True)

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        parents = cgroups.machine_parents()
        if isinstance(parents, MissingValue):
            notes: tuple[str, ...] = (f"extra_work only, no cpu_quota: {parents.reason}",)
        elif "cpu" not in parents.controllers:
            notes = ("extra_work only, no cpu_quota: no cpu controller",)
        else:
            notes = ()
        return probe(self, host, tools, Attachment.HOST, notes=notes, extra_work=0.01)

    def start(
        self, host: Host, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[BoxInstance]:
        return start_native(host, tools, request, period_us=PERIOD_US)

    def accounts(self, request: InstanceRequest) -> AbstractContextManager[Mapping[str, Path]]:
        return control_groups(request, ACCOUNTS, period_us=PERIOD_US)
