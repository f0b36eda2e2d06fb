"""Draws charts as SVG, PNG and PDF, by vl-convert. Charts of one view share one compiled specification."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import vl_convert

from ...model.record import JsonValue
from .altair_here import alt
from .chart import Chart, Palette

_WORD = re.compile(r"\{\{(\w+)\}\}")
_TIP = re.compile(r'<path aria-label="([^"]*)"([^>]*?)/>')
_HIDDEN = re.compile(r'<path (?=[^>]*(?:class="background"|display="none"))[^>]*/>')
_UNUSED = re.compile(
    r' (?:(?:class|role|aria-\w+|font-\w+|pointer-events)="[^"]*"|opacity="1"|stroke-width="1")(?=[ />])'
)
_TAG = re.compile(r"<[^>]*>")
_DECIMALS = re.compile(r"(\d\.\d\d)\d+")
_FRAME = re.compile(r'<svg [^>]*?viewBox="([^"]*)">(.*)</svg>\s*', re.DOTALL)


def svg(chart: Chart, p: Palette) -> str:
    """Return a chart as the text of an SVG file. Takes 5 to 20 ms."""
    return str(vl_convert.vega_to_svg(specification(chart, p)))


def png_of(text: str) -> bytes:
    """Convert the text of an SVG file to a PNG file of twice its width and height in pixels."""
    return bytes(vl_convert.svg_to_png(text, scale=2))


def pdf_of(text: str) -> bytes:
    """Convert the text of an SVG file to a PDF file."""
    return bytes(vl_convert.svg_to_pdf(text))


def parts_of(text: str) -> tuple[str, str]:
    """Return the viewBox of a chart that svg() drew, and its elements as a page needs them.

    Descriptions of marks become tooltips. Attributes that page.css sets, or that nothing reads, are removed.

    Raises ValueError if the text is not an SVG of the expected form.
    """
    frame = _FRAME.fullmatch(text)
    if frame is None:
        raise ValueError("vl-convert drew no SVG of one frame")
    inner = _TIP.sub(r"<path\2><title>\1</title></path>", _HIDDEN.sub("", frame[2]))
    return frame[1], _TAG.sub(lambda tag: _DECIMALS.sub(r"\1", _UNUSED.sub("", tag[0])), inner)


def specification(chart: Chart, p: Palette) -> str:
    """Return the Vega specification of a chart with its data, as JSON.

    Raises ValueError if the data contain a number that is not finite.
    """
    words = {key: json.dumps(text)[1:-1] for key, text in chart.words.items()}
    spec = json.loads(_WORD.sub(lambda found: words[found[1]], compiled(chart.view.func, chart.view.args, p)))
    spec |= {"width": chart.width, "height": chart.height}
    for source in spec["data"]:
        if source["name"] in chart.data:
            source["values"] = chart.data[source["name"]]
    return json.dumps(spec, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@cache
def compiled(view: Callable[..., alt.LayerChart], arguments: tuple[Hashable, ...], p: Palette) -> str:
    """Return the Vega specification of a view, without data and words, as JSON."""
    spec = {**view(*arguments, p).to_dict(validate=False), "config": config(p)}
    return json.dumps(_with_own_grids(vl_convert.vegalite_to_vega(spec)))


def _with_own_grids(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Vega specification in which each axis also draws its grid. Vega-Lite makes a second axis for
    the grid, and drawing it takes as long as drawing the first."""
    grids = {(a["scale"], a["orient"]): a for a in spec["axes"] if a["grid"]}
    axes = [a for a in spec["axes"] if not a["grid"]]
    for axis in axes:
        grid = grids.get((axis["scale"], axis["orient"]))
        if grid is not None:
            axis |= {"grid": True, "gridScale": grid["gridScale"]} if "gridScale" in grid else {"grid": True}
    return {**spec, "axes": axes}


def config(p: Palette) -> dict[str, JsonValue]:
    """Return the style that all charts share. A mark has a description only if its view gives one."""
    return {
        "background": "transparent",
        "font": p.font,
        "view": {"stroke": None},
        "mark": {"aria": False},
        "axis": {
            "aria": False,
            "labelColor": p.quiet,
            "titleColor": p.quiet,
            "titleFontWeight": "normal",
            "labelFontSize": p.font_size,
            "titleFontSize": p.font_size,
            "gridColor": p.grid,
            "domainColor": p.grid,
            "tickColor": p.grid,
            "labelLimit": 220,
        },
        "legend": {
            "aria": False,
            "labelColor": p.ink,
            "labelFontSize": p.font_size,
            "title": None,
            "orient": "top",
            "symbolStrokeWidth": 1.5,
            "labelLimit": 320,
        },
    }
