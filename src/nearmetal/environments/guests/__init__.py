"""Code shared by the backends of virtual machines: the running guest, its requirements, and its boot.

This package must not know which hypervisor runs the guest.
"""
