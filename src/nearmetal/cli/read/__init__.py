"""Commands that read results directories. They measure nothing."""
