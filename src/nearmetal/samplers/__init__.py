"""Counters of the node and its instances, read one to ten times a second, stored raw, and parsed when needed.

This package does not know what runs on the node, or what its counters are used for."""

from .reading import Header, Sample, SampleSection, parse, read_samples, read_sections
from .sampler import Sampler, SamplingCost, costs_in, sampling_cost
from .stream import GUESTS, GuestSampler, Stream
from .windows import Window, in_windows
