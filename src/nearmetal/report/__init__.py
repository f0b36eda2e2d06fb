"""Estimates -> one HTML page, Markdown, LaTeX, CSV, JSON, figures and terminal text; knows no machine."""
