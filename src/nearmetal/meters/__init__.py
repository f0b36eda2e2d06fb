"""Meters: they read counters before and after trials, and before and after the timed parts of trials, from
control groups, networks and instances.

This package uses the node and its instances. It does not depend on what the timed work is (subjects), and on
what the counters are used for (analysis)."""
