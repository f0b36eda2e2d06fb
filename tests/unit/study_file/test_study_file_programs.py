"""Programs of one's own in a study file: what they bring along, and each mistake at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.errors import StudyError
from nearmetal.model.study import Bounds, CommandWorkload, Reference
from nearmetal.study_file import Catalog, load_text

HEAD = """\
name: own
environments:
  native: {backend: native}
  box: {backend: namespaces}
placements:
  one: {instances: 1, tasks: 1}
design: {baseline: native, seed: 1}
workloads:
  mine:
"""
LINES = HEAD.count("\n")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "in.txt").write_text("1")
    (tmp_path / "data").mkdir()
    (tmp_path / "app").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(workload: str, catalog: Catalog | None) -> CommandWorkload:
    (found,) = load_text(HEAD + workload, "s.yaml", catalog).workloads
    assert isinstance(found, CommandWorkload)
    return found


def told(workload: str, catalog: Catalog | None) -> list[str]:
    with pytest.raises(StudyError) as caught:
        load_text(HEAD + workload, "s.yaml", catalog)
    return [
        f"{p.line - LINES}:{p.column}  {p.what.removeprefix('workloads.mine')}" for p in caught.value.problems
    ]


def test_every_key_arrives(catalog: Catalog, here: Path) -> None:
    w = load(
        """\
    script: |
      #!/bin/sh
      cat in.txt >out
    files: {in.txt: in.txt, ./data: deep/data}
    exit_codes: [0, 3]
    metrics:
      m: {regex: '(.*)', file: out, unit: K, better: lower, min: -2, max: 1e3}
    verify: {file: out, reference: in.txt, tolerance: 1e-6, absolute: 0.5}
