"""What work runs in: environments, their guests, images, networks and placements.

Must not know workloads or results.
"""
