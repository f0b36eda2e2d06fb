"""The backend qemu: virtual machines in a QEMU that nearmetal starts itself.

It must not import the backends libvirt and xen.
"""
