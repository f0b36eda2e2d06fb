"""Runs of studies: rehearsal, blocks, the stop rule, and resuming.

Of the packages that start processes on a machine, only this one depends on the plan and the analysis."""
