"""Formulas by which a printed number follows from others, such as '100 * ({base} - {xen}) / {base}'."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

LONGEST = 500
_NAME = re.compile(r"\{([^{}]*)\}")
_WORD = re.compile(r"(?<![\w.])[^\W\d]\w*")
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": fmean,
    "sqrt": lambda values: math.sqrt(values[0]),
}
"""The functions of a formula, by name. sqrt has one argument."""


@dataclass(frozen=True, kw_only=True)
class Formula:
    """A parsed formula: numbers, + - * /, brackets, the functions above, and names of numbers in braces.

    text: as written.
    names: the names in braces, each once, in the order of the text.
    """

    text: str
    names: tuple[str, ...]
    tree: ast.expr

    @staticmethod
    def parse(text: str, resolve: Callable[[str], str] = str) -> Formula:
        """Return the parsed formula.

        resolve: returns the full name of a number, given the name in braces.

        Raises ValueError, with a message for the user, if the text is not a formula.
        """
        if len(text) > LONGEST:
            raise ValueError(f"longer than {LONGEST} characters")
        for word in _WORD.findall(_NAME.sub(" ", text)):
            if word not in FUNCTIONS:
                raise ValueError(f'names of numbers are written in braces, and "{word}" is not a function')
        names: dict[str, str] = {}

        def variable(match: re.Match[str]) -> str:
            return names.setdefault(resolve(match[1].strip()), f"v{len(names)}")

        python = _NAME.sub(variable, text)
        try:
            tree = ast.parse(python, mode="eval").body
            _check(tree, frozenset(names.values()))
        except (SyntaxError, RecursionError, MemoryError) as e:
            raise ValueError("not a formula; names of numbers are written in braces") from e
        return Formula(text=text, names=tuple(names), tree=tree)

    def value(self, values: Sequence[float]) -> float:
        """Return the result of the formula; nan if it is not defined for these values.

        values: in the order of `names`.
        """
        try:
            return _value(self.tree, values)
        except (ArithmeticError, ValueError):
            return math.nan


def _check(node: ast.expr, variables: frozenset[str]) -> None:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("not a formula: only numbers, names in braces, + - * /, brackets and functions")
        case ast.Constant(value=int() | float()):
            return
        case ast.Name(id=name) if name in variables:
            return
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, variables)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check(left, variables)
            _check(right, variables)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]) if name in FUNCTIONS:
            if name == "sqrt" and len(args) != 1:
                raise ValueError("sqrt has one argument")
            for argument in args:
                _check(argument, variables)
        case _:
            raise ValueError("not a formula: only numbers, names in braces, + - * /, brackets and functions")


def _value(node: ast.expr, values: Sequence[float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return values[int(name[1:])]
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name]([_value(a, values) for a in args])
    raise AssertionError("the formula was checked")
