"""The contents of each table of a report: its rows, figures and words.

Must not know the syntax of any format: HTML, Markdown, LaTeX or terminal text."""
