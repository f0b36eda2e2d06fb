"""Engines start workers where a user's jobs run: on this machine, by ssh, or by a batch system.

A worker is the command `run-block DIR`. An engine knows nothing of blocks, and what remains to be
run is never computed from its states.
"""

from .contract import Engine, Job, NamesNodes, State, engine_names, load_engine, parse_options

__all__ = ["Engine", "Job", "NamesNodes", "State", "engine_names", "load_engine", "parse_options"]
