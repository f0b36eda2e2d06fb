"""Backend qemu: virtual machines run by QEMU processes that nearmetal starts itself.

It must not import the backends libvirt and xen.
"""
