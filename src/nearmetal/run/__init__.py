"""Runs of studies: rehearsal, blocks, the stop rule, resuming, and studies that a command line asks for.

This is the only package that knows the plan and the analysis together with the machine.
"""
