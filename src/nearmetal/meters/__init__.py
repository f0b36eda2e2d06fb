"""Counters around trials and inside their timed parts: control groups, networks, instances.

This package knows the node and its instances. It does not know what the timed work is (subjects), or what its
counters are used for (analysis)."""
