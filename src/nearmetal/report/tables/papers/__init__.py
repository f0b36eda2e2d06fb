"""Our results beside what papers printed and claimed. Must not know the format of the report."""
