"""Hot loops of the kernels use vector instructions on processors with AVX-512 and without.

Hot loops are marked in the C sources, on the line before the loop or its pragma:

- `/* hot loop: vectorised */`: GCC vectorises the loop. Its vectorisation report has to name it.
- `/* hot loop: vector types */`: the loop computes with vector types or intrinsics. GCC must not report that
  it split a vector operation into scalar ones, and the code has to use the widest registers of the processor.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from nearmetal.host import LocalHost
from nearmetal.host.facts.provenance import cpu_flags
from nearmetal.workloads.build import compiler_flags, source_directory

REPORTED, TYPED = "vectorised", "vector types"
MARK = re.compile(rf"\s*/\* hot loop: ({REPORTED}|{TYPED}) \*/\s*")
LINE_MARKER = re.compile(r'# (\d+) "([^"]+)"')
VECTORISED = re.compile(r"(\S+):(\d+):\d+: optimized:\s+loop vectorized using (\d+) byte vectors")
SPLIT = re.compile(r"\[-W(?:error=)?vector-operation-performance\]")
#: Bytes of a vector of AVX2. GCC may prefer these to 64 where the processor has AVX-512.
LEAST_BYTES = 32

#: The least number of marks that the preprocessor leaves in the sources of each kernel. IS has none: counting
#: and grouping keys store to places that depend on the keys before, so two lanes of a vector may meet in one.
MARKS = {"stream": 4, "ep": 3, "cg": 3, "is": 0, "mg": 11, "ft": 2, "lu": 3, "bt": 6}
#: x86-64-v4 has AVX-512. Its code is only compiled here, never run.
ARCHITECTURES = ("native", "x86-64-v3", "x86-64-v4")


def is_gcc() -> bool:
    """Tell whether the gcc of this machine is GCC, and no other compiler by that name."""
    try:
        done = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return "Free Software Foundation" in done.stdout


pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(
        "avx2" not in cpu_flags(LocalHost()), reason="this processor is not an x86-64 with AVX2"
    ),
    pytest.mark.skipif(not is_gcc(), reason="gcc is not GCC, whose report the test reads"),
]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A marked loop.

    line: of the mark.
    first, last: of the loop, from its `for` on.
    """

    kind: str
    file: str
    line: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.kind})"

    def is_named(self, vectorised: set[tuple[str, int]]) -> bool:
        """Tell whether GCC's report names the `for` or a statement in the loop.

        The line of a pragma does not count: there GCC also names loops of its own that prepare a reduction.
        """
        return any((self.file, line) in vectorised for line in range(self.first, self.last + 1))


@dataclass(frozen=True, kw_only=True)
class Source:
    """One translation unit with the command that compiles it."""

    name: str
    directory: str
    command: tuple[str, ...]

    def compile(self, *more: str) -> tuple[str, str]:
        """Run the compiler with more options; return what it wrote, and its messages."""
        words = [word for word in self.command if word != "-c"]
        words[words.index("-o") + 1] = "-"
        done = subprocess.run(
            [*words, *more], cwd=self.directory, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    def marks(self, *more: str) -> list[Mark]:
        """Return the marks in the parts of the source and its headers that the preprocessor leaves."""
        text, _ = self.compile("-E", "-C", *more)
        places: list[tuple[str, int, str]] = []
        file, line = "", 0
        for words in text.splitlines():
            if marker := LINE_MARKER.match(words):
                line, file = int(marker[1]), Path(marker[2]).name
            else:
                places.append((file, line, words))
                line += 1
        found = []
        for at, (file, line, words) in enumerate(places):
            if mark := MARK.fullmatch(words):
                begin, end = loop_extent([text for *_, text in places], at)
                found.append(
                    Mark(kind=mark[1], file=file, line=line, first=places[begin][1], last=places[end][1])
                )
        return found

    def scalar_loops(self, *more: str) -> list[str]:
        """Return the marked loops that do not use vectors, each with its place."""
        marks = self.marks(*more)
        if not marks:
            return []
        assembly, messages = self.compile(
            "-S", "-fopt-info-vec", "-Wvector-operation-performance", "-Wno-error", *more
        )
        vectorised = {
            (Path(file).name, int(line))
            for file, line, width in VECTORISED.findall(messages)
            if int(width) >= LEAST_BYTES
        }
        register = "zmm" if self.has_avx512(*more) else "ymm"
        typed = not SPLIT.search(messages) and bool(re.search(rf"\tv\w+pd\t.*%{register}", assembly))
        return [str(m) for m in marks if not (typed if m.kind == TYPED else m.is_named(vectorised))]

    def has_avx512(self, *more: str) -> bool:
        """Tell whether the compiler may use AVX-512."""
        macros, _ = self.compile("-E", "-dM", *more)
        return "#define __AVX512F__ 1\n" in macros


def loop_extent(text: Sequence[str], begin: int) -> tuple[int, int]:
    """Find the first loop of a piece of C at or after a line.

    begin: the line.
    Returns the line of the `for`, and that of the closing brace of the body or of the semicolon of the only
    statement. Lines are counted from 0.
    """
    first = next(at for at in range(begin, len(text)) if "for (" in text[at])
    depth = 0
    for at in range(first, len(text)):
        for character in text[at]:
            depth += (character in "({") - (character in ")}")
            if depth == 0 and character in ";}":
                return first, at
    raise AssertionError("a loop without an end")


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=lambda march: f"march={march}")
def sources(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    """The sources of nm-micro with the commands that CMake makes for one architecture."""
    build = tmp_path_factory.mktemp("configured")
    subprocess.run(
        [
            *("cmake", "-S", str(source_directory()), "-B", str(build), "-DCMAKE_C_COMPILER=gcc"),
            *(f"-DNEARMETAL_FLAGS={compiler_flags(request.param)}", "-DNEARMETAL_WERROR=OFF"),
            *("-DBUILD_TESTING=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
        ],
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    return [
        Source(
            name=Path(entry["file"]).name,
            directory=entry["directory"],
            command=tuple(shlex.split(entry["command"])),
        )
        for entry in json.loads((build / "compile_commands.json").read_text())
        if "/nm-micro.dir/" in entry["command"]
    ]


def of_kernel(sources: list[Source], kernel: str) -> list[Source]:
    """Return the sources that are named after a kernel."""
    return [source for source in sources if re.fullmatch(rf"{kernel}(_\w+)?\.c", source.name)]


@pytest.mark.parametrize("kernel", MARKS)
def test_hot_loops_are_vectorised(sources: list[Source], kernel: str) -> None:
    own = of_kernel(sources, kernel)
    assert own and sum(len(source.marks()) for source in own) >= MARKS[kernel]
    assert [loop for source in own for loop in source.scalar_loops()] == []


@pytest.mark.parametrize("sources", ["x86-64-v3"], indirect=True, ids=["march=x86-64-v3"])
@pytest.mark.parametrize(
    ("kernel", "flags"),
    [
        ("stream", ["-fno-tree-vectorize"]),  # keeps GCC from vectorising plain loops
        ("ep", ["-fmath-errno"]),  # a square root then may set errno
        ("lu", ["-mno-avx"]),  # no register is as wide as the vector types
    ],
)
def test_a_loop_that_is_not_vectorised_is_found(sources: list[Source], kernel: str, flags: list[str]) -> None:
    assert [loop for source in of_kernel(sources, kernel) for loop in source.scalar_loops(*flags)] != []
