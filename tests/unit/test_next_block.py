"""A block to run, as one process tells it to another."""

from __future__ import annotations

import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.api.studies import study_from
from nearmetal.errors import UsageError
from nearmetal.model.change import replace
from nearmetal.model.plan import Block, NextBlock, TrialSpec
from nearmetal.model.study import KernelWorkload
from nearmetal.plan import make_block
from nearmetal.records.orders import order_from, order_line
from nearmetal.run.workers.worker import check_order

NAMES = st.text(string.ascii_lowercase + '/-_äß"\\ ', min_size=1, max_size=8)
NUMBERS = st.integers(1, 2**62)
SETS = st.dictionaries(NAMES, st.frozensets(NAMES, max_size=4), max_size=4)
TRIALS = st.builds(
    TrialSpec, id=NAMES, block=NUMBERS, position=st.integers(0, 99), arm=NAMES, aa=st.booleans()
)
ORDERS = st.builds(
    NextBlock,
    block=st.builds(
        Block,
        number=NUMBERS,
        trials=st.lists(TRIALS, max_size=4).map(tuple),
        slice_seed=st.integers(0, 2**64 - 1),
    ),
    attempt=NUMBERS,
    slices=st.dictionaries(NAMES, NUMBERS, max_size=4),
    work=st.dictionaries(NAMES, st.dictionaries(NUMBERS, NUMBERS, max_size=3), max_size=3),
    left_out=SETS,
    verified=SETS,
    node=st.just("") | NAMES,
)
STUDY = study_from("quick", 7)


def order() -> NextBlock:
    kernels = [w.name for w in STUDY.workloads if isinstance(w, KernelWorkload)]
    return NextBlock(
        block=make_block(STUDY, 3),
        attempt=1,
        slices=dict.fromkeys(kernels, 6),
        work={name: {2: 100} for name in kernels},
        verified={},
    )


@given(ORDERS)
def test_order_survives_a_round_trip(order: NextBlock) -> None:
    line = order_line(order)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert order_from(line, "file") == order


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b"nonsense",
        b"\xff",
        b"[" * 100_000,
        order_line(order()).replace(b'"attempt":1', b'"attempt":0'),
    ],
)
def test_line_that_is_no_block_is_refused(line: bytes) -> None:
    with pytest.raises(UsageError, match="not a round to run"):
        order_from(line, "file")


def test_an_order_has_to_fit_the_run() -> None:
    good = order()
    check_order(STUDY, good)
    arms = {t.arm: frozenset(good.slices) for t in good.block.trials}
    check_order(STUDY, replace(good, slices={}, left_out=arms))
    two = good.block.trials[:2]
    for bad, why in [
        (replace(good, slices={}), "how many time shares"),
        (replace(good, work={w: {3: 1} for w in good.work}), "how many time shares"),
        (replace(good, block=replace(good.block, trials=())), "has no trials"),
        (replace(good, block=replace(good.block, trials=good.block.trials[:1] * 2)), "twice"),
        (replace(good, block=replace(good.block, number=4)), "not of this round"),
        (
            replace(
                good, block=replace(good.block, trials=(*two[:1], replace(two[1], position=two[0].position)))
            ),
            "twice",
        ),
        (replace(good, block=replace(good.block, trials=(replace(two[0], id="../x"),))), "not of this round"),
        (
            replace(good, block=replace(good.block, trials=(replace(good.block.trials[0], arm="x/y"),))),
            "names environment x/y",
        ),
    ]:
        with pytest.raises(UsageError, match=why):
            check_order(STUDY, bad)


def test_a_worker_needs_no_numpy() -> None:
    modules = "nearmetal.run.workers.worker, nearmetal.records.orders"
    program = f"import sys, {modules}; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
