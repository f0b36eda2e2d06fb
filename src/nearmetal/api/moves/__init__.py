"""Checkpoint, restore and migrate instances: by which methods, what each will take, what prevents it.

This package must not know studies and their runs.
"""
