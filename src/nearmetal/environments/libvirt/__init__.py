"""Backend libvirt: virtual machines that a daemon of libvirt runs, controlled by domain XML and virsh.

Disks, boot and settings of its guests are those of the backend qemu, which it imports. It must not import the
backend xen.
"""
