"""Studies of several parts: plans them, runs them part after part, and shows their results as a whole."""
