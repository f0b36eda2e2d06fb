"""Variants of a study that the command line asks for."""

from __future__ import annotations

from dataclasses import replace

from ..model.study import KernelWorkload, Pages, Study


def with_pages(study: Study, pages: Pages) -> Study:
    """Set this page size for all kernels. Of workloads that become equal, only the first is kept."""
    if pages is Pages.HUGE:
        return study
    seen: list[tuple[str, tuple[tuple[str, str | int | float], ...]]] = []
    kept = []
    for w in study.workloads:
        if isinstance(w, KernelWorkload):
            what = (w.kernel, tuple(sorted(w.params.items())))
            if what in seen:
                continue
            seen.append(what)
            w = replace(w, pages=pages)
        kept.append(w)
    return replace(study, workloads=tuple(kept))
