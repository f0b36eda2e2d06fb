"""Backends that start containers on this machine, one file for each, and what their programs have in common.

They know nothing of virtual machines.
"""
