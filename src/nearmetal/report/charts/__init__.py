"""Charts by Altair: what a chart shows, and its drawing.

A chart is the same for the page, SVG, PNG and PDF. `chart`, `curves` and `engine` import no Altair. All other
modules do, which takes time, so they are imported only where a page or figures are written.
"""
