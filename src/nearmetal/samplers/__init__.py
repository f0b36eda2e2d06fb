"""Counters of the node and its instances once a second, kept raw, parsed when asked. Judges nothing."""

from .reading import Sample, Samples, parse, read_samples
from .sampler import Sampler

__all__ = ["Sample", "Sampler", "Samples", "parse", "read_samples"]
