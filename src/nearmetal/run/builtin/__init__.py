"""The built-in studies that consist of parts, made for this machine.

Must not run anything.
"""
