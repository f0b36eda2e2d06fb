"""Workloads: our kernels (built, named, read back) and users' own programs. Knows no environment."""
