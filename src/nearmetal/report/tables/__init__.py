"""What each table of a report shows: its rows, figures and words.

Must not know the syntax of any form: HTML, Markdown, LaTeX or terminal text.
"""
