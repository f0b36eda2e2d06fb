"""A machine on which trials run: what is opened once for a run, and the instances that a trial starts on it.

Knows the contract of backends, networks and images. Knows neither what is measured (subjects), nor what is
counted meanwhile (meters), nor which block comes next (run)."""
