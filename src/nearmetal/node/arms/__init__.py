"""The instances of an arm: how they are started, found and made reachable, and what exists beside them.

Must not know a backend by name, or what is measured.
"""
