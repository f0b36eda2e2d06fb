"""The environments of a study file: reads and checks them, and asks backends what they take.

Must not start anything.
"""
