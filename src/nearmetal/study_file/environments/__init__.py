"""The environments of a study file: reads and checks them, by the keys that backends accept.

Must not start anything."""
