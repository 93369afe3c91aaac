"""Scenario files: how they are read, and changed from outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cluster.errors import BadInput
from cluster.scenario.model import Scenario
from cluster.scenario.problems import describe, one_line
from cluster.settings import Change, SettingError, apply_changes


def load_scenario(path: Path) -> Scenario:
    """Read and check a scenario file. Raises :class:`BadInput` with file, path and reason in one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise BadInput(f"{path}: no YAML: {line}{one_line(str(error.problem or error))}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: no YAML: {one_line(str(error))}") from None
    except RecursionError:
        raise BadInput(f"{path}: no YAML: nested too deeply") from None
    if not isinstance(data, dict):
        raise BadInput(f"{path}: expected a mapping of scenario fields, got {type(data).__name__}")
    return _checked(data, str(path))


def change_scenario(scenario: Scenario, changes: Sequence[Change], source: str) -> Scenario:
    """The scenario with some fields set anew. Raises :class:`BadInput` with ``source``, path and reason in one line."""
    if not changes:
        return scenario
    try:
        data = apply_changes(scenario.model_dump(mode="json", exclude_unset=True), changes)
    except SettingError as error:
        raise BadInput(f"{source}: {one_line(str(error))}") from None
    return _checked(data, source)


def minimal_fields(scenario: Scenario) -> dict[str, Any]:
    """What a scenario says that is not the default anyway, as plain data that makes it again."""
    return scenario.model_dump(mode="json", exclude_defaults=True)


def _checked(data: dict[str, Any], source: str) -> Scenario:
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise BadInput(f"{source}: {describe(error)}") from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice in one mapping: the first of the two would be lost in silence."""

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
