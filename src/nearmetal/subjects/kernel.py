"""Kernels: one MPI launch per arm runs all kernels. Its ranks wait for tokens, so that one arm at a time runs
a slice, in random order."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..environments import RemoteInstance
from ..launchers import verify_places
from ..meters.groups import MeteredArm, timed_slices
from ..model.design import REHEARSED_SLICES
from ..model.record import slice_phase, verify_phase
from ..model.study import Arm, Design, KernelWorkload, Transport
from ..node.arms.running_arm import RunningArm, RunningGuard
from ..node.guests import carry_fifos, into_guests, out_of_guests, trouble
from ..node.trial import Trial
from ..workloads.kernels.registry import argument, kernel, slice_work
from ..workloads.kernels.registry import rows as kernel_rows
from ..workloads.protocol import SliceLine, VerifyLine
from .contract import Cost, Subject, slowness
from .launches.job import READY_LIMIT, RankJob
from .launches.mpi_job import interface_of, mpi_launch
from .launches.profiles import read_profiles
from .launches.rank_argv import event_argv
from .rounds import rounds, sound

#: Seconds on a machine of the early 2020s: an MPI launch, and a slice by transport.
LAUNCH = 0.12
SLICE = {Transport.SHM: 0.0015, Transport.TCP: 0.0025}
SLICE_OVER_LINKS, MESSAGES_OVER_LINKS, USUAL_RATE = 0.04, 0.05, 125e6
"""Estimates for emulated nodes: seconds of a slice whose work the study sets; seconds that are added to every
verified run; rate of links, in B/s, at which and below which a verified run takes twice as long."""
TIME_OUT = 0.2
"""Linux's minimum TCP retransmission timeout in seconds, for studies that set no other."""


class KernelJob:
    """The ranks of one arm, which wait for tokens.

    guard: context manager that turns an error into a failure of the trial, and then ends the ranks.
    """

    def __init__(
        self, metered: MeteredArm, kernels: Sequence[KernelWorkload], job: RankJob, profiles: Path | None
    ) -> None:
        """Create the job of one arm.

        kernels: the workloads that the ranks run; a kernel's index is its number in the job.
        profiles: directory into which the ranks write their profiles; None if the study does not request any.
        """
        self.metered, self.job = metered, job
        self._kernels, self._profiles = tuple(kernels), profiles
        self.guard = _JobGuard(self)

    @property
    def trial(self) -> Trial:
        return self.metered.running.trial

    @property
    def ranks(self) -> int:
        return self.trial.arm.placement.ranks

    def await_ready(self, limit: float, begin: float) -> None:
        """Wait until all ranks are waiting for tokens. Record and check their CPUs and their transport.

        limit: time limit in seconds.
        begin: start of the launch, in seconds of CLOCK_MONOTONIC.

        Raises TrialFailedError if the ranks are not ready in time, or not placed as the study requests.
        """
        arm, found = self.metered.running, self.trial.found
        ready = self.job.ready(limit)
        found.phases |= {
            "ready": time.monotonic() - begin,
            "mpi_init": ready.init_seconds,
            "prepare": ready.prepare_seconds,
        }
        found.transport["library"] = ready.mpi
        # madvise does not guarantee huge pages, so the ranks report what they got, in kB.
        found.pages |= {
            self._kernels[p.kernel].name: {
                "huge": None if p.huge_kb is None else p.huge_kb * 1024.0,
                "total": p.total_kb * 1024.0,
            }
            for p in ready.pages
        }
        found.places = ready.places
        verify_places(found.places, arm.placement, arm.trial.cpus_of(), arm.hostnames)
        self.metered.transport.launched = True
        self.metered.transport.look(connected=True)

    def slice(self, workload: KernelWorkload, units: int) -> SliceLine:
        """Run one slice.

        units: amount of work, in units of the kernel.
        Raises TrialFailedError if the ranks end or do not answer in time.
        """
        return self.job.slice(self._kernels.index(workload), units)

    def verify(self, workload: KernelWorkload) -> VerifyLine:
        """Run a kernel in full, with its verification.

        Raises TrialFailedError if the ranks end or do not answer in time.
        """
        return self.job.verify(self._kernels.index(workload))

    def end(self) -> None:
        """Wait until the ranks have ended, and read their profiles.

        Raises TrialFailedError if they fail or do not end in time, or if a profile is missing.
        """
        arm = self.metered.running
        self.job.ended()
        further = [] if self._profiles is None else [self._profiles]
        out_of_guests(arm.guests, arm.trial.directory, arm.placement.tasks, further)
        if self._profiles is not None:
            ranks = read_profiles(self._profiles, self.ranks)
            profiles = {w.name: tuple(p.kernel(k) for p in ranks) for k, w in enumerate(self._kernels)}
            self.trial.found.profile |= profiles


