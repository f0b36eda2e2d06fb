"""The commented study file that `nearmetal init` writes. It can be run as it is or changed."""

from __future__ import annotations

from .catalog import Catalog
from .dump import SCHEMA_LINE
from .explain import kernel_lines

_HEAD = """\
# A study: what is compared (environments), where (placements), by what (workloads), how (design).
#   nearmetal plan FILE     order and time, nothing is started
#   nearmetal run FILE      measure; Ctrl-C saves, nearmetal resume goes on
#   nearmetal init --explain   every key and unit

name: first
question: What does a container cost against bare metal?

environments:
  native: # the machine itself: what the others are compared with
    backend: native
    attachment: host
    placements: [1x2]
  native-tcp: # the same over TCP: separates the cost of TCP from that of the container
    backend: native
    attachment: loopback
    placements: [1x2]
  namespaces: # a container built from plain namespaces and cgroups
    backend: namespaces
    image: host # this machine's own files, so the binaries are the same
    attachment: veth-bridge
    placements: [1x2, 2x1]
    # limits: {cpu: 150 %, memory: 2 GiB}

placements:
  1x2: # one instance with two MPI ranks: they share memory
    instances: 1
    tasks: 2
  2x1: # two instances with one rank each: they meet over the network
    instances: 2
    tasks: 1
    # cpus: [0, 1] # the CPU of each rank; chosen alike on all sides if omitted

workloads:
  stream-2m: # memory bandwidth, the classic size
    kernel: stream
    elements: 2 M
    pages: huge
  stream-2m-4k: # where 4 KiB pages land differs from process to process: see what that costs
    kernel: stream
    elements: 2 M
    pages: 4k
    metrics: [triad]
  stream-big: # with the turns of others, at least four times the last-level cache
    kernel: stream
    elements: auto
  ep: # pure computation
    kernel: ep
    class: S
  cg: # irregular memory access and small messages
    kernel: cg
    class: S
    # matrix: {class: [S, W]} # instead of class: two workloads, cg-S and cg-W
  is: # integer sort, large messages
    kernel: is
    class: S
  latency:
    kernel: pingpong
    bytes: 8 B
    measure: latency
  bandwidth:
    kernel: pingpong
    bytes: 4 MiB
    measure: bandwidth
  start: # from the request to the first instruction inside
    subject: start
  # lammps: # a program of your own: argv, and where its output has each number
  #   command: [lmp, -in, in.lj]
  #   mpi: true
  #   env: {OMP_NUM_THREADS: 1}
  #   time_limit: 10 min
  #   metrics:
  #     loop:
  #       regex: 'Loop time of ([\\d.]+)'
  #       unit: s
  #       better: lower
"""
_DESIGN = """
design:
  baselines: [native, native-tcp]
  margin: 3 % # overhead that matters, as time; fixed before data
  max_time: 90 s
  # seed: 32570 # fixes the order; drawn and recorded if omitted
  # primary: [cg.rate] # makes it a confirmatory study of the metrics named
"""


def template(catalog: Catalog) -> str:
    """Return the text of the study file. It loads without mistakes with this catalogue."""
    kernels = "".join(f"  # {line}\n" for line in kernel_lines(catalog))
    return f"{SCHEMA_LINE}\n{_HEAD}\n  # Kernels and their parameters:\n{kernels}{_DESIGN}"
