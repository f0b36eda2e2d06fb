"""From records to estimates and verdicts: pure, no I/O. Importing this package imports no numpy; its modules do."""
