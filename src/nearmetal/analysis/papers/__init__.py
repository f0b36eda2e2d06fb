"""Checks of papers: which printed numbers do not follow from others, and which claims hold in measurements.

No printed number enters an estimate.
"""
