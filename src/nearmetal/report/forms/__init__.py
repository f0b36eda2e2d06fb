"""The other forms of a report: terminal text, Markdown, LaTeX, CSV, JSON and figure files.

Must not compute figures or choose words: both come from the tables.
"""
