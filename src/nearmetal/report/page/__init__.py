"""The HTML page: its sections, its assets, and the escaping of every text in it.

Must not read or write results; the caller passes them in.
"""
