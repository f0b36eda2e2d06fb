"""The numbers of the five papers: how they are carried, and what does not follow from them."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nearmetal.analysis.papers.check import Inconsistency, check_paper, checks_of
from nearmetal.cli.app import run_command
from nearmetal.errors import PaperFileError
from nearmetal.model.papers.formula import Formula
from nearmetal.model.papers.published import Quantity, Rule
from nearmetal.published import json_schema, load, paper_keys, published, read
from nearmetal.published.positions import Positions
from nearmetal.report.tables.papers.findings import follows_text, paper_json

PAPERS = (
    "paravirtualization-2006",
    "two-vm-scenarios-2009",
    "virtual-cluster-2009",
    "migration-2014",
    "containers-2015",
)
DOCS = Path(__file__).parents[2] / "docs" / "guide" / "papers.md"


def text_of(key: str) -> str:
    return resources.files("nearmetal.published").joinpath(f"{key}.toml").read_text(encoding="utf-8")


def findings(key: str) -> tuple[Inconsistency, ...]:
    paper = published(key)
    assert paper is not None and paper.paper.key == key
    return check_paper(paper)


def test_all_five_papers_are_there_and_every_number_names_its_place() -> None:
    assert paper_keys() == PAPERS
    for key in PAPERS:
        paper = published(key)
        assert paper is not None
        assert len(paper.numbers) > 30 and checks_of(paper) >= 12 and paper.claims
        for number in paper.numbers.values():
            assert any(w in number.source for w in ("Table", "Figure", "section", "abstract")), number
            assert Decimal(number.text) == Decimal(str(number.value)) and number.rounding >= 0
    assert published("no-such-paper") is None


def test_the_rounding_is_half_a_unit_of_the_last_printed_digit_and_counts_are_exact() -> None:
    paper = published("containers-2015")
    assert paper is not None
    times = [paper.numbers[f"{place}/MG-C/communication"] for place in ("multinode", "shared memory")]
    assert [(t.text, t.rounding) for t in times] == [("1024.00", 0.005), ("601.9", 0.05)]
    assert paper.numbers["processes of Q3"].rounding == 0


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (
            "paravirtualization-2006",
            [
                (Rule.TEXT, "section 1", "1", 2.0, 2.0),
                (Rule.SIGNIFICANCE, "section 5.1", "no significant difference", 4.332, 5.477),
                (Rule.SIGNIFICANCE, "section 5.1", "no significant difference", 4.257, 5.679),
                (Rule.CLAIMS, "section 4.2, Figure 2", "faster; slower", None, None),
            ],
        ),
        (
            "two-vm-scenarios-2009",
            [
                (Rule.TEXT, "abstract, section 6", "3 %", 2.369, 2.492),
                (Rule.FORMULA, "section 4.2", "2.6 %", 4.692, 4.926),
                (Rule.FORMULA, "section 4.3", "256 MB", 236.705, 236.770),
                (Rule.FORMULA, "section 4.3", "512 MB", 488.422, 488.533),
                (Rule.TEXT, "section 4.3", "3.05 %", 3.925, 3.935),
                (Rule.TEXT, "section 4.4", "7 blocks/s", 13.99, 14.01),
                (Rule.SIGNIFICANCE, "section 4.1, section 6", "a difference", 1.357, 1.892),
            ],
        ),
        (
            "virtual-cluster-2009",
            [
                (Rule.OVERHEAD, "Table 4", "44.968 %", 48.355, 48.530),
                (Rule.OVERHEAD, "Table 4", "67.259 %", 68.256, 68.260),
                (Rule.PROCESSES, "Table 3, Table 4", "32", 28.0, 28.0),
                (Rule.FORMULA, "Table 2", "10300", 10362.151, 10362.151),
                (Rule.TEXT, "section 5.3", "35 %", 35.5185, 35.5195),
                (Rule.TEXT, "section 5.3, section 6", "3", 3.902, 3.902),
                (Rule.TEXT, "section 5.3", "30 %", 48.072, 48.072),
                (Rule.TEXT, "section 5.3", "30 %", 45.154, 45.155),
                (Rule.TEXT, "section 5.3", "74 us", 125.2575, 125.2585),
                (Rule.TEXT, "section 6", "8.7 %", 8.7705, 8.7715),
            ],
        ),
        ("migration-2014", []),
        ("containers-2015", [(Rule.SHARE, "Table 1", "81 %", 81.557, 81.557)]),
    ],
)
def test_what_does_not_follow_is_found_with_its_band(
    key: str, expected: list[tuple[Rule, str, str, float | None, float | None]]
) -> None:
    found = [(f.rule, f.source, f.printed) for f in findings(key)]
    assert found == [(rule, source, printed) for rule, source, printed, _, _ in expected]
    for f, (*_, low, high) in zip(findings(key), expected, strict=True):
        assert f.low == pytest.approx(low, abs=6e-4) and f.high == pytest.approx(high, abs=6e-4)


def test_neither_of_the_two_known_mistakes_is_made_again() -> None:
    """13.04 % is the largest over 4 to 16 processes; Table 1 is of 16. A gain of speed may exceed 100 %."""
    paper = published("containers-2015")
    assert paper is not None
    assert not [f for f in check_paper(paper) if "13.04" in f.printed or "1577" in f.printed]
    assert not [d for d in paper.derivations if "one machine" in (d.result, *d.formula.names)]
    (gain,) = [f for f in paper.figures if f.low == 15.77]
    assert gain.quantity is Quantity.GAIN and "time before / time after" in (Quantity.__doc__ or "")


PLANTED = [
    ("virtual-cluster-2009", "82.556", "81.556", Rule.OVERHEAD, "Table 3"),
    ("virtual-cluster-2009", "value = 56\n", "value = 58\n", Rule.SHARE, "section 5.1"),
    ("two-vm-scenarios-2009", "701.88", "702.88", Rule.MEAN, "section 4.5"),
    ("two-vm-scenarios-2009", "53.8", "54.8", Rule.TOTAL, "section 4.2"),
    ("migration-2014", "value = 27\n", "value = 30\n", Rule.TEXT, "section 3.1"),
    ("migration-2014", "value = 32\n", "value = 28\n", Rule.PROCESSES, "section 3"),
    ("containers-2015", "value = 512\n", "value = 500\n", Rule.PROCESSES, "section 4.4"),
    ("paravirtualization-2006", "value = 12\n", "value = 9\n", Rule.FORMULA, "section 5.1"),
]


@pytest.mark.parametrize(("key", "right", "wrong", "rule", "source"), PLANTED)
def test_a_planted_error_is_found(
    key: str,
    right: str,
    wrong: str,
    rule: Rule,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = text_of(key)
    assert right in text
    file = tmp_path / "copy.toml"
    file.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    known = {(f.rule, f.what) for f in findings(key)}
    new = [f for f in check_paper(load(file)) if (f.rule, f.what) not in known]
    assert (rule, source) in {(f.rule, f.source) for f in new}
    monkeypatch.setattr("sys.argv", ["nearmetal", "papers", str(file), "--check", "--json"])
    assert run_command() == 1
    (paper,) = json.loads(capsys.readouterr().out)["papers"]
    told = [f for f in paper["findings"] if (f["rule"], f["where"]) == (rule.value, source)]
    assert told and all(f["low"] <= f["high"] and f["limits"] for f in told)


def test_papers_lists_and_names_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["nearmetal", "papers", *words])
        code = run_command()
        return code, *capsys.readouterr()

    code, out, _ = told()
    assert code == 0 and all(f"{key}: " in out for key in PAPERS)
    code, out, _ = told("migration-2014", "--check")
    assert code == 0 and "every one follows" in out
    code, out, _ = told("virtual-cluster-2009", "--check")
    assert code == 1 and "printed 44.968 % (44.9675 to 44.9685 with its rounding)" in out
    code, out, _ = told("virtual-cluster-2009")
    assert (
        code == 0 and "0.91" not in out and "160.9 ± 0.05 s" in out and "loss" not in out.split("claims")[0]
    )
    code, out, _ = told("virtual-cluster-2009", "--json")
    (paper,) = json.loads(out)["papers"]
    assert len(paper["numbers"]) == 174 and len(paper["claims"]) == 6
    code, _, err = told("migration-2013")
    assert code == 2 and 'did you mean "migration-2014"?' in err
    code, _, err = told("/nowhere/at-all.toml", "--check")
    assert code == 2 and "cannot read it: No such file" in err


def test_the_docs_list_every_finding() -> None:
    text = DOCS.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(tuple(f"| `{key}` |" for key in PAPERS))]
    found = [
        f"| `{key}` | {f.source} | {f.what} | {f.printed} | {follows_text(f)} |"
        for key in PAPERS
        for f in findings(key)
    ]
    assert rows == found


# The format of a file.

HEAD = """\
[paper]
key = "own"
title = "T"
authors = "A"
year = 2026
where = "here"
setting = "one machine"
"""
TABLE = """\
[[table]]
name = "t"
what = "times"
source = "Table 1"
unit = "s"
columns = ["base", "new", "overhead"]
units = { overhead = "%" }
[table.rows]
a = [10.0, 12.0, 20.0]
[[table.derive]]
rule = "overhead"
column = "overhead"
formula = "100 * ({new} / {base} - 1)"
"""


def test_a_file_of_ones_own_is_read_and_checked() -> None:
    assert check_paper(read(HEAD + TABLE, "own.toml")) == ()
    (found,) = check_paper(read(HEAD + TABLE.replace("20.0]", "22.0]"), "own.toml"))
    assert (found.rule, found.printed) == (Rule.OVERHEAD, "22.0 %")
    assert found.low == pytest.approx(18.905, abs=1e-3) and found.high == pytest.approx(21.106, abs=1e-3)


def test_a_formula_without_a_finite_result_is_a_finding_without_a_band() -> None:
    for formula in ("100 * {new} / ({base} - {base})", "{new} * 1e308 * 1e308"):
        text = TABLE.replace("100 * ({new} / {base} - 1)", formula)
        (found,) = check_paper(read(HEAD + text, "own.toml"))
        assert (found.low, found.high) == (None, None) and follows_text(found) == formula


SHOWN = """\
[table.shown]
part = "p"
quantity = "time"
likeness = "same quantity"
differs = "in nothing"
rows = "workload"
"""
NUMBER = '[[number]]\nname = "n"\nwhat = "w"\nsource = "s"\nvalue = 1\nunit = "%"\n'
CLAIM = '[[claim]]\nwhat = "w"\nsource = "s"\ndirection = "slower"\nnumber = "n"\n'
MISTAKES = [
    (TABLE.replace("12.0", "nan"), "nan", "", "must be a finite number"),
    (TABLE.replace("12.0", "-inf"), "-inf", "", "must be a finite number"),
    (TABLE.replace("12.0", "1e999"), "1e999", "", "must have a magnitude"),
    (TABLE.replace("12.0", "true"), "true", "", "must be a number"),
    (TABLE.replace("12.0", '"12"'), '"12"', "", "must be a number"),
    (TABLE.replace(", 20.0]", "]"), "a = [10", "[10", "2 numbers for 3 columns"),
    (TABLE.replace("{new}", "{newer}"), 'formula = "100', '"100', 'no number "newer"'),
    (TABLE.replace("{new} /", "{new} ** 2 /"), 'formula = "100', '"100', "not a formula"),
    (TABLE.replace("({new} / {base} - 1)", "{overhead}"), 'formula = "100', '"100', "follows from itself"),
    (TABLE.replace('column = "overhead"', 'column = "cost"'), '"cost"', "", 'no column "cost"'),
    (TABLE.replace("unit =", "unitt ="), "unitt", "", 'unknown key; did you mean "unit"?'),
    (TABLE.replace('source = "Table 1"\n', ""), "[[table]]", "", "source: missing"),
    (TABLE + TABLE, "a = [10.0", "10.0", "is used twice"),
    (NUMBER.replace("= 1\n", "= [3, 2]\n"), "[3, 2]", "", "the range is swapped: 3 is more than 2"),
    (NUMBER.replace("= 1\n", "= [3, nan]\n"), "[3, nan]", "", "must be a finite number"),
    (NUMBER.replace("= 1\n", "= [1, 2, 3]\n"), "[1, 2, 3]", "", "or a range of two"),
    (NUMBER + CLAIM.replace('"n"', '"m"'), '"m"', "", 'no [[number]] "m"'),
    (
        NUMBER + CLAIM.replace('"slower"', '"slow"'),
        '"slow"',
        "",
        'did you mean "slower"?',
    ),
    (NUMBER + CLAIM + "[claim.conditions]\nranks = [4, 2]\n", "[4, 2]", "", "the range is swapped"),
    (NUMBER + CLAIM + '[claim.conditions]\nlink = "fast"\n', '"fast"', "", "fast"),
    (
        TABLE.replace("[[table.derive]]", SHOWN + "[[table.derive]]"),
        'rows = "workload"',
        '"workload"',
        '"ran" has no entry for the row "a"',
    ),
    ("x = \n", "\n", "", "not readable as TOML: Invalid value"),
    ('x = "never closed\n', "\n", "", "not readable as TOML"),
]


@pytest.mark.parametrize(("body", "part", "column_of", "what"), MISTAKES)
def test_mistakes_are_reported_with_their_place(body: str, part: str, column_of: str, what: str) -> None:
    text = HEAD + body
    with pytest.raises(PaperFileError) as e:
        read(text, "own.toml")
    assert what in str(e.value)
    place = text.rindex(part) + (part.index(column_of) if column_of else 0)
    expected = f"own.toml:{text.count(chr(10), 0, place) + 1}:{place - text.rfind(chr(10), 0, place)}  "
    assert expected in str(e.value), f"{expected}: {e.value}"


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"\xff\xfe", "1:1  not UTF-8 (byte 0xff)"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, "1:1  nested too deep"),
        (b"x = " + b"9" * 5000, "1:1  a number that is too long"),
        (b"#" * ((1 << 20) + 1), "larger than 1 MiB"),
        (b"", "paper: missing"),
        (b"[paper\n", "not readable as TOML"),
    ],
)
def test_files_that_are_no_toml_end_in_an_error(raw: bytes, what: str, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(raw)
    with pytest.raises(PaperFileError, match=r"own\.toml:\d+:\d+") as e:
        load(file)
    assert what in str(e.value) and "nearmetal papers --schema" in str(e.value)


BITS = ("[", "]", "{", "}", '"', "'", '"""', "=", "\n", "nan", "-inf", "1e400", "0", ",", "{a}", "[[table]]")


