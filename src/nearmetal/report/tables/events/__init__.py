"""Tables and sentences on checkpoints and moves. They must not know the format of the report."""
