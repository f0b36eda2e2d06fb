"""Backends that start containers on this machine, one file for each, and the code that they share.

They must not know a hypervisor. Containers inside a guest are started through its agent."""
