"""What the command line accepts, and the commands that it suggests."""

from __future__ import annotations

import codecs
import shlex
from pathlib import Path

import pytest

from nearmetal.api.catalog import catalog
from nearmetal.api.studies import study_from
from nearmetal.api.workload_names import named_workloads
from nearmetal.cli.app import plain_signs
from nearmetal.model.study import KernelWorkload
from nearmetal.records.disk import resume_line


@pytest.mark.parametrize("text", ["cg:S", "npb:cg.S", "cg:class=S"])
def test_a_class_is_written_as_people_write_it(text: str) -> None:
    (found,) = named_workloads([text], catalog(), study_from("quick", 1))
    assert isinstance(found, KernelWorkload)
    assert (found.name, found.params) == ("cg-S", {"class": "S"})


def test_a_suggested_command_runs_as_it_is_printed() -> None:
    directory = Path("/results of a friend/it's one")
    assert shlex.split(resume_line(directory)) == ["nearmetal", "resume", str(directory)]


@pytest.mark.parametrize(("text", "shown"), [("×2", "x2"), ("±3 %", "+-3 %"), ("[−∞ … 1]", "[-inf ... 1]")])
def test_signs_that_an_encoding_lacks_are_written_in_others(text: str, shown: str) -> None:
    codecs.register_error("plain-signs", plain_signs)
    assert text.encode("ascii", errors="plain-signs").decode() == shown
