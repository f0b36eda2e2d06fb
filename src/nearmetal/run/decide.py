"""Decide what runs next, from the study, the decided comparisons and the verifications so far. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model.plan import NextBlock, Work
from ..model.record import TrialRecord
from ..model.study import Arm, Study
from ..plan import VERIFIED_EVERY, make_block


class Verifications:
    """Which kernels of which arms have been verified since they last ran."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, bool, str], bool | None] = {}

    def saw(self, records: Iterable[TrialRecord]) -> None:
        """Record the trials of one whole block. Blocks must be given in their order."""
        for record in records:
            for row in record.rows:
                key = (record.arm, record.aa, row.workload)
                if row.verification:
                    self._last[key] = row.verification.get("ok") is True
                elif self._last.get(key) is not False:  # a failed verification has to be repeated
                    self._last[key] = None

    def covered(self, arm: str, workload: str) -> bool:
        """Return whether a verification that passed followed all measurements that the arm made of a
        kernel."""
        return all(ok is True for ok in self._of(arm, workload))

    def failed(self, arm: str, workload: str) -> bool:
        """Return whether the last verification failed."""
        return any(ok is False for ok in self._of(arm, workload))

    def _of(self, arm: str, workload: str) -> list[bool | None]:
        return [ok for (a, _, w), ok in self._last.items() if (a, w) == (arm, workload)]


def next_block(
    study: Study,
    number: int,
    attempt: int,
    *,
    slices: Mapping[str, int],
    work: Work,
    settled: Mapping[str, frozenset[str]],
    verifications: Verifications,
    verify_all: bool,
) -> NextBlock:
    """Return block `number`.

    Kernel k is verified in it if (number + k) mod 8 = 0, if its last verification failed, or if it is settled
    and has not been verified since it last ran; from the next block on it is then left out. A study with a
    profile verifies every kernel in every block, because a profile describes the full run.
    settled: the workloads whose comparisons are decided, by arm.
    verify_all: verify every kernel, as in the rehearsal and in the first block after a resume.
    Raises ValueError if nothing is left to run.
    """
    left_out = {arm.name: _left_out(study, arm, settled, verifications) for arm in study.arms()}
    verified = {
        arm.name: frozenset(
            w.name
            for k, w in enumerate(study.kernels)
            if verify_all
            or study.design.profile
            or (number + k) % VERIFIED_EVERY == 0
            or w.name in settled.get(arm.name, ())
            or verifications.failed(arm.name, w.name)
        )
        for arm in study.arms()
    }
    gone = [arm.name for arm in study.arms() if left_out[arm.name] >= _workloads(study, arm)]
    return NextBlock(
        block=make_block(study, number, without=gone),
        attempt=attempt,
        slices=slices,
        work=work,
        left_out={name: out for name, out in left_out.items() if out},
        verified=verified,
    )


def _left_out(
    study: Study, arm: Arm, settled: Mapping[str, frozenset[str]], verifications: Verifications
) -> frozenset[str]:
    kernels = {w.name for w in study.kernels}
    return frozenset(
        name
        for name in settled.get(arm.name, frozenset()) & _workloads(study, arm)
        if name not in kernels or verifications.covered(arm.name, name)
    )


def _workloads(study: Study, arm: Arm) -> frozenset[str]:
    return frozenset(w.name for w in study.workloads if arm.environment.takes(w.name))
