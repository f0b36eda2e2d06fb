"""Counters of the node and its instances, one to ten times a second, kept raw, parsed when asked."""

from .reading import Sample, Samples, parse, read_samples
from .sampler import Sampler, SamplingCost, costs_in, sampling_cost

__all__ = [
    "Sample",
    "Sampler",
    "Samples",
    "SamplingCost",
    "costs_in",
    "parse",
    "read_samples",
    "sampling_cost",
]
