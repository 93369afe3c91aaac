"""All reading and writing of YAML.

What users write is read strictly, and at a bounded cost: scenario files, values of ``--set``, injected faults. A text
without quotes is a number, a boolean or null by the core schema of YAML 1.2, so ``010`` is ten, and ``1:30``,
``1_000``, ``yes`` and ``2024-01-31`` are texts. PyYAML itself reads YAML 1.1, in which they are something else. Merge
keys (``<<``), which only YAML 1.1 has, are read as well. Rejected are tags outside of the core schema, a repeated field
of a mapping, deep nesting, and too many values. The target of an alias or a merge key counts at each use, since a few
short lines can expand to more than fits in memory.

What is written has quotes around each text that a reader of either version could take for something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError

OTHER_BREAKS: Final = frozenset("\x85\u2028\u2029")
"""Line breaks of YAML 1.1 that are ordinary characters in YAML 1.2. PyYAML loses some of them in a block."""
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

PREFIX: Final = "tag:yaml.org,2002:"
MERGE: Final = f"{PREFIX}merge"
INT: Final = f"{PREFIX}int"
FLOAT: Final = f"{PREFIX}float"
CORE_SCHEMA: Final[Mapping[str, re.Pattern[str]]] = {
    f"{PREFIX}null": re.compile(r"(|~|null|Null|NULL)\Z"),
    f"{PREFIX}bool": re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"),
    INT: re.compile(r"([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    FLOAT: re.compile(r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z"),
}
"""What a text without quotes is, by section 10.3.2 of YAML 1.2.2: the first tag whose pattern it matches."""
LIKE_A_VALUE: Final = re.compile(r"([-+.0-9][-+.:_0-9a-fA-FoOxX]*|[yYnN])\Z")
"""Texts that some reader of YAML takes for a number, a date or a boolean, in addition to those that PyYAML takes for
one."""


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


def dump(value: Any, **style: Any) -> str:
    """A value as YAML, in the order of its fields, with texts of several lines as blocks. Every reader of YAML reads
    the same value, equal parts are repeated. ``style`` has options of :func:`yaml.dump`."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **style)


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
        if isinstance(node, yaml.ScalarNode) and (pattern := CORE_SCHEMA.get(node.tag)) is not None:
            if not pattern.match(node.value):  # after a tag that the text itself has
                raise _unreadable(node)
            if node.tag in (INT, FLOAT) and len(node.value) > MAX_DIGITS:
                what = f"a number of more than {MAX_DIGITS} characters"
                raise ConstructorError(None, None, what, node.start_mark)
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


def _core_integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(node.value, 0 if node.value[:2] in ("0o", "0x") else 10)


_StrictLoader.yaml_implicit_resolvers = {}
for _tag, _pattern in {**CORE_SCHEMA, MERGE: re.compile(r"<<\Z")}.items():
    _StrictLoader.add_implicit_resolver(_tag, _pattern, None)
_KINDS: Final = (None, *CORE_SCHEMA, *(f"{PREFIX}{name}" for name in ("str", "seq", "map")))
_StrictLoader.yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in _KINDS}
_StrictLoader.add_constructor(INT, _core_integer)


def _unreadable(node: yaml.Node) -> ConstructorError:
    kind = node.tag.rpartition(":")[2]
    return ConstructorError(None, None, f"cannot be read as {kind}", node.start_mark)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper without aliases. See :func:`dump`."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if OTHER_BREAKS.intersection(text) else "|" if "\n" in text else None
    return dumper.represent_scalar(f"{PREFIX}str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_implicit_resolver(FLOAT, LIKE_A_VALUE, None)
