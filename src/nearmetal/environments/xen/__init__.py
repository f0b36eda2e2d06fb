"""The backend xen: virtual machines of a Xen hypervisor, by xl on its dom0."""
