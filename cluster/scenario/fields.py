"""Which fields a scenario has at a place, and what a field takes, read off the models.

A location is one of pydantic's: fields by their names in the file, positions of items, and the kind behind whatever is
told apart by its kind. ``root`` is the model of the whole. What a workload's options are depends on the scenario, so
that it is looked at, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from loadgen.workloads import WORKLOADS

Step = str | int
"""A field, or the position of an item."""

UNITS: Final = {
    "ms": " of milliseconds",
    "s": " of seconds",
    "kib": " of KiB",
    "bytes": " of bytes",
    "kbps": " of kilobits a second",
    "percent": ", in percent",
    "blocks": " of blocks",
    "heights": " of heights",
}
"""By the last word of a field's name."""


def fields_at(root: type[BaseModel], location: Sequence[Step], given: Any) -> list[str]:
    """The names of the fields that there are at a location; none where that is no section, or is not known."""
    return [name for model in _models(_look(root, location, given)[0]) for name in _fields(model)]


def expected_at(root: type[BaseModel], location: Sequence[Step], given: Any) -> str | None:
    """What the field at a location takes, in words; ``None`` where that cannot be told in a few."""
    return _words(_look(root, location, given)[0], unit_at(root, location, given))


def unit_at(root: type[BaseModel], location: Sequence[Step], given: Any) -> str:
    """`` of milliseconds`` and the like, by the name of the field; empty where that has no unit."""
    before, _, last = _look(root, location, given)[1].rpartition("_")
    return UNITS.get(last, "") if before else ""


def _look(root: type[BaseModel], location: Sequence[Step], given: Any) -> tuple[Any, str]:
    """The type of what stands at a location, ``None`` if it is not known, and the innermost field around it."""
    found: Any = root
    field = ""
    for position, step in enumerate(location):
        if any(True for _ in _models(found)) and isinstance(step, str):
            field = step
        if _is_options(location[: position + 1]):
            found = _options_type(location[:position], given)
        else:
            found = _inside(found, step)
    return found, field


def _inside(kind: Any, step: Step) -> Any:
    """The type of what stands at a step within a type."""
    models = list(_models(kind))
    if len(models) > 1:
        return next((model for model in models if step in _kinds(model)), None)
    if models:
        field = _fields(models[0]).get(str(step))
        return None if field is None else field.annotation
    for each in _alternatives(kind):
        arguments = get_args(each)
        if get_origin(each) in (list, dict) and arguments:
            return arguments[-1]
    return None


def _alternatives(kind: Any) -> Iterator[Any]:
    """The types of a union, ``None`` left out."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for each in get_args(kind):
            yield from _alternatives(each)
    elif kind is not None and kind is not NoneType:
        yield kind


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    return (each for each in _alternatives(kind) if isinstance(each, type) and issubclass(each, BaseModel))


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by their names in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)


def _words(kind: Any, unit: str) -> str | None:
    for each in _alternatives(kind):
        origin = get_origin(each) or each
        if origin is Literal:
            return " or ".join(repr(value) for value in get_args(each))
        if origin in _NAMES:
            return _NAMES[origin] + (unit if origin in (int, float) else "")
        if isinstance(origin, type) and issubclass(origin, BaseModel):
            return "a mapping of fields"
    return None


_NAMES: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a mapping of fields",
}


def _is_options(location: Sequence[Step]) -> bool:
    return len(location) == 4 and tuple(location[:2]) == ("load", "users") and location[3] == "options"


def _options_type(group: Sequence[Step], given: Any) -> Any:
    """The model of the options of a group of users."""
    place = given
    try:
        for step in (*group, "workload"):
            place = place[step]
        return WORKLOADS[place].options_type
    except (LookupError, TypeError):
        return None
