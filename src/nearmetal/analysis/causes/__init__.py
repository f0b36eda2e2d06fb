"""Finds where extra time was spent, why, and which change may help.

Must not change an interval or a verdict.
"""
