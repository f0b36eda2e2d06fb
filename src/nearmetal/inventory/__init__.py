"""Inventories: the machines on which rounds may run, from a file of your own, Slurm, Ansible or LDAP."""

from .sources import load_inventory
