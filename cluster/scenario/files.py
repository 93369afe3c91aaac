"""Scenario files: how they are read with what they inherit, and changed from outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from cluster.errors import BadInput
from cluster.scenario.inheritance import EXTENDS, Layer, holder_of, merge_layers
from cluster.scenario.model import Scenario
from cluster.scenario.problems import describe, first_problem, one_line
from cluster.settings import Change, SettingError, apply_changes

MOST_NESTED: Final = 50
"""Lists and mappings in one another that a scenario file may have, several times as many as any field needs."""

MAX_PARENTS: Final = 16
"""Files behind each other that a scenario may be made from."""


def load_scenario(path: Path) -> Scenario:
    """Read and check a scenario file, with the files that it extends.

    Raises :class:`BadInput` with the file that holds what is wrong, its path in there and the reason, in one line.
    """
    layers = _read_layers(path)
    try:
        return Scenario.model_validate(merge_layers(layers))
    except ValidationError as error:
        problem = first_problem(error)
        holder = holder_of(problem.steps, layers)
        inherits = "" if holder == path else f" (inherited by {path})"
        raise BadInput(f"{holder}: {problem}{inherits}") from None


def change_scenario(scenario: Scenario, changes: Sequence[Change], source: str) -> Scenario:
    """The scenario with some fields set anew. Raises :class:`BadInput` with ``source``, path and reason in one line."""
    if not changes:
        return scenario
    try:
        data = apply_changes(scenario.model_dump(mode="json", exclude_unset=True), changes)
        return Scenario.model_validate(data)
    except SettingError as error:
        raise BadInput(f"{source}: {one_line(str(error))}") from None
    except ValidationError as error:
        raise BadInput(f"{source}: {describe(error)}") from None


def minimal_fields(scenario: Scenario) -> dict[str, Any]:
    """What a scenario says that is not the default anyway, as plain data that makes it again."""
    return scenario.model_dump(mode="json", exclude_defaults=True)


def scenario_text(scenario: Scenario, path: Path | None) -> str:
    """A scenario as a file that stands alone: the one at ``path``, comments and all, where that is such a one.

    Where the file inherits from others, or says something else by now, or is gone, the scenario is written out.
    """
    text = None if path is None else _text_that_stands_alone(path, scenario)
    if text is not None:
        return text
    fields = scenario.model_dump(mode="json", exclude_unset=True)
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)


def _text_that_stands_alone(path: Path, scenario: Scenario) -> str | None:
    try:
        text = _read_text(path)
        fields = _parse(text, path)
        stands_alone = EXTENDS not in fields and Scenario.model_validate(fields) == scenario
    except (BadInput, ValidationError):
        return None
    return text if stands_alone else None


# --- reading --------------------------------------------------------------------------------------------------------


def _read_layers(path: Path) -> list[Layer]:
    """The file, its parent, its parent's parent …"""
    layers = [Layer(path, _parse(_read_text(path), path))]
    seen = [path.resolve()]
    while (given := layers[-1].fields.get(EXTENDS, _ABSENT)) is not _ABSENT:
        child = layers[-1].path
        if not isinstance(given, str) or not given:
            raise BadInput(f"{child}: {EXTENDS}: expected the path of a scenario file, got {given!r}")
        parent = child.parent / given
        try:
            text = _read_text(parent)
        except BadInput as error:
            raise BadInput(f"{child}: {EXTENDS}: {error}") from None
        if parent.resolve() in seen:
            chain = " > ".join(str(each) for each in [*(layer.path for layer in layers), parent])
            raise BadInput(f"{child}: {EXTENDS}: goes round in a circle: {chain}")
        if len(layers) > MAX_PARENTS:
            raise BadInput(f"{child}: {EXTENDS}: {path} is made from more than {MAX_PARENTS} files behind each other")
        layers.append(Layer(parent, _parse(text, parent)))
        seen.append(parent.resolve())
    return layers


_ABSENT: Final = object()


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        fields = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise BadInput(f"{path}: no YAML: {line}{one_line(str(error.problem or error))}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: no YAML: {one_line(str(error))}") from None
    if not isinstance(fields, dict):
        raise BadInput(f"{path}: expected a mapping of scenario fields, got {type(fields).__name__}")
    return fields


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice in one mapping: the first of the two would be lost in silence.

    It also refuses what is nested deeper than any scenario, before that costs more than the text is long.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise yaml.YAMLError("nested too deeply")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError):
            if not isinstance(node, yaml.ScalarNode):
                raise
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(None, None, f"cannot be read as {kind}", node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"field {key!r} is given twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)
