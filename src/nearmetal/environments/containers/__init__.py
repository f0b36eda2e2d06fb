"""Backends that start containers on this machine: each one file, with what their programs have in common.

They know nothing of virtual machines.
"""
