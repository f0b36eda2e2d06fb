"""Studies of several parts: reads their files, plans them, runs them part after part, reads their results."""
