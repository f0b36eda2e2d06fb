"""Whatever stands in a file: a Study, or a StudyError with places; never another exception, never a hang."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearmetal.errors import StudyError
from nearmetal.studies import builtin, names
from nearmetal.study_file import Catalog, load_study, load_text

MEGABYTE = 1 << 20
VALID = "\n".join(
    [
        "name: a",
        "environments: {native: {backend: native}, c: {backend: namespaces, attachment: veth-bridge}}",
        "placements: {1x2: {instances: 1, tasks: 2}}",
        "workloads:",
        "  w: {kernel: cg, matrix: {class: [S, W]}}",
        "  p: {kernel: pingpong, bytes: 8 B}",
        "  c: {command: [true], env: {A: b}, metrics: {m: {regex: '(a)', unit: s, better: lower}}}",
        "  s: {subject: start}",
        "design: {baseline: native, margin: 3 %, max_time: 1h, seed: 1, primary: [w-S.rate]}",
        "",
    ]
)


def check(text: str, catalog: Catalog | None) -> list[str]:
    """Reads a text; what was told, each with a place inside the text and fit to be printed."""
    try:
        load_text(text, "s.yaml", catalog, seed=1)
    except StudyError as e:
        assert e.problems
        for p in e.problems:
            assert p.file == "s.yaml"
            assert 1 <= p.line <= text.count("\n") + text.count("\r") + text.count("\x85") + 3
            assert p.column >= 1
            assert p.what.isprintable()
            assert len(p.what) < 4000
        str(e).encode()
        return [str(p) for p in e.problems]
    return []


HOSTILE = {
    "nothing": ("", "the file is empty"),
    "only a comment": ("# a\n", "the file is empty"),
    "null": ("~", "the file is empty"),
    "a word": ("hello", "1:1  a study is a list of keys"),
    "a list": ("- a", "1:1  a study is a list of keys"),
    "deep lists": ("- " * 5000, "nested deeper than 16"),
    "deep flow lists": ("[" * 100_000, "line longer than 65536"),
    "deep flow lists, short": ("[" * 5000, "1:17  nested deeper than 16"),
    "deep mappings": ("{a: " * 5000, "nested deeper than 16"),
    "deep keys": ("? " * 5000, "nested deeper than 16"),
    "deep by indentation": ("".join(f"{' ' * i}a:\n" for i in range(300)), "nested deeper than 16"),
    "billion laughs": (
        "a: &a [x, x]\nb: &b [*a, *a]\n",
        "1:4  anchors (&name) and aliases (*name) are not used",
    ),
    "alias of nothing": ("a: *b", "1:4  anchors (&name) and aliases"),
    "alias of itself": ("&a [*a]", "1:1  anchors (&name) and aliases"),
    "many values": ("a: [" + "x, \n" * 15_000 + "]", "more than 10000 values"),
    "python object": ("a: !!python/object/apply:builtins.eval ['1']", 'unknown tag "'),
    "own tag": ("name: !secret a", '1:7  unknown tag "!secret"'),
    "standard tag": ("name: !!str a", "unknown tag"),
    "undeclared tag": ("name: !a!b c", "not readable as YAML"),
    "half a tag": ("!<", "not readable as YAML"),
    "broken escape in a tag": ("!<%ff> a", "not readable as YAML"),
    "half an anchor": ("&", "not readable as YAML"),
    "escape beyond Unicode": ('"\\UFFFFFFFF"', "not readable as YAML"),
    "escape of half a pair": (
        'name: "\\ud800"',
        "1:7  text holds a NUL character or half of a surrogate pair",
    ),
    "half a pair": ("name: \ud800", "1:7  not readable as YAML: character U+D800"),
    "escaped NUL": ('name: "a\\0b"', "1:7  text holds a NUL character"),
    "NUL": ("name: a\0b", "1:8  not readable as YAML: character U+0000"),
    "control character": ("name: a\nquestion: \x07", "2:11  not readable as YAML: character U+0007"),
    "tab for indentation": ("name:\n\ta: b", "2:1  not readable as YAML"),
    "unclosed quote": ('name: "a', "not readable as YAML"),
    "unclosed list": ("a: [b", "not readable as YAML"),
    "two documents": ("a: b\n---\nc: d", "2:1  a second document (---)"),
    "YAML 1.1": ("%YAML 1.1\n---\nname: a", "files are YAML 1.2"),
    "endless version": (f"%YAML 1.{'9' * 5000}\n---\na", "not readable as YAML"),
    "two tag directives": ("%TAG ! tag:a\n%TAG ! tag:b\n---\na: b", "not readable as YAML"),
    "long number": (f"design: {{seed: {'9' * 5000}}}", "is not a whole number"),
    "long number with a unit": (f"design: {{margin: {'9' * 5000} %}}", "is not a share"),
    "huge exponent": ("design: {max_time: 1e999999999 s}", "is not a time"),
    "impossible date": ("name: 2026-13-99", "environments: missing"),
    "impossible time": ("design: {max_time: 2026-02-30T25:61:61Z}", "is not a time"),
    "not a number": ("design: {margin: .nan, seed: .inf}", '".nan" is not a share'),
    "duplicate key": ("name: a\nname: b", '2:1  key "name" given twice; first on line 1'),
    "duplicate key below": ("design: {seed: 1,\n seed: 2}", '2:2  key "seed" given twice; first on line 1'),
    "merge key": ("design: {<<: {seed: 1}}", "design.<<: unknown key"),
    "mapping as key": ("{a: b}: c", "1:1  a key is one word"),
    "list as key": ("? [a]\n: c", "1:3  a key is one word"),
    "null as key": ("? \n: c", "unknown key"),
    "number as key": ("1: a", "1:1  1: unknown key"),
    "long key": (f"? {'k' * 50_000}\n: v", "text longer than 8192 characters"),
    "long text": (f"name: {'a' * 60_000}", "1:7  text longer than 8192 characters"),
    "many unknown keys": ("".join(f"k{i}: v\n" for i in range(4500)), "k0: unknown key"),
    "many near keys": ("design:\n" + "".join(f"  margin{i}: v\n" for i in range(4500)), "did you mean"),
    "quadratic tags": ("!" * MEGABYTE, "line longer than 65536"),
    "quadratic tags, by line": (("!" * 65_000 + "\n") * 16, "1:1"),
    "one long text over lines": ("a: " + "b\n  " * (MEGABYTE // 4 - 4), "text longer than 8192"),
    "block of spaces": ("a: |\n" + (" " * 60_000 + "\n") * 16, "a: unknown key"),
    "wrong block header": ("a: |99\n x", "not readable as YAML"),
    "only line ends": ("\n" * MEGABYTE, "the file is empty"),
    "all percent": ("%" * 60_000, "not readable as YAML"),
    "many directives": ("%A b\n" * (MEGABYTE // 5), "not readable as YAML"),
    "too large": ("#" * (MEGABYTE + 1), "larger than 1 MiB"),
    "huge repetition": (
        VALID.replace("(a)", "(a){99999999999}"),
        "regex: not a regular expression: repeat count too big",
    ),
    "deep regex": (VALID.replace("(a)", "(" * 400 + ")" * 400), "regex: "),
    "regex that Python warns of": (VALID.replace("(a)", "[[a]--b"), "0 groups"),
    "braces in words": (VALID.replace("margin: 3 %", 'margin: "{what} {0}"'), '"{what} {0}" is not a share'),
    "a sweep without end": (
        VALID.replace("class: [S, W]", ", ".join(f"k{i}: [a, b, c, d]" for i in range(40))),
        "combinations; at most 1000 are allowed",
    ),
}


@pytest.mark.parametrize(("text", "told"), HOSTILE.values(), ids=HOSTILE)
def test_mistake_in_a_hostile_file_is_reported_with_its_place(catalog: Catalog, text: str, told: str) -> None:
    begin = time.process_time()
    found = check(text, catalog)
    assert any(told in line for line in found), found[:5]
    assert time.process_time() - begin < 20


def test_the_valid_file_is_valid(catalog: Catalog) -> None:
    assert check(VALID, catalog) == []


@given(st.text())
@settings(max_examples=300)
@example("? : :\n- {[")
@example("a: b\x85c: d")
@example("%YAML 1.2\n---\n")
def test_any_text(text: str) -> None:
    check(text, None)


YAML_LIKE = st.lists(
    st.sampled_from(
        [*"abz019 \n\t:-?,[]{}&*!|>'\"%#@`<~\\/.+=", "\n  ", ": ", "- ", "? ", "|\n", ">\n", "---\n", "...\n",
         "%YAML ", "%TAG ! ", "!!", "<<", "&a ", "*a", "\\u", "\\x", "1e9", "0x", "null", "true",
         "\r", "\u2028", "é"]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(text=YAML_LIKE)
@settings(max_examples=500)
def test_any_text_of_yaml_tokens(catalog: Catalog, text: str) -> None:
    check(text, catalog)
    check(f"name: a\ndesign:\n  {text}", catalog)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid study with a few pieces cut out, doubled, or replaced."""
    text = draw(st.sampled_from([VALID, *(builtin(n) for n in names())]))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 12)))
        piece = draw(st.one_of(YAML_LIKE, st.text(max_size=3), st.just(text[at:end] * 2), st.just("")))
        text = text[:at] + piece + text[end:]
    return text


