"""The backend xen: virtual machines of a Xen hypervisor, controlled with xl on its dom0.

It must not import the backends qemu and libvirt.
"""
