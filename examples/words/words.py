"""Application words: how fast wc counts a text of a configurable size."""

from nearmetal.model.study import Better
from nearmetal.workloads.applications.contract import Invocation, Metric, Needs, Output, Parsed, Place
from nearmetal.workloads.parameter import Choices, Kind, Parameter


class Words:
    name = "words"
    doc = "words counted by wc"
    parameters: tuple[Parameter, ...] = (
        Parameter(name="words", kind=Kind.WHOLE, default=1000, most=1_000_000, doc="how many"),
    )

    def needs(self, choices: Choices) -> Needs:
        return Needs(programs=("wc",), packages=("coreutils",))

    def problem(self, choices: Choices, place: Place) -> str | None:
        return None  # or why it does not run on this placement

    def prepare(self, choices: Choices, place: Place) -> tuple[Invocation, ...]:
        return ()

    def command(self, choices: Choices, place: Place) -> Invocation:
        return Invocation(argv=("wc", "-w", "text"), files={"text": "word\n" * (choices.whole("words") or 0)})

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return (("count", "words", Better.HIGHER),)

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        first = output.stdout.split()[:1]
        count = int(first[0]) if first and first[0].isdecimal() else None
        return Parsed(
            metrics=(
                Metric(
                    name="count",
                    unit="words",
                    better=Better.HIGHER,
                    value=count,
                    reason="" if count is not None else "wc printed no number",
                ),
            ),
            ok=count == choices.whole("words"),
            expected=str(choices.whole("words")),
            found=str(count),
        )
