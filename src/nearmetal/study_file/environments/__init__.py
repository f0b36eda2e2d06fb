"""The environments of a study file: reads and checks them, and asks backends which keys they accept.

Must not start anything."""