""",
        catalog,
    )
    assert w.script == "#!/bin/sh\ncat in.txt >out\n" and w.argv == ()
    assert w.files == {str(here / "in.txt"): "in.txt", str(here / "data"): "deep/data"}
    assert w.exit_codes == (0, 3)
    assert w.metrics[0].file == "out" and w.metrics[0].bounds == Bounds(least=-2.0, most=1000.0)
    assert w.verify is not None and w.verify.regex is None
    assert w.verify.reference == Reference(path=str(here / "in.txt"), tolerance=1e-6, absolute=0.5)


def test_a_program_is_found_from_where_nearmetal_is_started(catalog: Catalog, here: Path) -> None:
    assert load("    command: [./app, in.txt]\n", catalog).argv == ("./app", "in.txt")
    staged = "    files: {in.txt: in.txt}\n"
    assert load("    command: [./app, in.txt]\n" + staged, catalog).argv == (str(here / "app"), "in.txt")
    assert load("    command: [app]\n" + staged, catalog).argv == ("app",)
    own = "    command: [./run]\n    files: {app: run}\n"
    assert load(own, catalog).argv == ("./run",)


def test_without_a_catalogue_no_file_is_looked_for() -> None:
    w = load("    command: [p]\n    files: {/gone: x}\n    verify: {reference: /gone}\n", None)
    assert w.files == {"/gone": "x"}


COMMAND = "    command: [p]\n"
MISTAKES = {
    "no interpreter": ("    script: echo\n", "1:13  .script: its first line names no interpreter"),
    "script and command": (
        "    script: '#!/bin/sh'\n    command: [p]\n",
        "2:5  : script and command: a workload is one of them",
    ),
    "a file that is not there": (COMMAND + "    files: {gone: x}\n", "2:13  .files.gone: "),
    "a name that leads out": (
        COMMAND + "    files: {in.txt: ../x}\n",
        '2:21  .files.in.txt: "../x": a name with ..',
    ),
    "a whole path as a name": (
        COMMAND + "    files: {in.txt: /x}\n",
        '2:21  .files.in.txt: "/x": expected a name below',
    ),
    "two of a name": (
        COMMAND + "    files: {in.txt: x, app: x/y}\n",
        '2:29  .files.app: "x/y" meets "x", which is put there too',
    ),
    "the script's own name": (
        "    script: '#!/bin/sh'\n    files: {in.txt: script}\n",
        '2:21  .files.in.txt: "script" meets "script"',
    ),
    "one among files on PATH": (
        "    command: [app]\n    files: {app: app}\n",
        "1:15  .command[0]: without a / it is looked for on PATH; write ./app",
    ),
    "a number in what is brought": (
        COMMAND + "    files: {in.txt: x}\n    metrics: {m: {regex: (a), file: x, unit: s, better: lower}}\n",
        '3:37  .metrics.m.file: "x" is put there by nearmetal',
    ),
    "ends the wrong way round": (
        COMMAND + "    metrics: {m: {regex: (a), unit: s, better: lower, min: 2, max: 1}}\n",
        "2:60  .metrics.m.min: 2 is more than max, 1",
    ),
    "an end that is none": (
        COMMAND + "    metrics: {m: {regex: (a), unit: s, better: lower, min: nan}}\n",
        '2:60  .metrics.m.min: "nan" is not a plain number',
    ),
    "a file and a stream": (
        COMMAND + "    metrics: {m: {regex: (a), file: x, stream: both, unit: s, better: lower}}\n",
        "2:40  .metrics.m.stream: a file is searched; give either file or stream",
    ),
    "a word that is no stream": (
        COMMAND + "    metrics: {m: {regex: (a), stream: all, unit: s, better: lower}}\n",
        '.metrics.m.stream: unknown value "all"',
    ),
    "a decimal mark that is none": (
        COMMAND + "    verify: {regex: (a), decimal: ',', max: 1}\n",
        '.verify.decimal: unknown value ","',
    ),
    "a key with a blank on a dotted path": (
        COMMAND + "    metrics: {m: {json_path: global options.depth, unit: '1', better: lower}}\n",
        "or a JSON Pointer such as /results/0/wall time",
    ),
    "a JSON Pointer with a ~ of its own": (
        COMMAND + "    metrics: {m: {json_path: /a~2, unit: '1', better: lower}}\n",
        "or a JSON Pointer such as /results/0/wall time",
    ),
    "nothing to verify": (
        COMMAND + "    verify: {file: x}\n",
        "2:13  .verify: nothing to compare the output with",
    ),
    "bounds of nothing": (
        COMMAND + "    verify: {max: 1}\n",
        "2:13  .verify: expected, min and max apply to the match",
    ),
    "bounds without a group": (
        COMMAND + "    verify: {regex: a, max: 1}\n",
        "2:21  .verify.regex: 0 groups; one group ( ) must hold the number",
    ),
    "expected and bounds": (
        COMMAND + "    verify: {regex: (a), expected: b, max: 1}\n",
        "2:26  .verify.expected: give either expected, or min and max",
    ),
    "a tolerance of nothing": (
        COMMAND + "    verify: {regex: a, tolerance: 0.1}\n",
        "2:24  .verify.tolerance: applies only to a reference",
    ),
    "too much tolerance": (
        COMMAND + "    verify: {reference: in.txt, tolerance: 3}\n",
        '2:44  .verify.tolerance: "3" is not between 0 and 1',
    ),
    "a difference below zero": (
        COMMAND + "    verify: {reference: in.txt, absolute: -1}\n",
        "2:43  .verify.absolute: a difference is not below 0",
    ),
    "no reference": (COMMAND + "    verify: {reference: gone}\n", "2:25  .verify.reference: "),
    "a directory as a reference": (COMMAND + "    verify: {reference: data}\n", "data is not a file"),
    "no such code": (
        COMMAND + "    exit_codes: [256]\n",
        "2:18  .exit_codes[0]: 256 is not between 0 and 255",
    ),
    "no codes": (COMMAND + "    exit_codes: []\n", "2:17  .exit_codes: a value is missing here"),
}


@pytest.mark.parametrize(("workload", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_is_reported_at_its_place(catalog: Catalog, workload: str, words: str) -> None:
    found = told(workload, catalog)
    assert len(found) == 1 and words in found[0], found
