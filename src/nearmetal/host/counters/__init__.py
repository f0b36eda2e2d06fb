"""Counters of the kernel: their files, parsers, and what a trial used by them.

Must not know why a counter is read, or what its value means for a verdict.
"""
