"""The backend qemu: virtual machines that QEMU runs, as a program of this tool.

It knows nothing of libvirt and Xen, which have rooms of their own.
"""
