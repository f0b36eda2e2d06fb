"""The method of a paper, applied to our data: known answers, and the table beside our verdicts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.unit import test_containers_2015 as containers
from tests.unit import test_two_vm_2009 as two_vm

from nearmetal.analysis.papers.method import answer_of
from nearmetal.errors import PaperFileError
from nearmetal.model.change import replace
from nearmetal.model.papers.published import MethodKind, PaperMethod
from nearmetal.model.study import Better
from nearmetal.published import paper_keys, published, read
from nearmetal.report.series import series_json, series_text
from nearmetal.report.series_page import write_series

LESS, MORE = Better.LOWER, Better.HIGHER
#: Student's sleep data, as R prints them: Welch's t = 1.8608 with 17.776 degrees of freedom.
FIRST = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SECOND = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)


def method(kind: MethodKind, confidence: float = 0.95) -> PaperMethod:
    return PaperMethod(kind=kind, source="section 3", confidence=confidence)


def test_the_t_test_has_the_answer_that_r_prints() -> None:
    found = answer_of(method(MethodKind.T_TEST), FIRST, SECOND, LESS)
    assert found.t == pytest.approx(1.8608, abs=5e-5) and found.freedom == pytest.approx(17.776, abs=5e-4)
    assert found.differs is False and found.text == "not significant (t = 1.86; 95 % needs 2.1)"
    weaker = answer_of(method(MethodKind.T_TEST, 0.9), FIRST, SECOND, LESS)
    assert weaker.differs and weaker.text.startswith("significant: slower (t = 1.86; 90 % needs 1.7")
    assert "faster" in answer_of(method(MethodKind.T_TEST, 0.9), FIRST, SECOND, MORE).text
    other = answer_of(method(MethodKind.T_TEST), SECOND, FIRST, LESS)
    assert other.t == pytest.approx(-1.8608, abs=5e-5)


@pytest.mark.parametrize(
    ("kind", "baseline", "values", "differs", "text"),
    [
        # Student's interval of three values 1, 2, 3 is 2 ± 4.303 / sqrt(3) = 2 ± 2.484.
        (MethodKind.INTERVALS, (1, 2, 3), (5.9, 6.9, 7.9), False, "no difference"),
        (MethodKind.INTERVALS, (1, 2, 3), (6.0, 7.0, 8.0), True, "slower"),
        (MethodKind.DEVIATIONS, (1, 2, 3), (2.9, 3.9, 4.9), False, "no difference"),
        (MethodKind.DEVIATIONS, (1, 2, 3), (3.1, 4.1, 5.1), True, "slower"),
        (MethodKind.MEANS, (1, 2, 3), (2.0, 2.0001), True, "slower"),
        (MethodKind.MEANS, (1, 2, 3), (2.0,), False, "equal means"),
        (MethodKind.T_TEST, (2, 2), (2, 2), False, "not significant (no spread)"),
        (MethodKind.T_TEST, (2, 2), (1, 1), True, "significant: faster (no spread)"),
    ],
)
def test_each_method_has_its_own_answer(
    kind: MethodKind, baseline: tuple[float, ...], values: tuple[float, ...], differs: bool, text: str
) -> None:
    found = answer_of(method(kind), baseline, values, LESS)
    assert found.differs is differs and found.text.startswith(text)


@pytest.mark.parametrize("kind", [k for k in MethodKind if k is not MethodKind.MEANS])
def test_one_round_is_too_little_for_a_spread(kind: MethodKind) -> None:
    found = answer_of(method(kind), (1.0,), (2.0,), LESS)
    assert found.differs is None and found.text == "needs two rounds" and math.isnan(found.sample.deviation)


def test_every_paper_says_how_it_compares() -> None:
    kinds = {}
    for key in paper_keys():
        paper = published(key)
        assert paper is not None and paper.paper.method is not None
        assert paper.paper.method.source.startswith("section ")
        kinds[key] = paper.paper.method.kind
    assert kinds == {
        "paravirtualization-2006": MethodKind.T_TEST,
        "two-vm-scenarios-2009": MethodKind.DEVIATIONS,
        "virtual-cluster-2009": MethodKind.MEANS,
        "migration-2014": MethodKind.MEANS,
        "containers-2015": MethodKind.INTERVALS,
    }


def test_a_method_that_no_one_knows_is_a_mistake() -> None:
    text = (
        '[paper]\nkey = "own"\ntitle = "Own"\nauthors = "us"\nyear = 2025\nwhere = "here"\nsetting = "one"\n'
        '[paper.method]\nkind = "guess"\nsource = "page 1"\n'
    )
    with pytest.raises(PaperFileError, match=r"own\.toml:9:8  paper\.method\.kind"):
        read(text, "own.toml")


def test_the_report_says_what_the_papers_method_says(tmp_path: Path) -> None:
    """10 % are planted, which standard deviations of less than 1 % show."""
    asked = two_vm.series(2)
    found = (two_vm.result(asked.parts[0]),)
    paper = published(asked.paper)
    assert paper is not None
    page, markdown = write_series(tmp_path, asked, found, paper)
    texts = (page.read_text().replace("\u00a0", " "), markdown.read_text(), series_text(asked, found, paper))
    for text in texts:
        assert "By the paper's method (standard deviations, section 4.1)" in text.replace(
            "&#x27;", "'"
        ).replace("&#39;", "'")
        assert "slower: mean ± standard deviation of both do not overlap" in text
        assert "of the baseline against itself, it calls" in text
    form: Any = series_json(asked, found, paper, results_dir="r", report="x")
    json.dumps(form, allow_nan=False)
    assert form["paper"]["method"] == {"kind": "standard deviations", "where": "section 4.1"}
    rows = form["parts"][0]["paper_method"]
    by_arm = {(r["arm"], r["workload"], r["metric"]): r for r in rows if r["arm"] != r["baseline"]}
    slow = by_arm[asked.parts[0].places["scenario 1"], "lammps", "wall"]
    assert slow["differs"] is True and slow["n"] == two_vm.BLOCKS and slow["verdict"] == "material: slower"
    assert slow["mean"] / slow["baseline_mean"] == pytest.approx(1.1, abs=0.02)
    assert any(r["arm"] == r["baseline"] for r in rows), "the baseline against itself"
    without = replace(paper, paper=replace(paper.paper, method=None))
    told: Any = series_json(asked, found, without, results_dir="r", report="x")
    assert told["paper"]["method"] is None and told["parts"][0]["paper_method"] == []
    assert "By the paper" not in series_text(asked, found, without)


def test_the_method_is_that_of_the_file() -> None:
    asked = containers.series(2)
    text = series_text(asked, containers.results(asked), published(asked.paper))
    assert "By the paper's method (confidence intervals, section 4.1)" in text
    assert "the 95 % intervals of the means" in text and "standard deviation of both" not in text
    assert ", container, 2 containers × 1 task, against native, " in text, (
        "q2 has one baseline, cures has two"
    )
