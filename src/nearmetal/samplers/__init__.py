"""Samples counters of the node and its instances one to ten times a second. The samples are stored as raw
text of /proc and control group files, and parsed when needed.

This package does not depend on what runs on the node, and on what the counters are used for."""

from .reading import Header, Sample, SampleSection, read_sections
from .sampler import Sampler, SamplingCost, costs_in, sampling_cost
from .stream import GUESTS, GuestSampler, Stream
from .windows import Window, in_windows
