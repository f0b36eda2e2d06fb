"""The BLAS library that a program loads, and the kernels that it uses. Both are set by environment variables,
the same for every arm.

Debian's programs are linked to libblas.so.3, which the alternatives system links to one of several libraries,
each in its own directory. OpenBLAS chooses its kernels by the processor's flags, of which a guest may see
fewer. With OPENBLAS_CORETYPE, they are the same on both sides."""

from __future__ import annotations

import os
import re
from collections.abc import Set
from enum import StrEnum
from pathlib import Path

from ....model.record import JsonValue
from ...parameter import AUTO, Choices, Kind, Parameter


class Blas(StrEnum):
    REFERENCE = "reference"
    OPENBLAS = "openblas"
    AS_FOUND = "as-found"


# OpenBLAS's core types for x86-64 that differ in DGEMM, best first, with the CPU flags that each needs. On
# other processors OpenBLAS chooses.
_CORES: tuple[tuple[str, frozenset[str]], ...] = (
    ("SkylakeX", frozenset({"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"})),
    ("Haswell", frozenset({"avx2", "fma"})),
    ("Sandybridge", frozenset({"avx"})),
    ("Nehalem", frozenset({"sse4_2"})),
    ("Core2", frozenset({"ssse3"})),
)
_WORDS = (*(core for core, _ in _CORES), "Zen", "Cooperlake", "SapphireRapids", "ARMV8", "NEOVERSEN1")
SEARCHED = "LD_LIBRARY_PATH"
_DIRECTORY = {Blas.REFERENCE: "blas", Blas.OPENBLAS: "openblas-pthread"}
RATES = {Blas.REFERENCE: 6e9, Blas.OPENBLAS: 40e9, Blas.AS_FOUND: 6e9}
"""For estimates: FLOP/s of one CPU."""
_PACKAGE = {Blas.REFERENCE: "libblas3", Blas.OPENBLAS: "libopenblas0-pthread"}
# OpenBLAS prints this line at its start if OPENBLAS_VERBOSE is set.
_REPORTED = re.compile(r"^Core: ([A-Za-z0-9_]{1,40})\s*$", re.MULTILINE)

PARAMETERS = (
    Parameter(
        "blas",
        Kind.WORD,
        Blas.OPENBLAS,
        "libblas.so.3 that is loaded; as-found: the one that the loader finds",
        words=tuple(Blas),
    ),
    Parameter(
        "core",
        Kind.WORD,
        AUTO,
        "OpenBLAS's kernels in every environment; auto: by the CPU flags of the machine",
        words=_WORDS,
    ),
)


def core_for(cpu_flags: Set[str]) -> str | None:
    """Return OpenBLAS's core type for a processor with these flags, as in /proc/cpuinfo; None to let OpenBLAS
    choose."""
    return next((core for core, needed in _CORES if needed <= cpu_flags), None)


def library(blas: Blas) -> Path | None:
    """Return the path of a library's libblas.so.3 in Debian; None if the installed default is used
    (as-found)."""
    if blas is Blas.AS_FOUND:
        return None
    return Path(f"/usr/lib/{os.uname().machine}-linux-gnu") / _DIRECTORY[blas] / "libblas.so.3"


def package(blas: Blas) -> str | None:
    return _PACKAGE.get(blas)


def chosen(choices: Choices) -> Blas:
    return Blas(choices.word("blas"))


def tuned(choices: Choices) -> bool:
    """Return whether the library computes by vector instructions that are chosen for the processor."""
    return chosen(choices) is Blas.OPENBLAS


def environment(choices: Choices, cpu_flags: Set[str]) -> dict[str, str]:
    """Return the environment variables that make a program load this BLAS, with one thread for each rank."""
    core = choices.word("core")
    return variables(chosen(choices), core_for(cpu_flags) if core == AUTO else core)


def variables(blas: Blas, core: str | None) -> dict[str, str]:
    """Return the environment variables for a BLAS.

    core: OpenBLAS's core type; None for its own choice.
    """
    path = library(blas)
    env = {} if path is None else {SEARCHED: str(path.parent)}
    if blas is not Blas.REFERENCE:
        env |= {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_VERBOSE": "2"}
        if core is not None:
            env["OPENBLAS_CORETYPE"] = core
    return env


def facts(choices: Choices, stderr: str) -> dict[str, JsonValue]:
    """Return facts for the record: the requested BLAS, and the core type that OpenBLAS reported."""
    return {"blas": chosen(choices).value, "openblas_core": " ".join(_reported_cores(stderr)) or None}


def mismatch(choices: Choices, cpu_flags: Set[str], stderr: str) -> str | None:
    """Return why the loaded library is not the requested one; None if it is."""
    blas, cores = chosen(choices), _reported_cores(stderr)
    if blas is Blas.OPENBLAS and not cores:
        return "OpenBLAS was requested and did not report itself: another BLAS was loaded"
    if blas is Blas.REFERENCE and cores:
        return "the reference BLAS was requested, OpenBLAS was loaded"
    core = environment(choices, cpu_flags).get("OPENBLAS_CORETYPE")
    others = [name for name in cores if core is not None and name.lower() != core.lower()]
    return (
        f"OpenBLAS was set to use its kernels for {core}, but used those for {others[0]}" if others else None
    )


def _reported_cores(stderr: str) -> list[str]:
    """Return the core types that the ranks' OpenBLAS reported, without duplicates."""
    return sorted(set(_REPORTED.findall(stderr)))
