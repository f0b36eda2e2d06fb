"""Launches of programs in a running arm: their command lines, working directories, reports and failures.

This package knows the node, its instances and the meters. It must not know which subject measures a launch.
"""
