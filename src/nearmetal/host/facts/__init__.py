"""Facts about the machine for the record: hardware, settings, topology, devices, boots.

Must not change the machine.
"""
