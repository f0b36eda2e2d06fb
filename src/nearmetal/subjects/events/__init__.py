"""What the subjects checkpoint and migrate are made of: programs, jobs, the probe, and the rows of a record.

This package must not know the subjects themselves, nor other kinds of subjects.
"""
