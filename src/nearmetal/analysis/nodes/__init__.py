"""The node as a factor: two estimands, nodes that disagree, and nodes that behave unlike the others."""
