"""The backend libvirt: virtual machines that libvirt's daemon starts, by its XML and its commands."""
