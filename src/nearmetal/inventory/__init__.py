"""Inventories: the machines on which rounds may run, from a file of your own, Slurm, Ansible or LDAP.

This package must not know what runs on the machines.
"""

from .sources import load_inventory