@given(text=mutated())
@settings(max_examples=400)
def test_valid_files_with_wounds(catalog: Catalog, text: str) -> None:
    check(text, catalog)


VALUES = st.recursive(
    st.sampled_from(
        ["3", "3 %", "-1", "a", "''", "null", "~", "true", "1e400 s", "[]", "{}", "1h30m", "\"\\n\"", "0x1",
         "S", "1x2"]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: f"[{', '.join(v)}]"),
        st.dictionaries(st.sampled_from(["a", "kernel", "regex", "1"]), inner, max_size=2).map(
            lambda v: "{" + ", ".join(f"{k}: {x}" for k, x in v.items()) + "}"
        ),
    ),
    max_leaves=4,
)  # fmt: skip


@given(data=st.data())
@settings(max_examples=400)
def test_any_value_in_any_place(catalog: Catalog, data: st.DataObject) -> None:
    lines = builtin("quick").splitlines()
    at = data.draw(st.sampled_from([i for i, line in enumerate(lines) if ":" in line.partition("#")[0]]))
    key = lines[at].partition(":")[0]
    lines[at] = f"{key}: {data.draw(VALUES)}"
    check("\n".join(lines), catalog)


@given(raw=st.binary(max_size=300))
@settings(max_examples=200)
def test_any_bytes(catalog: Catalog, raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "hostile.yaml"
    path.write_bytes(raw)
    try:
        load_study(path, catalog)
    except StudyError as e:
        assert e.problems


def test_a_mistake_that_a_sweep_repeats_is_shown_once(catalog: Catalog) -> None:
    for text in (
        VALID.replace("kernel: cg, matrix", "kernel: ccg, matrix"),
        VALID.replace("matrix: {class: [S, W]}", "sizes: 1, matrix: {class: [S, W]}"),
    ):
        found = check(text, catalog)
        assert len(found) == len(set(found)) and any("unknown" in line for line in found), found
