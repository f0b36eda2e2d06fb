"""The functions of the library, as a notebook calls them: nearmetal.run, not nearmetal.api.run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import nearmetal
from nearmetal import api
from nearmetal.errors import RecordsError, UsageError


def test_the_functions_of_the_library_are_those_of_api() -> None:
    for name in ("check", "load", "resume", "weigh"):
        assert getattr(nearmetal, name) is getattr(api, name)
    assert set(api.__all__) - {"Check", "Results"} == {"check", "load", "resume", "run", "weigh"}
    assert {"check", "load", "resume", "run", "weigh"} <= set(dir(nearmetal))
    with pytest.raises(AttributeError, match="module 'nearmetal' has no attribute 'wiegh'"):
        getattr(nearmetal, "wiegh")  # noqa: B009  a name that type checkers refuse


def test_mistakes_are_errors_with_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no study file nosuch"):
        nearmetal.run("nosuch")
    with pytest.raises(UsageError, match="named twice"):
        nearmetal.weigh("native", "native", workloads=["ep"])
    with pytest.raises(RecordsError, match="not a results directory"):
        nearmetal.load(tmp_path)


IMPORTS = """\
import json, sys
before = set(sys.modules)
import nearmetal
bare = sorted(set(sys.modules) - before)
function = nearmetal.run
import nearmetal.run.decide
from nearmetal import run
print(json.dumps([bare, callable(function), callable(nearmetal.run), run is nearmetal.run]))
"""


def test_the_package_imports_nothing_and_run_can_be_called_before_and_after_its_package_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True, timeout=600
    )
    assert json.loads(done.stdout) == [["nearmetal"], True, True, True]
