"""Engines start workers where a user's jobs run: on this machine, by ssh, or by a batch system.

A worker is the command `run-block DIR`. An engine does not know which blocks its workers run. Which blocks
remain is computed from their records, never from the states that the engine reports.
"""

from .contract import Engine, Job, NamesNodes, State, engine_names, load_engine, parse_options, require_ids

__all__ = [
    "Engine",
    "Job",
    "NamesNodes",
    "State",
    "engine_names",
    "load_engine",
    "parse_options",
    "require_ids",
]
