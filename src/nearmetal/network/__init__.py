"""Networks that instances are joined by, in network namespaces of their own. Knows no environment.

Imports nothing here: the worker, which every run waits for, is a module of this room."""
