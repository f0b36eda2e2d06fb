"""The surroundings of workloads: environments, their guests, images, networks and placements.

This package must not import workloads or results.
"""
