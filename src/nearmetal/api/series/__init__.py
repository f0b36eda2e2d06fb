"""Studies of several parts: reads their files, plans them, runs them part after part, reads their results.

This package must not know how one part is measured.
"""
