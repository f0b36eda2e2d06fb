"""Commands that measure. They parse and print; run does the work."""
