"""Runs xl on a dom0, which is this machine or another one. Every call has a time limit, and errors contain
the message of xl."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import RunError
from ...host import Host
from ...host.processes.failure import MOST_SHOWN
from ...host.ssh import LOST
from ..contract import Unavailable
from . import output
from .settings import XenScheduler

CALL_SECONDS = 60.0
"""Time limit of a call of xl, in seconds. xl answers at once if the guests leave dom0 enough CPU time."""
CREATE_SECONDS = 90.0
"""Time limit of `xl create`, in seconds. The limit of xl itself is 40 s for each device of a guest."""
GONE_SECONDS = 60.0
INCOMING, AWAY = "--incoming", "--migratedaway"
"""Ends of the names that xl gives a domain while it moves it, at its destination and at its source."""
_LOOK_AGAIN = 0.1
_NOISE = ("Parsing config", "Saving to", "xc: progress", "Loading new save file", " Savefile contains")


@dataclass(frozen=True, kw_only=True)
class XenFacts:
    """Properties of the hypervisor.

    version: such as '4.17.3'.
    cpus: number of CPUs of the machine.
    scheduler: None if it is none of XenScheduler.
    capabilities: see output.capabilities().
    free_memory: memory that no domain has, in bytes; None if not reported.
    virtual: whether its processor reports that it is virtual.
    """

    version: str
    cpus: int
    scheduler: XenScheduler | None
    capabilities: frozenset[str]
    free_memory: int | None
    virtual: bool


class Xl:
    """The commands xl and xentop on one dom0."""

    def __init__(self, dom0: Host) -> None:
        self.dom0 = dom0

    def facts(self) -> XenFacts | Unavailable:
        """Return the properties of the hypervisor from `xl info`, or why there is none."""
        if self.dom0.which("xl") is None:
            return Unavailable(
                reason=f"no xl on {self.dom0.name}: it is not a dom0 of Xen",
                remedy="apt-get install xen-system-amd64 and boot into it, or name another: xen: {dom0: …}",
            )
        done = self.dom0.run(["xl", "info"], timeout=CALL_SECONDS)
        if done.returncode == LOST:
            return Unavailable(
                reason=f"{self.dom0.name} does not answer: {done.failure()}",
                remedy=f"look whether ssh {self.dom0.name} works",
            )
        version = output.version(done.stdout)
        if (not done.ok or not version) and not self.dom0.is_root():
            return Unavailable(reason=f"xl needs root on {self.dom0.name}", remedy="run as root")
        if not done.ok or not version:
            return Unavailable(
                reason=f"xl reaches no hypervisor on {self.dom0.name}: {done.failure(find_xl_message)}",
                remedy="boot this machine under Xen (the boot menu has an entry), and start xencommons",
            )
        return XenFacts(
            version=version,
            cpus=output.cpus(done.stdout),
            scheduler=output.scheduler(done.stdout),
            capabilities=output.capabilities(done.stdout),
            free_memory=output.free_memory(done.stdout),
            virtual=output.in_virtual_machine(done.stdout),
        )

    def create(self, config: str, timeout: float = CREATE_SECONDS) -> None:
        """Create a guest, which is paused, from a configuration file.

        config: path of the file on dom0.
        timeout: time limit in seconds.
        Raises RunError.
        """
        # -p: paused, so that it runs nothing before its console and its vCPUs are set up.
        self._do(["create", "-p", config], "the guest cannot be created", timeout=timeout)

    def unpause(self, name: str) -> None:
        self._do(["unpause", name], f"{name} cannot be unpaused")

    def domains(self) -> tuple[output.ListedDomain, ...]:
        """Return all domains.

        Raises RunError if xl does not answer: an empty result would mean that all guests have ended.
        """
        return output.domains(self._do(["list"], "the guests cannot be listed"))

    def find(self, name: str) -> output.ListedDomain | None:
        """Return the domain with this name; None if there is none.

        Raises RunError if xl does not answer.
        """
        return next((d for d in self.domains() if d.name == name), None)

    def destroy(self, name: str) -> None:
        """Destroy a guest, and wait until its domain no longer exists. Does nothing if there is no such
        domain.

        Raises RunError.
        """
        end = time.monotonic() + GONE_SECONDS
        while True:
            done = self.dom0.run(["xl", "destroy", name], timeout=GONE_SECONDS)
            try:
                if self.find(name) is None:
                    return
                why = done.failure(find_xl_message)
            except RunError as e:
                why = e.what
            if time.monotonic() > end:
                raise RunError(f"guest {name} cannot be destroyed: {why}", remedy="nearmetal clean")
            time.sleep(_LOOK_AGAIN)

    def pin(self, name: str, cpus: Sequence[int]) -> None:
        """Pin each vCPU of a guest to one CPU of the machine, and check the result.

        cpus: CPU of the machine for each vCPU, in order.
        Raises RunError.
        """
        for number, cpu in enumerate(cpus):
            self._do(
                ["vcpu-pin", name, str(number), str(cpu)], f"{name}: vCPU {number} is not pinned to CPU {cpu}"
            )
        found = {v.number: v.hard for v in self.virtual_cpus(name)}
        for number, cpu in enumerate(cpus):
            # xl prints 'all' if the machine has no other CPU.
            if cpu_set(found.get(number, "")) not in (frozenset((cpu,)), None):
                raise RunError(f"{name}: vCPU {number} was pinned to CPU {cpu}, the hypervisor has {found}")

    def virtual_cpus(self, name: str) -> tuple[output.VirtualCpu, ...]:
        return output.virtual_cpus(self._do(["vcpu-list", name], f"{name}: its vCPUs cannot be listed"))

    def set_share(
        self, scheduler: XenScheduler, name: str, *, weight: int | None, cap: int | None
    ) -> output.SchedulerShare:
        """Set weight and cap of a guest, and return the values that the hypervisor then reports.

        weight, cap: None leaves the value unchanged. The cap is in hundredths of one CPU.
        Raises RunError if they differ from the requested ones.
        """
        options = ["-w", str(weight)] if weight is not None else []
        options += ["-c", str(cap)] if cap is not None else []
        if options:
            self._do([f"sched-{scheduler}", "-d", name, *options], f"{name}: weight and cap cannot be set")
        found = output.shares(
            self._do([f"sched-{scheduler}", "-d", name], f"{name}: weight and cap cannot be read")
        )
        share = next((s for s in found if s.domain == name), None)
        if share is None or weight not in (None, share.weight) or cap not in (None, share.cap):
            raise RunError(
                f"{name}: weight {weight} and cap {cap} were requested, the hypervisor has {share}"
            )
        return share

    def counters(self) -> dict[str, dict[str, float]]:
        """Return the counters of all domains; see output.counters(). Empty if xentop does not answer."""
        # One table contains all counters; a second one would only add rates.
        done = self.dom0.run(["xentop", "-b", "-f", "-i", "1"], timeout=CALL_SECONDS, env={"TERM": "dumb"})
        return output.counters(done.stdout) if done.ok else {}

    def _do(self, words: Sequence[str], failed: str, *, timeout: float = CALL_SECONDS) -> str:
        done = self.dom0.run(["xl", *words], timeout=timeout)
        return done.require(failed, find=find_xl_message).stdout


def cpu_set(text: str) -> frozenset[int] | None:
    """Parse a set of CPUs, such as '0-1,3', as xl prints it; None for 'all'.

    Raises RunError for any other text.
    """
    if text == "all":
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if match is None:
            raise RunError(f"xl reports an affinity that cannot be read: {text[:60]}")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def find_xl_message(output: str) -> str:
    """Return the first error in the output of xl or, if it has none, the first line. Later errors are
    consequences of the first."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_NOISE)]
    errors = [line for line in lines if "error" in line.casefold() or line.startswith("xl:")]
    return (errors or lines or [""])[0].removeprefix("libxl: error: ")[:MOST_SHOWN]
