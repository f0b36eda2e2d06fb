"""Folds the records of trials to one value per block and comparison. Must not know verdicts."""
