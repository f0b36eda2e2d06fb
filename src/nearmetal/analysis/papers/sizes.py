"""Chooses the classes of kernels and the links of emulated nodes with which the baseline computes for a
similar share of its time as in a paper. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...model.change import replace
from ...model.papers.published import Published
from ...model.study import Arm, KernelWorkload, Placement, Study
from .claims import NEAR, share_words

Shares = Mapping[tuple[str, str], float]
"""computation / (computation + communication), by (arm, workload)."""
Printed = Mapping[str, tuple[float, float]]
"""The range of these shares in a paper, by kernel."""

_FARTHEST = 1.0
"""Distance of a kernel whose share is unknown, because it failed or was not measured. No distance between
shares is larger."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The classes of kernels and the links of emulated nodes that were chosen.

    arm: the arm that was measured with the chosen links.
    chosen: the workload with the chosen class, by kernel.
    shares: share of computation of the chosen workload, as a fraction, by kernel.
    """

    arm: Arm
    chosen: Mapping[str, KernelWorkload]
    shares: Mapping[str, float]

    def words(self, printed: Printed) -> str:
        """Return the chosen classes and links as a sentence, beside what the paper printed.

        printed: must contain every chosen kernel.
        """
        each = [self._kernel(kernel, printed[kernel]) for kernel in self.chosen]
        place = self.arm.placement
        where = f", and links of {link_words(place)}" if place.node.emulated else ""
        return (
            "Chosen by the share of its time for which the baseline alone computes, before anything else was "
            f"measured: {'; '.join(each)}{where}."
        )

    def _kernel(self, kernel: str, there: tuple[float, float]) -> str:
        own, w = self.shares[kernel], self.chosen[kernel]
        near = "" if distance(own, there) <= NEAR else ", not near"
        size = f" class {w.params['class']}" if "class" in w.params else ""
        return f"{kernel}{size} ({100 * own:.3g} %, in the paper {share_words(*there)}{near})"


def printed_shares(paper: Published | None, part: str) -> dict[str, tuple[float, float]]:
    """Return the shares of computation under which a paper makes its claims on a part, by kernel."""
    claims = () if paper is None else paper.claims
    return {k: v for c in claims if c.part == part for k, v in c.conditions.computation.items()}


def wanted_shares(study: Study, printed: Printed) -> dict[str, tuple[float, float]]:
    """Return the shares of the kernels that a study measures with exactly one workload.

    Several workloads of one kernel differ on purpose, so no class is chosen for them.
    """
    counted = Counter(w.kernel for w in study.kernels)
    return {kernel: there for kernel, there in printed.items() if counted[kernel] == 1}


def distance(share: float, there: tuple[float, float]) -> float:
    """Return by how much a share is outside a range; 0 within it."""
    return max(there[0] - share, share - there[1], 0.0)


def choose(study: Study, shares: Shares, printed: Printed) -> Sizes | None:
    """Return the class of each kernel, and the arm whose links are used, that agree best with a paper.

    On each arm, the class of a kernel is the one with the nearest share of computation. The arm is the one on
    which the shares of most kernels are near (NEAR) those in the paper; among several such arms, the one with
    the smallest sum of distances. Returns None if no kernel of the paper was measured.

    study: the study that measured the candidates: one environment on placements with different links, and
        workloads for several classes of each kernel.
    shares: measured shares.
    printed: shares in the paper.
    """
    found = [s for arm in study.arms() if (s := _on(arm, study.kernels, shares, printed)).chosen]
    return min(found, key=lambda s: _misfit(s, printed), default=None)


def _on(arm: Arm, kernels: Iterable[KernelWorkload], shares: Shares, printed: Printed) -> Sizes:
    chosen: dict[str, KernelWorkload] = {}
    best: dict[str, float] = {}
    for w in kernels:
        share, there = shares.get((arm.name, w.name)), printed.get(w.kernel)
        if share is None or there is None:
            continue
        if w.kernel not in best or distance(share, there) < distance(best[w.kernel], there):
            chosen[w.kernel], best[w.kernel] = w, share
    return Sizes(arm=arm, chosen=chosen, shares=best)


def _misfit(sizes: Sizes, printed: Printed) -> tuple[int, float]:
    apart = [
        distance(sizes.shares[kernel], there) if kernel in sizes.shares else _FARTHEST
        for kernel, there in printed.items()
    ]
    return -sum(d <= NEAR for d in apart), sum(apart)


def with_sizes(study: Study, sizes: Sizes) -> Study:
    """Return a study with the chosen classes, and with the chosen links between its emulated nodes. The
    workloads keep their own pages and metrics."""
    sized = {
        w.name: replace(w, params=sizes.chosen[w.kernel].params)
        for w in study.kernels
        if w.kernel in sizes.chosen
    }
    workloads = tuple(sized.get(w.name, w) for w in study.workloads)
    link = sizes.arm.placement.link
    linked = sizes.arm.placement.node.emulated
    placements = tuple(replace(p, link=link) if linked and p.node.emulated else p for p in study.placements)
    return replace(study, workloads=workloads, placements=placements)


def link_words(place: Placement) -> str:
    """Return the settings of the links between emulated nodes: '10 Gbit/s and 0 us'."""
    return f"{8e-9 * place.link.rate:.3g} Gbit/s and {1e6 * place.link.delay:.3g} us"
