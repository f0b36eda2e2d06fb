"""Backend libvirt: virtual machines started by libvirt's daemon, by its XML and its commands."""
