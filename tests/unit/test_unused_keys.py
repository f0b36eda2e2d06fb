"""Keys of a study file that older versions needed are accepted, and said to be unused."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.api.studies import study_from
from nearmetal.cli.output import complain

TEXT = """\
name: old
environments:
  native: {backend: native}
  box: {backend: namespaces}
placements:
  one: {instances: 1, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
design: {baseline: native, seed: 1, EXTRA}
"""


@pytest.mark.parametrize(
    "value", ["expected_blocks: 40", "expected_blocks: 5, max_blocks: 20, min_blocks: 12"]
)
def test_an_expected_number_of_blocks_is_noted_and_never_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(TEXT.replace("EXTRA", value))
    study_from(str(file), None, complain)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("note: expected_blocks is not used any more")


def test_without_it_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new.yaml"
    file.write_text(TEXT.replace("EXTRA", "margin: 3 %"))
    assert study_from(str(file), None, complain).design.min_blocks == 0
    assert capsys.readouterr().err == ""
