"""The JavaScript that draws the charts: vl-convert's bundle of Vega, kept in the user's cache."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from ...host.runtime import user_cache
from ...records.disk import write_file

# What the page's own script calls. Making the bundle takes 1.3 s, reading it back 1 ms.
_SNIPPET = "window.vegaEmbed=vegaEmbed;"
_LEAST_BYTES = 500_000
_END = "window.vegaEmbed="  # vl-convert shortens the code after it


def vega_bundle(cache: Path | None = None) -> str:
    """Return the bundle as text (0.9 MB, without '</script'), from `cache` if it is there.

    A cache that cannot be read or written is ignored. Raises RuntimeError if vl-convert's bundle could end a
    <script> element early.
    """
    directory = user_cache() / "nearmetal" if cache is None else cache
    file = directory / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        text = file.read_text(encoding="utf-8")
        if len(text) > _LEAST_BYTES and _END in text[-60:]:
            return text
    import vl_convert

    text = vl_convert.javascript_bundle(_SNIPPET).rstrip()
    if "</script" in text.lower() or "<!--" in text:
        raise RuntimeError("the chart bundle of vl-convert cannot be embedded in a page")
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        write_file(file, text.encode())
    return text
