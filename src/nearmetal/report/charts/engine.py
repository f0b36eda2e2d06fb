"""The thread in which vl-convert draws. It imports no Altair, so that drawing can be prepared while that is
imported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import vl_convert


@cache
def drawing_thread() -> ThreadPoolExecutor:
    """Return the thread that draws charts. It draws one after another, because vl-convert does so anyway.

    The first call starts the JavaScript engine in the thread. This takes 0.3 s, during which Python code can
    run in other threads.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="charts")
    thread.submit(vl_convert.vega_to_svg, "{}")
    return thread
