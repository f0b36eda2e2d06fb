"""Read the parameters of a kernel or an application: texts in the file, values in base units. The types are
those of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...model.keys import did_you_mean
from ...units import UnitError, parse_rate, parse_share, parse_size, parse_time
from ..catalog import ParamType, ParamValue
from ..tree import Located, Scalar

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

Known = Mapping[str, tuple[str, str]]
"""(type, documentation) of each parameter, as in a Catalog."""

Misfit = Callable[[str, ParamValue], str | None]


def read_params(
    owner: str, found: Located, names: tuple[str, ...], known: Known | None, misfit: Misfit
) -> dict[str, ParamValue]:
    """Return the parameters of a node in base units.

    owner: name of the kernel or application, for messages.
    known: types by parameter; None for a frozen study, whose texts show their dimension.
    misfit: returns why a value of the right type is not accepted, or None.
    """
    out: dict[str, ParamValue] = {}
    for name in names:
        _, value = found.entries[name]
        if known is not None and name not in known:
            hint = did_you_mean(name, known) if len(found.problems.found) < 100 else ""
            found.mistake((name,), f"unknown parameter of {owner}{hint}", key=True)
        elif not isinstance(value, Scalar):
            found.mistake((name,), "expected one value, found a list or keys")
        elif value.null:
            found.mistake((name,), "a value is missing here")
        else:
            try:
                out[name] = ParamType.of(known[name][0]).read(value.text) if known else frozen_value(value)
            except UnitError as e:
                found.mistake((name,), str(e))
                continue
            wrong = misfit(name, out[name]) if known is not None else None
            if wrong is not None:
                found.mistake((name,), wrong)
    return out


def frozen_value(scalar: Scalar) -> ParamValue:
    """Return the value of a parameter in a frozen study, without knowing the kernel: a quoted text is a text,
    and a unit shows the dimension."""
    text = scalar.text
    if not scalar.plain:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    for read in (parse_size, parse_share, parse_time, parse_rate):
        try:
            return read(text)
        except UnitError:
            continue
    return text
