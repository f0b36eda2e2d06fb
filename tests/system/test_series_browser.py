"""The summary of a study in parts in a real browser: every figure draws, fits a phone, is legible."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser
from tests.system import test_report_browser as single
from tests.unit import test_containers_2015 as sample

from nearmetal.published import published
from nearmetal.report.series_page import write_series

pytestmark = [pytest.mark.no_run, pytest.mark.more, pytest.mark.beside]

browser = single.browser
LARGEST = 2_500_000
"""Largest size of a summary, in bytes."""


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of eight CPUs, so that the packing curve has four points; as a file: address."""
    asked = sample.series(8)
    page, _ = write_series(
        tmp_path_factory.mktemp("series"), asked, sample.results(asked), published(asked.paper)
    )
    assert page.stat().st_size < LARGEST
    return page.as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_the_summary_draws_fits_and_is_legible(
    browser: Browser, summary: str, width: int, scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    with single.opened(browser, summary, width=width, scheme=scheme) as page:
        assert page.locator("main section").count() == 12, "overview, ten parts, the paper"
        assert single.drawn(page, "main") == 15
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [f for f in page.evaluate(single.CONTRAST) if f[0] < 4.5] == []
        claims = page.locator("#part-q2 table", has_text="at most 13.04").first
        told = claims.inner_text().replace("\u00a0", " ")
        assert "at most 13.04 %" in told and "does not hold here" in told
        page.screenshot(path=tmp_path / "summary.png", full_page=True)
