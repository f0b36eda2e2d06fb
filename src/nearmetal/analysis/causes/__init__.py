"""Finds where extra time was spent, why, and which change may help.

This package must not change an interval or a verdict.
"""
