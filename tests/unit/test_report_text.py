"""Text that users, hosts and programs supply cannot break any form of the report."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import sample_analysis as sample

from nearmetal.model.change import replace
from nearmetal.report.forms import latex, markdown
from nearmetal.report.page.markup import Markup, escape, join, table, tag
from nearmetal.report.sheet import Grid, Leaf, markdown_of
from nearmetal.report.text import clean, one_line, plural, slug, thin, tight

HOSTILE = (
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' & <b>&lt;",
    "\u202egnp.exe\u2066",
    "\x1b[2J\x1b]0;title\x07",
    "a\u0000b\u2028c\ud800",
    "$\\input{/etc/passwd}%^_&#~",
    "| a | b |\n---",
    "ünïcödé 漢字 🐧",
)


class Parts(HTMLParser):
    """Elements and text of a page, as a browser's parser takes them apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(html: str) -> Parts:
    parts = Parts()
    parts.feed(html)
    parts.close()
    return parts


@given(st.text())
def test_an_element_holds_its_text_and_nothing_else(text: str) -> None:
    parts = parsed(tag("p", text, title=text))
    assert [t for t, _ in parts.tags] == ["p"]
    assert parts.tags[0][1] == {"title": clean(text).replace("\r", "\n")}
    assert parts.text == clean(text)


@given(st.text())
def test_clean_leaves_nothing_that_acts(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", clean(text))
    assert clean(text).encode() is not None  # a lone surrogate would raise
    assert "\n" not in one_line(text)


def test_clean_keeps_what_is_harmless() -> None:
    assert clean("naïve 漢字 ▲ × − …") == "naïve 漢字 ▲ × − …"
    assert clean("a\u202eb") == "a\\u202eb"


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_has_no_live_character(text: str) -> None:
    escaped = latex.escape(text)
    assert escaped.isascii()
    bare = re.sub(r"\\(text\w+\{\}|[{}$&#%_,]|dots\{\}|\w+)|\$[^$]*\$|\{\[\}|\{\]\}", "", escaped)
    assert not set("\\{}$&#%_^~") & set(bare.replace("~", "", text.count("\u00a0")))


@pytest.mark.parametrize("text", HOSTILE)
def test_units_and_heads_are_single_cells_of_markdown_tables(text: str) -> None:
    analysis = sample.analysis()
    one = replace(analysis, cells=(replace(analysis.cells[0], unit=text),))
    heads = Grid(title="t", heads=(text, "value"), rows=((text, "1"),))
    leaf = Leaf(key="k", title="t", blocks=(heads,))
    for form, columns in ((markdown.markdown_text(sample.study(), one), 7), (markdown_of(leaf), 2)):
        (table_lines,) = re.findall(r"(?:^\|.*\|\n?)+", form, re.MULTILINE)
        for line in table_lines.splitlines():
            assert len(re.findall(r"(?<!\\)\|", line)) == columns + 1, line


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_cells_stay_cells(text: str) -> None:
    escaped = markdown.escape(text)
    assert "\n" not in escaped
    assert not re.search(r"(?<!\\)[|<>`*_\[\]]", escaped)


def test_markup_is_not_escaped_twice() -> None:
    assert join(tag("b", "a<b"), "&") == "<b>a&lt;b</b>&amp;"
    assert escape(Markup("<i>")) == "<i>"
    assert tag("button", "x", hidden=True, disabled=False, aria_pressed=None) == "<button hidden>x</button>"


def test_a_table_says_its_roles_and_heads() -> None:
    parts = parsed(table(("what", "n"), [["<a>", "3"]], label="x"))
    cells = [attrs for name, attrs in parts.tags if name == "td"]
    assert [(c["role"], c["data-label"]) for c in cells] == [("cell", "n")]
    assert "<a>" in parts.text


def test_thin_keeps_order_ends_and_extremes() -> None:
    shown = thin(range(10_000), 100, keep=(4321,))
    assert shown[0] == 0 and shown[-1] == 9999 and 4321 in shown
    assert list(shown) == sorted(shown) and len(shown) <= 103
    assert thin(range(5), 5) == (0, 1, 2, 3, 4)


def test_small_words() -> None:
    assert plural(1, "block") == "1 block" and plural(2000, "block") == "2,000 blocks"
    assert slug("a/b c|../é") == "a-b-c" and slug("///") == "unnamed"
    assert tight("+1 % in 3 ms, n 39") == "+1\u00a0% in 3\u00a0ms, n\u00a039"