def test_a_damaged_file_is_read_or_ends_in_an_error_with_a_place_in_it() -> None:
    draw = random.Random(7)
    for _ in range(150):
        text = HEAD + TABLE + NUMBER + CLAIM
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(HEAD), len(text))
            text = text[:at] + draw.choice(BITS) + text[at + draw.choice((0, 1, 5)) :]
        try:
            paper = read(text, "own.toml")
        except PaperFileError as e:
            assert all(1 <= p.line <= text.count("\n") + 1 and p.column >= 1 for p in e.problems)
        else:
            json.dumps(paper_json(paper, findings=True), allow_nan=False)


def leaves(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list):
        for at, value in enumerate(data):
            yield from leaves(value, (*path, at))
    else:
        yield path, data


ODD = """\
a.b.c = 1 # a comment with "quotes" and ]
"k # ey" = 'lit]eral'
list = [ 1, [2.50, "x,]}" ], # inner
  { y = 3, z.w = [4] }, ]
multi = \"""line
with "quotes" \\
   folded\"""
raw = '''it's
[not.a.table]'''
[t]
k = 2026-11-25
[[p.q]]
v = -1e-3
[[p.q]]
[p.q.sub]
w = true
[[p.q.r]]
u = 5
[[p.q.r]]
u = 6
"""


