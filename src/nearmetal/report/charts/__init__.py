"""Charts by Altair: what a chart shows, and its drawing.

A chart is the same for the page, SVG, PNG and PDF. Only `chart` imports no Altair: all other modules are
imported only where a page or figures are written.
"""
