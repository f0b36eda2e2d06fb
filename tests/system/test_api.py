"""nearmetal as a library: measured, resumed and loaded from Python, without a word on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patience import one_fits

from nearmetal import api
from nearmetal.api.cleaning import find_leftovers
from nearmetal.api.kernels import run_kernel
from nearmetal.errors import RecordsError, UsageError
from nearmetal.model.result import Verdict

pytestmark = pytest.mark.more


def test_a_run_is_measured_resumed_and_loaded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "small.yaml"
    study.write_text(
        "name: small\n"
        "environments: {native: {backend: native}, box: {backend: namespaces}}\n"
        "placements: {one: {instances: 1, tasks: 1}}\n"
        "workloads: {ep: {kernel: ep, class: S}}\n"
        "design: {baseline: native, slices: 2}\n"
    )
    first = api.run(study, max_blocks=2, seed=4, results=tmp_path / "results")
    assert first.directory.parent == tmp_path / "results" and not first.interrupted and first.stopped
    assert [(c.arm, c.workload, c.metric, c.n) for c in first.cells] == [("box/one", "ep", "rate", 2)]
    assert (first.directory / "report.html").exists() and len(first.trials) == 6
    second = api.resume(first.directory, max_blocks=3)
    assert second.analysis.blocks == 3 and second.directory == first.directory
    again = api.load(first.directory)
    assert again.analysis == second.analysis and again.study.design.seed == 4
    assert capfd.readouterr() == ("", "")


def test_environments_are_weighed(tmp_path: Path) -> None:
    times = iter((8, 60, 600))  # a busy machine may end no round in the first

    def weighed() -> api.Results:
        return api.weigh("native", "namespaces", command=["true"], time=next(times), results=tmp_path)

    found = one_fits(weighed, lambda results: bool(results.cells), attempts=3)
    assert {c.arm.partition("/")[0] for c in found.cells} == {"namespaces"}
    assert all(isinstance(c.verdict, Verdict) for c in found.cells)


def test_mistakes_are_errors_with_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="named twice"):
        api.weigh("native", "native", workloads=["ep"])
    with pytest.raises(UsageError, match="no study file nosuch"):
        api.run("nosuch")
    with pytest.raises(RecordsError, match="not a results directory"):
        api.load(tmp_path)


def test_a_kernel_runs_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    found = run_kernel("ep", {"class": "S"}, ranks=1)
    assert found.verified and found.ranks == 1 and found.parameters == {"class": "S"}
    assert find_leftovers().found == ()
    assert capfd.readouterr() == ("", "")


def test_the_machine_is_checked() -> None:
    found = {c.what.split()[0]: c for c in api.check()}
    assert found["kernels"].state == "works" and found["native"].state == "works"
    assert all(c.why for c in found.values() if c.state == "not here")
