"""The coordinator of a run, and the workers that run its blocks on this machine or on others.

Workers must not know the analysis; the coordinator asks decide.py which block is next.
"""
