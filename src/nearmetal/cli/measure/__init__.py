"""Commands that measure. They parse and print; api does the work."""
