"""Runs of studies: rehearsal, blocks, the stop rule, resuming, and studies made from a command line.

Of the packages that start processes on a machine, only this one depends on the plan and the analysis."""
