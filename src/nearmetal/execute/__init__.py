"""The one orchestrator: blocks of trials in standing instances, every record written before the next block."""
