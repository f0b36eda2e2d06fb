"""The profile of a rank: text to dataclasses, sections added, kernels apart, and what is no profile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.cli.profile import MOST_PAIRS, profile_lines
from nearmetal.errors import TrialFailedError
from nearmetal.model.workloads.profile import CallProfile, PeerProfile, RankProfile
from nearmetal.run.kernel_run import KernelResult, ProfiledRank
from nearmetal.samplers.profile import LaunchProfile, parse_profile
from nearmetal.subjects.launches.profiles import profile_directory, read_profiles

SEND = {"count": 2, "seconds": 0.25, "bytes": 16}
RAW = {
    "rank": 1,
    "ranks": 3,
    "complete": True,
    "clock": "tsc",
    "mpi": "MPICH Version:\t4.0.2",
    "before": 0.5,
    "init": 1.0,
    "finalize": 0.125,
    "sections": [
        {
            "level": 1,
            "compute": 2.0,
            "communication": 0.25,
            "calls": {"MPI_Send": SEND},
            "peers": [{"rank": 0, "messages": 2, "bytes": 16}],
        },
        {
            "level": 4,
            "compute": 4.0,
            "communication": 0.5,
            "calls": {"MPI_Send": SEND, "MPI_Barrier": {"count": 1, "seconds": 0.25, "bytes": 0}},
            "peers": [
                {"rank": 2, "messages": 1, "bytes": 8},
                {"rank": 0, "messages": 1, "bytes": 8},
                {"rank": -1, "messages": 5, "bytes": 40},
            ],
        },
    ],
}


def parsed() -> LaunchProfile:
    return parse_profile(json.dumps(RAW), "f")


def test_the_whole_is_all_sections_together() -> None:
    whole = parsed().whole()
    assert (whole.rank, whole.compute, whole.communication) == (1, 6.0, 0.75)
    assert whole.seconds == 0.5 + 1.0 + 6.0 + 0.75 + 0.125
    assert whole.calls["MPI_Send"] == CallProfile(count=4, seconds=0.5, bytes=32)
    assert whole.calls["MPI_Barrier"] == CallProfile(count=1, seconds=0.25, bytes=0)
    assert whole.peers == (
        PeerProfile(rank=-1, messages=5, bytes=40),
        PeerProfile(rank=0, messages=3, bytes=24),
        PeerProfile(rank=2, messages=1, bytes=8),
    )
    assert whole.messages == 9


def test_a_kernel_is_its_own_section() -> None:
    second = parsed().kernel(1)
    assert (second.init, second.compute, second.communication) == (1.0, 4.0, 0.5)
    assert set(second.calls) == {"MPI_Send", "MPI_Barrier"}
    first = parsed().kernel(0)  # never entered: a kernel that did not run
    assert (first.compute, first.calls, first.peers) == (0, {}, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        "{",
        json.dumps({k: v for k, v in RAW.items() if k != "init"}),
        json.dumps(RAW | {"before": None}),
        json.dumps(RAW | {"sections": [{"level": 1}]}),
        json.dumps(RAW | {"sections": 5}),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(TrialFailedError, match="unreadable profile"):
        parse_profile(text, "f")


@given(st.text(max_size=40))
def test_noise_is_refused_and_nothing_else(text: str) -> None:
    with pytest.raises(TrialFailedError):
        parse_profile(text, "f")


def test_every_rank_has_to_have_written(tmp_path: Path) -> None:
    directory = profile_directory(tmp_path)
    assert directory != profile_directory(tmp_path)
    (directory / "profile.0.json").write_text(json.dumps(RAW))
    assert len(read_profiles(directory, 1)) == 1
    with pytest.raises(TrialFailedError, match="rank 1 wrote no profile"):
        read_profiles(directory, 2)


def rank(number: int, peers: int) -> ProfiledRank:
    profile = RankProfile(
        rank=number,
        complete=True,
        before=0.001,
        init=0.1,
        compute=2.0,
        communication=1.0,
        finalize=0.02,
        calls={
            "MPI_Wait": CallProfile(count=1200, seconds=0.75, bytes=0),
            "MPI_Isend": CallProfile(count=1200, seconds=0.25, bytes=9600),
        },
        peers=tuple(PeerProfile(rank=p - 1, messages=600, bytes=4800) for p in range(peers)),
    )
    return ProfiledRank(wall=3.125, whole=profile, kernel=profile)


def test_lines_for_people() -> None:
    assert profile_lines(()) == []
    assert profile_lines([rank(0, 2), rank(1, 0)]) == [
        "rank  before MPI    init  compute  communication  finalize      sum     wall",
        "0           1 ms  100 ms  2.000 s        1.000 s     20 ms  3.121 s  3.125 s",
        "1           1 ms  100 ms  2.000 s        1.000 s     20 ms  3.121 s  3.125 s",
        "",
        "call in the kernel, all ranks  count    time  handed over",
        "MPI_Wait                       2,400   1.5 s          0 B",
        "MPI_Isend                      2,400  500 ms      19.2 kB",
        "",
        "messages in the kernel  count    bytes",
        "0 to outside              600  4.80 kB",
        "0 to 0                    600  4.80 kB",
    ]


def test_pairs_beyond_the_limit_are_counted() -> None:
    lines = profile_lines([rank(n, 5) for n in range(5)])
    assert lines[-1] == f"and {25 - MOST_PAIRS} more pairs; --json has them"


def test_json_has_the_whole_and_the_kernel() -> None:
    out = rank(0, 1).as_json()
    assert out["wall"] == 3.125 and out["seconds"] == pytest.approx(3.121)
    inside = out["kernel"]
    assert isinstance(inside, dict) and set(inside) == {"compute", "communication", "calls", "peers"}
    assert json.loads(json.dumps(out))["peers"] == [{"rank": -1, "messages": 600, "bytes": 4800}]


def test_a_result_without_a_profile_says_nothing_of_one() -> None:
    result = KernelResult(
        kernel="cg",
        ranks=2,
        threads=1,
        parameters={},
        verified=True,
        expected={},
        found={},
        seconds=0.5,
        work=1e6,
        metrics={},
        transport={},
    )
    assert "profile" not in result.as_json()
    profile = replace(result, profile=(rank(0, 1),)).as_json()["profile"]
    assert isinstance(profile, list) and len(profile) == 1
