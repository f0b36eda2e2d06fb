"""Networks between instances, in network namespaces of their own. This package knows no environment.

This file imports nothing, since every run waits for the worker, which is a module of this package.
"""
