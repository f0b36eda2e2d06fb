"""Backend libvirt: virtual machines started by libvirt's daemon, by its XML and its commands.

Its guests have the disks, boot and settings of the backend qemu, which it imports. It must not import the
backend xen.
"""
