"""Writes results as an HTML page, Markdown, LaTeX, CSV, JSON, figures and terminal text. It does not use the
machine."""
