"""Charts as Vega-Lite specifications.

Must not know where a chart is drawn: on the page or in a file.
"""
