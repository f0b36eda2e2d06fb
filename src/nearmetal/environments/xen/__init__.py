"""Backend xen: virtual machines of a Xen hypervisor, controlled by the command xl on its dom0.

It must not import the backends qemu and libvirt.
"""
