"""Runs of studies: rehearsal, blocks, the stop rule, resuming, and studies that a command line asks for.

Of the packages that start anything on a machine, this is the only one that knows the plan and the analysis.
"""
