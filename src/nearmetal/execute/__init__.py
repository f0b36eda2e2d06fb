"""The one orchestrator: blocks of trials in standing instances, each on disk before the next."""
