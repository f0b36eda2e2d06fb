"""What is counted around trials and inside their timed work: control groups, networks, instances.

Knows the node and its instances. Knows neither what the timed work is (subjects) nor what its counters are
used for (analysis)."""
