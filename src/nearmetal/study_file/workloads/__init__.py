"""The workloads of a study file: reads and checks their entries.

Must not start anything.
"""
