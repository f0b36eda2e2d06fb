"""Validate values of a file with a pydantic model: return them, or report every mistake with its position."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args, get_origin

from ..errors import Mark
from ..model.keys import did_you_mean
from .problems import Path, Problems, clip
from .tree import Located, mark_of, plain_data

Kind = TypeVar("Kind")

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from ..model.environments.environment import BackendSettings

    Model = TypeVar("Model", bound=BaseModel)


class Locate(Protocol):
    """Returns the position of the value at a path, or that of its key if `key` is set. If the path does not
    exist, returns the position of its nearest existing parent."""

    def __call__(self, path: Path, *, key: bool = False) -> Mark: ...


def validate(model: type[Model], found: Located) -> Model | None:
    """Return the values of a node as a model. See validate_data()."""
    node = found.node
    return validate_data(model, plain_data(node), partial(mark_of, node), found.path, found.problems)


def validate_data(
    model: type[Model], data: object, locate: Locate, path: Path, problems: Problems
) -> Model | None:
    """Return data of a file as a model. Every mistake is added to problems.

    If only some keys have mistakes, they are added to problems.unread. The model is then made from the other
    keys, so that these can still be checked against the rest of the file. Returns None if that is impossible.

    locate: returns positions in the file, for paths in the data.
    path: path of the data in the file, for messages.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as e:
        errors = e.errors(include_url=False, include_input=False)
    for error in errors:
        _add(error, model, locate, path, problems)
    bad = {error["loc"][0] for error in errors if error["loc"]}
    if not isinstance(data, dict) or not bad:
        return None
    problems.unread |= {(*path, key) for key in bad if key in data}
    try:
        return model.model_validate({k: v for k, v in data.items() if k not in bad})
    except ValidationError:
        return None


def read(
    kind: type[Kind], found: Located, *, own: tuple[type[BackendSettings], ...] = (), **given: Any
) -> Kind | None:
    """Parse a node of a study file to a dataclass that declares keys (model.keys). Return None if it has
    mistakes; see validate_data().

    own: classes of backend settings whose keys the node may contain.
    given: values of the fields that have no key.
    """
    from .sections import made, section_of

    section = validate(section_of(kind, own), found)
    if section is None:
        return None
    out: Kind = made(section, **given)
    return out


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by their keys in a file. If a field cannot have the name of its key, such
    as `class`, the key is its alias."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def required(annotation: Any) -> Any:
    """Return X for 'X | None'; any other annotation unchanged."""
    others = [a for a in get_args(annotation) if a is not type(None)]
    return others[0] if len(others) == 1 and len(get_args(annotation)) == 2 else annotation


def _add(
    error: Mapping[str, Any], model: type[BaseModel], locate: Locate, path: Path, problems: Problems
) -> None:
    loc: Path = tuple(error["loc"])
    kind = str(error["type"])
    on_key = kind == "extra_forbidden" or loc[-1:] == ("[key]",)
    loc = loc[:-1] if loc[-1:] == ("[key]",) else loc
    problems.add(locate(loc, key=on_key), path + loc, _message(kind, error, model, loc, problems))


def _message(
    kind: str, error: Mapping[str, Any], model: type[BaseModel], loc: Path, problems: Problems
) -> str:
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "extra_forbidden":
        # After 100 mistakes, suggestions are left out: nobody reads them, and they cost time.
        known = _keys(model, loc[:-1]) if len(problems.found) < 100 else ()
        return f"unknown key{did_you_mean(str(loc[-1]), known)}"
    if kind == "missing":
        return f"missing; write {loc[-1]}{problems.sign} {_example(model, loc) or '…'}"
    if kind in ("model_type", "model_attributes_type", "dict_type", "dataclass_type"):
        return f"expected keys with values, such as {_first_line(model, loc, problems.sign)}"
    if kind in ("list_type", "tuple_type"):
        return f"expected a list, such as {_example(model, loc) or '[a, b]'}"
    if kind == "too_short":
        return "a value is missing here"
    return clip(str(error["msg"]), 200)


def _keys(model: type[BaseModel], loc: Path) -> tuple[str, ...]:
    found = _model_at(model, loc)
    return tuple(keys_of(found)) if found is not None else ()


def _model_at(model: type[BaseModel], loc: Path) -> type[BaseModel] | None:
    """Return the model of the keys at a path below another model; None if there is none. In a mapping with
    free names, every name leads to the model of its entries."""
    from pydantic import BaseModel

    at: Any = model
    for part in loc:
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = keys_of(at).get(str(part))
            at = field.annotation if field else None
        else:
            at = next((a for a in reversed(get_args(at)) if a not in (type(None), ...)), None)
        while at is not None and not isinstance(at, type) and get_origin(at) not in (dict, list, tuple):
            at = next((a for a in get_args(at) if a is not type(None)), None)  # X | None, Annotated[X, ...]
    return at if isinstance(at, type) and issubclass(at, BaseModel) else None


def _example(model: type[BaseModel], loc: Path) -> str:
    """Return the first example of the field at a path, as YAML on one line; '' if there is none."""
    holder = _model_at(model, loc[:-1])
    field = keys_of(holder).get(str(loc[-1])) if holder is not None and loc else None
    return inline(field.examples[0]) if field is not None and field.examples else ""


def _first_line(model: type[BaseModel], loc: Path, sign: str) -> str:
    """Return the first key of the model at a path with its example, such as 'backend: native'."""
    found = _model_at(model, loc)
    if found is None:
        return _example(model, loc) or f"key{sign} value"
    name, field = next(iter(keys_of(found).items()))
    return f'"{name}{sign} {inline(field.examples[0])}"' if field.examples else f"{name}{sign} …"


def inline(value: object) -> str:
    """Return a value as YAML on one line, for examples in messages."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(inline(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