@pytest.mark.parametrize("text", [*map(text_of, PAPERS), ODD], ids=[*PAPERS, "odd"])
def test_every_value_is_found_at_its_place(text: str) -> None:
    positions = Positions(text)
    lines = text.split("\n")
    for path, value in leaves(tomllib.loads(text, parse_float=Decimal)):
        line, column = positions.of(path)
        rest = lines[line - 1][column - 1 :]
        if isinstance(value, bool):
            assert rest.startswith(str(value).lower())
        elif isinstance(value, str):
            assert rest[0] in "\"'", (path, rest)
        else:
            literal = rest.split(",")[0].split("]")[0].split("}")[0].split("#")[0].strip()
            assert tomllib.loads(f"x = {literal}", parse_float=Decimal)["x"] == value, (path, rest)


def test_the_schema_accepts_the_papers_and_rejects_mistakes() -> None:
    schema = json_schema()
    assert all(section["description"] for section in schema["$defs"].values())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for key in PAPERS:
        validator.validate(tomllib.loads(text_of(key)))
    good = tomllib.loads(HEAD + TABLE)
    validator.validate(good)
    for wrong in (
        TABLE.replace("12.0", '"12"'),
        TABLE.replace("unit =", "unitt ="),
        TABLE.replace('rule = "overhead"', 'rule = "costs"'),
        NUMBER.replace("= 1\n", "= [1, 2, 3]\n"),
    ):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(tomllib.loads(HEAD + wrong))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100 * ({a} - {b}) / {a}", 75.0),
        ("mean({a}, {b}) + max({a}, 9) - min(1, {b})", 2.5 + 9 - 1),
        ("sqrt({a}) * -{b}", -2.0),
        ("{a} / ({b} - 1)", None),
        ("sqrt(-{a})", None),
        ("{a} / 0", None),
    ],
)
def test_formulas_are_evaluated(text: str, value: float | None) -> None:
    formula = Formula.parse(text)
    numbers = {"a": 4.0, "b": 1.0}
    found = formula.value([numbers[n] for n in formula.names])
    assert (found == pytest.approx(value)) if value is not None else found != found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a + 1",
        "{a} +",
        "__import__('os')",
        "{a}.real",
        "[1]",
        "{a} ** 9",
        "True",
        "{a} + v0",
        "sqrt(1, 2)",
        "(" * 400,
    ],
)
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"formula|braces|argument"):
        Formula.parse(text)
