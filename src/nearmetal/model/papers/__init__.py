"""Numbers and claims of papers, and the keys of the files that give them.

This package must not import studies or results.
"""
