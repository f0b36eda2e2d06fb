"""What the backends of virtual machines share: the running guest, what it needs of the machine, and its boot.

This package must not know which hypervisor runs the guest.
"""
