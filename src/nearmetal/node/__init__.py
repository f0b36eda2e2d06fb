"""A machine on which trials run: what is opened once for a run, and the instances that each trial starts.

This package knows the interfaces of backends, networks and images. It does not know what is measured
(subjects), what is counted meanwhile (meters), or which block comes next (run).
"""
