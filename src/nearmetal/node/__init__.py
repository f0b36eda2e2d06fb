"""A machine on which trials run: the resources that a run opens once, and the instances that each trial
starts.

This package knows the interfaces of backends, networks and images. It does not know what is measured
(subjects), which counters are read (meters), or which block comes next (run)."""