class _JobGuard(RunningGuard):
    def __init__(self, job: KernelJob) -> None:
        super().__init__(job.metered.running)
        self._job = job

    def failed(self) -> None:
        super().failed()
        self._job.job.close()


class Kernels(Subject):
    """Measures all kernels of a study."""

    order = 3

    @classmethod
    def cost(cls, workloads: Sequence[KernelWorkload], arm: Arm, design: Design) -> Cost:
        slow = slowness(arm)
        return Cost(
            once=slow * LAUNCH,
            verification=slow * sum(_verification_seconds(w, arm) for w in workloads),
            slice=slow * sum(_slice_seconds(w, arm) for w in workloads),
        )

    def while_running(self, arms: Mapping[str, MeteredArm]) -> None:
        begin, limit = time.monotonic(), ready_limit(self.group.node.arms.values())
        with ExitStack() as stack:
            jobs: dict[str, KernelJob] = {}
            for trial in self._takers():
                with arms[trial.id].running.guard():
                    jobs[trial.id] = stack.enter_context(self._job(arms[trial.id]))
            for job in _sound(jobs):
                with job.guard:
                    job.await_ready(limit, begin)
            for workload in self.workloads:
                self._run_kernel(workload, jobs)
            for job in _sound(jobs):
                with job.guard:
                    if job.metered.network is not None:
                        job.metered.network.look()
                    job.metered.transport.worked()
                    job.job.quit()
            for job in _sound(jobs):
                with job.guard:
                    job.end()

    def _takers(self) -> list[Trial]:
        """Return the trials that have not failed and run at least one of the kernels."""
        return [t for t in sound(self.group.trials) if any(t.takes(w) for w in self.workloads)]

    @contextmanager
    def _job(self, metered: MeteredArm) -> Iterator[KernelJob]:
        """Launch nm-micro with all kernels of an arm, and yield the job. Its ranks are ended on exit."""
        arm, trial, node = metered.running, metered.running.trial, metered.running.node
        place, network = arm.placement, trial.network
        kernels = [w for w in self.workloads if trial.takes(w)]
        trial.log.mkdir(parents=True, exist_ok=True)
        specs = [
            argument(
                w,
                ranks=place.ranks,
                llc_bytes=node.machine.llc,
                turns=node.study.least_turns(),
                extra=arm.environment.extra_work,
            )
            for w in kernels
        ]
        program = [
            arm.software.tools / "nm-micro",
            *("--tokens", str(trial.directory)),
            *("--interface", interface_of(arm)),
            *event_argv(metered.events),
            *specs,
        ]
        launch = mpi_launch(metered, program, cpus=metered.running.trial.cpus_of(), measured=False)

        def gone() -> str:
            return (network.trouble() if network is not None else "") or trouble(arm.guests)

        with RankJob(trial.directory, place.ranks, trial.log, gone) as job:
            if arm.guests:
                into_guests(arm.machines, trial.directory)
                job.keep(carry_fifos(_fifos(arm, trial.directory)))
            job.launch(node.machine.host, launch.argv, launch.env)
            yield KernelJob(metered, kernels, job, launch.profiles)

    def _run_kernel(self, workload: KernelWorkload, every: Mapping[str, KernelJob]) -> None:
        """Measure one kernel on all arms, and add its rows to the trials.

        Each arm first verifies the kernel, or runs slices that are discarded. Then the arms run timed slices
        in random order, never two at the same time.
        every: the jobs by trial id.
        """
        group, name = self.group, workload.name
        work = group.order.work.get(name, {})
        wanted = group.order.slices.get(name, group.design.slices or REHEARSED_SLICES)
        trials = [t for t in group.trials if t.takes(workload)]
        jobs = {t.id: every[t.id] for t in trials if t.id in every}
        slices: dict[str, list[SliceLine]] = {t.id: [] for t in trials}
        turns: dict[str, float] = {t.id: 0.0 for t in trials}
        verified: dict[str, VerifyLine] = {}
        first = group.rng.sample(trials, len(trials))
        for t in sound(first):
            if group.order.verifies(t.spec.arm, name):
                with jobs[t.id].guard:
                    begin = time.monotonic()
                    verified[t.id] = jobs[t.id].verify(workload)
                    t.found.phases[verify_phase(name)] = time.monotonic() - begin
        if group.fit is not None:
            work = group.fit(workload, [jobs[t.id] for t in trials if t.id in jobs])
        for t in sound(first):
            # The first slice counted must not be cold: without a verification before it, at least one slice
            # is discarded, whatever the study requests.
            for _ in range(max(group.design.warm_up, t.id not in verified)):
                with jobs[t.id].guard:
                    jobs[t.id].slice(workload, work[t.arm.placement.ranks])
        with timed_slices([job.metered for job in jobs.values()], name):
            begin = time.monotonic()
            for t in rounds(trials, group.rng, wanted, after=first[-1] if first else None):
                job = jobs[t.id]
                with job.guard, job.metered.timed_slice(name):
                    line = job.slice(workload, work[t.arm.placement.ranks])
                    slices[t.id].append(line)
                    job.metered.inside.slice(name, line)
                turns[t.id] -= begin - (begin := time.monotonic())
        for t in trials:
            if wanted and len(slices[t.id]) == wanted:
                t.found.rows += kernel_rows(workload, slices[t.id], verified.get(t.id))
                t.found.phases[slice_phase(name)] = turns[t.id] / wanted


