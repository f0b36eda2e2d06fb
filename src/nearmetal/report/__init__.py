"""Writes estimates as an HTML page, Markdown, LaTeX, CSV, JSON, figures and terminal text. Knows no
machine."""
