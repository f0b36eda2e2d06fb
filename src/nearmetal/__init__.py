"""What a container or a virtual machine costs a workload, with a verdict that stays true."""

__version__ = "0.1.0"

RESULTS = "results"
"""Default directory of results directories."""
