"""Workloads: built-in kernels, applications and users' own programs. This package must not import
environments."""
