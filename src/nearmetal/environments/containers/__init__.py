"""Backends that start containers on this machine, one file for each, and the code that they share.

They do not depend on the code for virtual machines."""
