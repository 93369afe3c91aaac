"""Strict parsing of YAML written by users, of bounded cost: scenario files, values of ``--set``, injected faults.

Rejected are a repeated field of a mapping, deep nesting, and too many values. The target of an alias or a merge key
counts at each use, since a few short lines can expand to more than fits in memory.
"""

from __future__ import annotations

from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError

MAX_CHARACTERS: Final = 4 * 1_024 * 1_024
"""Maximum number of characters of a text."""
MAX_NESTED: Final = 50
"""Maximum number of levels of lists and mappings, several times what any field needs."""
MAX_VALUES: Final = 100_000
"""Maximum number of values, lists and mappings together. The largest list of links has 70,000."""
CHARACTERS_PER_VALUE: Final = 64
"""A text counts as one value, plus one for each full run of this many characters."""
MAX_DIGITS: Final = 400
"""Maximum number of characters of a number."""
SHOWN_CHARACTERS: Final = 300
"""Maximum number of characters shown of an error, which may quote the text."""

MERGE: Final = "tag:yaml.org,2002:merge"
NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class NoYaml(ValueError):
    """Raised for a text that is not accepted as YAML. The message names the line, if it is known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem = problem


def parse(text: str) -> Any:
    """The value of a YAML text. Raises :class:`NoYaml`."""
    if len(text) > MAX_CHARACTERS:
        raise NoYaml(f"more than {MAX_CHARACTERS:,} characters")
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise NoYaml(_shortened(str(error.problem or error)), line) from None
    except yaml.YAMLError as error:
        raise NoYaml(_shortened(str(error))) from None


def _shortened(problem: str) -> str:
    return " ".join(problem.split())[:SHOWN_CHARACTERS]


class _StrictLoader(yaml.SafeLoader):
    """A YAML loader that checks the bounds while it composes nodes, before it expands aliases."""

    _depth = 0
    _deepest = 0
    """Greatest depth of the nodes composed since the innermost incomplete node began."""
    _values = 0

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[yaml.Node, tuple[int, int]] = {}
        """Number of values and depth of complete nodes."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event, is_alias = self.peek_event(), self.check_event(yaml.AliasEvent)
        values, deepest = self._values, self._deepest
        self._depth += 1
        self._deepest = self._depth
        self._check_bounds(event)
        node = super().compose_node(parent, index)
        assert node is not None
        if is_alias:
            if node not in self._sizes:
                raise ConstructorError(None, None, "an alias is inside its own target", event.start_mark)
            more, levels = self._sizes[node]
            self._values += more
            self._deepest += levels - 1
        else:
            length = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
            self._values += 1 + length // CHARACTERS_PER_VALUE
            self._sizes[node] = self._values - values, self._deepest - self._depth + 1
        self._check_bounds(event)
        self._depth -= 1
        self._deepest = max(deepest, self._deepest)
        return node

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            if (key.tag, key.value) in seen:
                raise ConstructorError(None, None, f"field {key.value!r} is given twice", key.start_mark)
            seen.add((key.tag, key.value))
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag in NUMBERS and len(node.value) > MAX_DIGITS:
            raise _unreadable(node)
        try:
            return super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, AttributeError):
            if not isinstance(node, yaml.ScalarNode):
                raise
            raise _unreadable(node) from None

    def _check_bounds(self, event: yaml.Event) -> None:
        if self._deepest > MAX_NESTED:
            raise yaml.YAMLError("nested too deeply")
        if self._values > MAX_VALUES:
            what = f"more than {MAX_VALUES:,} values, with the target of an alias counted at each use"
            raise ConstructorError(None, None, what, event.start_mark)  # type: ignore[arg-type]


def _unreadable(node: yaml.Node) -> ConstructorError:
    kind = node.tag.rpartition(":")[2]
    return ConstructorError(None, None, f"cannot be read as {kind}", node.start_mark)
