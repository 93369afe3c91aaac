"""The names of the fields at a location of a scenario, read from the models, for suggestions in errors.

A location is a path as pydantic reports it: the names of fields in the file, the positions of items in lists, and the
kind at places whose models are distinguished by ``kind``. ``root`` is the model of the whole data. The fields of a
fault and a workload's options depend on the ``given`` data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cluster.common.errors import BadInput
from cluster.scenario.sections.faults import kind_named
from cluster.scenario.sections.packaged import with_sections
from loadgen.workloads import OwnWorkload
from loadgen.workloads.own import known_kind

Step = str | int
"""A step of a location: the name of a field, or the position of an item in a list."""


def fields_at(root: type[BaseModel], location: Sequence[Step], given: Any) -> list[str]:
    """The names of the fields at a location of the model ``root``; empty if it is no section or is unknown."""
    found: Any = with_sections(root, location[:1])
    for position, step in enumerate(location):
        if _is_options(location[: position + 1]):
            found = _options_type(location[:position], given)
        elif position == 1 and location[0] == "faults":
            found = _fault_type(step, given)
        else:
            found = _inside(found, step)
    return [name for model in _models(found) for name in _fields(model)]


def _inside(kind: Any, step: Step) -> Any:
    """The type of a field or an item of a type; ``None`` if it is unknown."""
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
    """The types of a union; any other type is yielded itself."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for each in get_args(kind):
            yield from _alternatives(each)
    else:
        yield kind


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    return (each for each in _alternatives(kind) if isinstance(each, type) and issubclass(each, BaseModel))


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by their names in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)


def _fault_type(position: Step, given: Any) -> Any:
    """The model of a fault."""
    try:
        return kind_named(given["faults"][position]["kind"])
    except (BadInput, LookupError, TypeError):
        return None


def _is_options(location: Sequence[Step]) -> bool:
    return len(location) == 4 and tuple(location[:2]) == ("load", "users") and location[3] == "options"


def _options_type(group: Sequence[Step], given: Any) -> Any:
    """The model of the options of a group of users. A custom workload's is known once its text was executed."""
    place = given
    try:
        for step in (*group, "workload"):
            place = place[step]
        kind = known_kind(OwnWorkload.model_validate(place) if isinstance(place, dict) else place)
    except (LookupError, TypeError, ValueError):
        return None
    return None if kind is None else kind.options_type
