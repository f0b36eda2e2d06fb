"""Comparisons over several nodes: intervals for both estimands (model.design.Estimand), nodes that disagree,
and nodes that behave unlike the others. Must not know how a node is reached."""