def _verification_seconds(workload: KernelWorkload, arm: Arm) -> float:
    """Return the estimated seconds of one full verified run on the placement of an arm, on bare metal."""
    seconds = kernel(workload.kernel).verification_seconds(workload.params.get("class"))
    if not arm.placement.node.emulated:
        return seconds
    return seconds * (1 + min(1.0, USUAL_RATE / arm.placement.link.rate)) + MESSAGES_OVER_LINKS


def _slice_seconds(workload: KernelWorkload, arm: Arm) -> float:
    """Return the estimated seconds of one slice on the placement of an arm, on bare metal, including one TCP
    retransmission timeout if a message exceeds the queue of an emulated link.
    """
    ranks, queue = arm.placement.ranks, arm.placement.link.queue
    if arm.placement.node.emulated and queue is not None and int(workload.params.get("bytes", 0)) > queue:
        return SLICE_OVER_LINKS + (arm.environment.network.rto_min or TIME_OUT)
    if arm.placement.node.emulated and slice_work(workload, ranks=ranks, llc_bytes=0).units is not None:
        return SLICE_OVER_LINKS
    return SLICE[arm.transport]


def ready_limit(arms: Iterable[Arm]) -> float:
    """Return the seconds within which ranks must become ready.

    The ranks of all arms start while guests of other arms are still booting, and may be slowed down by them.
    """
    guests = (arm.environment.guest for arm in arms)
    return max([READY_LIMIT, *(guest.boot_timeout for guest in guests if guest is not None)])


def _sound(jobs: Mapping[str, KernelJob]) -> list[KernelJob]:
    return [job for job in jobs.values() if job.trial.sound]


def _fifos(arm: RunningArm, directory: Path) -> Iterator[tuple[RemoteInstance, Path, bool]]:
    """Yield the FIFOs that connect a job with the guests of its ranks.

    Each is (guest or enclosing machine, path, whether data flows into it).
    """
    tasks = arm.placement.tasks
    for number, guest in enumerate(arm.guests):
        for rank in range(number * tasks, (number + 1) * tasks):
            yield guest, directory / f"token.{rank}", True
    for machine in arm.machines:
        yield machine, directory / "out", False
