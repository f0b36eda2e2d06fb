"""Where extra time went, why, and which change may help.

Must not change an interval or a verdict.
"""
