"""Workloads: built-in kernels (compiling, naming, reading their output) and users' own programs. This package
knows no environment."""
