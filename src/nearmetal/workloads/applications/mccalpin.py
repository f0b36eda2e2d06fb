"""McCalpin's STREAM, as built by the user: parses the table that stream.c prints.

The built-in kernel `stream` supports slices and MPI. This application is for a build whose results are
already known from other measurements."""

from __future__ import annotations

import re

from ...model.study import Better
from ..numbers import number, unit_size, words_of_lines
from ..parameter import Choices, Parameter
from ..program_output import ending
from .contract import Invocation, Output, Parsed, Place, metrics_of
from .several import OwnBuild, program_parameter

_LINES = {"Copy:": "copy", "Scale:": "scale", "Add:": "add", "Triad:": "triad"}
_HEADING = re.compile(r"^Function +(?:Best )?Rate \(?([A-Za-z/]{1,9})\b", re.MULTILINE)
_ELEMENTS = re.compile(r"^Array size = ([0-9]{1,18})\b", re.MULTILINE)
_VALID, _INVALID = "Solution Validates", "Failed Validation"


class McCalpinStream(OwnBuild):
    name = "mccalpin-stream"
    doc = "McCalpin's STREAM by the path of your own build"
    parameters: tuple[Parameter, ...] = (program_parameter("stream_c.exe"),)

    def command(self, choices: Choices, place: Place) -> Invocation:
        return Invocation(argv=(choices.word("program"),))

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return tuple((name, "B/s", Better.HIGHER) for name in _LINES.values())

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        text = output.stdout
        heading = _HEADING.search(text)
        unit = (unit_size(heading[1], "B/s") if heading else None) or 0.0
        # The first number after the name is the best rate.
        rates = {
            _LINES[words[0]]: rate * unit
            for words in words_of_lines(text)
            if words[0] in _LINES and len(words) == 5 and (rate := number(words[1]) or 0.0) * unit > 0
        }
        missing = f"no line for it: {ending(text)}" if unit else "no heading 'Function    Best Rate MB/s'"
        elements = _ELEMENTS.search(text)
        return Parsed(
            metrics=metrics_of(self.metrics(choices), rates, lambda _: missing),
            ok=_VALID in text and _INVALID not in text,
            expected=_VALID,
            found=_VALID if _VALID in text else _INVALID if _INVALID in text else ending(text),
            facts={"elements": int(elements[1]) if elements else None},
        )
