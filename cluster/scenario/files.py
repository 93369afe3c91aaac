"""Reads scenario files with the files that they extend, and applies changes from the command line."""

from __future__ import annotations

import os
import reprlib
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from blake3 import blake3
from pydantic import ValidationError

from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.common.limits import MAX_HEIGHTS, MAX_SECONDS
from cluster.common.strict_yaml import MAX_CHARACTERS, NoYaml, dump, parse
from cluster.common.suggestions import closest
from cluster.scenario.code.gate import code_of, is_open, note_own, pass_gate
from cluster.scenario.code.programs import with_files_read
from cluster.scenario.inheritance import EXTENDS, Layer, holder_of, merge_layers
from cluster.scenario.model import Scenario
from cluster.scenario.overrides import Change, SettingError, apply_changes, options_of
from cluster.scenario.problems import Problem, all_problems, describe, first_problem, one_line
from cluster.scenario.sections.faults import BaseFault, CustomFault
from cluster.scenario.sections.packaged import section_names
from loadgen.workloads.own import EXECUTES
from validator.primitives.user_file import caused_by

SHIPPED_FOLDER: Final = ROOT / "scenarios"
HASH_DIGITS: Final = 12
"""Hex digits of a scenario's hash."""
MAX_PARENTS: Final = 16
"""Maximum number of files that a scenario file inherits from, through a chain of ``extends``."""


def shipped_scenarios() -> dict[str, Path]:
    """The files of the scenarios that ship, keyed by name."""
    return {file.stem: file for file in SHIPPED_FOLDER.rglob("*.yaml")}


def find_scenario(path: Path) -> Path:
    """The path itself or, for a bare name without a file (``smoke``), the file of the shipped scenario of that name.

    Raises :class:`BadInput` if no shipped scenario has the bare name. Other paths may be missing.
    """
    if path.exists() or path.suffix or len(path.parts) != 1:
        return path
    shipped = shipped_scenarios()
    if path.name not in shipped:
        meant = closest(path.name, sorted(shipped))
        hint = "" if meant is None else f"; did you mean {meant}?"
        raise BadInput(f"{path}: no such file, and no scenario of that name ships{hint}")
    return shipped[path.name]


def scenario_hash(scenario: Scenario) -> str:
    """A short hash of a scenario's meaning: of all its fields with their defaults, wherever they were written."""
    return blake3(scenario.model_dump_json().encode()).hexdigest()[:HASH_DIGITS]


def load_scenario(path: Path | str, changes: Sequence[Change] = ()) -> Scenario:
    """Read and check a scenario file, or a shipped one by its name, with the files that it extends; then change it.

    Inside a gate (:mod:`cluster.scenario.code.gate`) its code has to pass, and is executed to check all of it. Raises
    :class:`BadInput` with the file of the error, the field's path and the reason, in one line.
    """
    file = find_scenario(Path(path))
    layers = _read_layers(file)
    fields = merge_layers(layers)
    try:
        scenario = Scenario.model_validate(fields)
    except ValidationError as error:
        problem = first_problem(error, fields, Scenario, _also())
        raise BadInput(_located(file, layers, problem)) from None
    changed = _changed(scenario, changes, f"{path} with {options_of(changes)}")
    _pass_gate(changed, str(path))
    return changed


def problems_in(path: Path) -> list[str]:
    """All errors of a scenario file, one per line, as in :func:`load_scenario`."""
    try:
        path = find_scenario(path)
        layers = _read_layers(path)
    except BadInput as error:
        return [str(error)]
    fields = merge_layers(layers)
    try:
        Scenario.model_validate(fields)
    except ValidationError as error:
        found = all_problems(error, fields, Scenario, _also())
        return [_located(path, layers, problem) for problem in found]
    return []


def _also() -> list[str]:
    """The fields of a scenario file that the scenario's model has not."""
    return [EXTENDS, *section_names()]


def _located(path: Path, layers: Sequence[Layer], problem: Problem) -> str:
    """An error, with the name of the file that contains it."""
    holder = holder_of(problem.steps, layers)
    return f"{holder}: {problem}" + ("" if holder == path else f" (inherited by {path})")


def change_scenario(scenario: Scenario, changes: Sequence[Change], source: str) -> Scenario:
    """The scenario with changes of the user. Raises :class:`BadInput` with ``source``, path and reason in one line."""
    changed = _changed(scenario, changes, source)
    _pass_gate(changed, source)
    return changed


def _changed(scenario: Scenario, changes: Sequence[Change], source: str) -> Scenario:
    if not changes:
        return scenario
    try:
        data = apply_changes(scenario.model_dump(mode="json", exclude_unset=True), changes)
    except SettingError as error:
        raise BadInput(f"{source}: {one_line(str(error))}") from None
    changed = _scenario_from(data, source)
    before = code_of(scenario)
    note_own(each for each in code_of(changed) if each.text not in [other.text for other in before])
    return changed


def _pass_gate(scenario: Scenario, source: str) -> None:
    if is_open():
        pass_gate(code_of(scenario), source)
        execute_own_code(scenario, source)


def scenario_from(fields: Mapping[str, Any], source: str = "scenario") -> Scenario:
    """The scenario of plain data, as in a file; paths in it are relative to the working directory.

    Raises :class:`BadInput` with ``source``, path and reason in one line.
    """
    scenario = _scenario_from(fields, source)
    _pass_gate(scenario, source)
    return scenario


def _scenario_from(fields: Mapping[str, Any], source: str) -> Scenario:
    given = _with_programs(_plain(fields), Path(), source)
    try:
        return Scenario.model_validate(given)
    except ValidationError as error:
        raise BadInput(f"{source}: {describe(error, given, Scenario, _also())}") from None


def execute_own_code(scenario: Scenario, source: str) -> None:
    """Execute the policy, the workloads, the kinds of faults and the checks that a scenario has as texts, and load the
    checks of packages.

    Reading a scenario executes nothing, and so leaves the rest unchecked. Raises :class:`BadInput` with ``source``,
    path and reason in one line.
    """
    if not code_of(scenario) and not scenario.success.checks:
        return
    given = scenario.model_dump(mode="json", exclude_unset=True)
    try:
        Scenario.model_validate(given, context=EXECUTES)
    except ValidationError as error:
        raise BadInput(f"{source}: {describe(error, given, Scenario)}") from None
    except Exception as error:
        if (caused := caused_by(error, (code.name for code in code_of(scenario)))) is not None:
            raise BadInput(f"{source}: {caused}") from error
        raise


def _with_programs(fields: Any, folder: Path, source: Path | str) -> Any:
    try:
        return with_files_read(fields, folder)
    except BadInput as error:
        raise BadInput(f"{source}: {one_line(str(error))}") from None


def _plain(value: Any) -> Any:
    """A copy of a value in which mappings of any type are dicts, and lists and tuples are lists."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def fault_to_add(scenario: Scenario, fields: Mapping[str, Any], has_end: bool) -> BaseFault:
    """A fault to add to a scenario on the live testnet, from its fields as in ``faults``.

    With ``has_end`` it has to begin before the scenario's end. Raises :class:`BadInput`.
    """
    data = scenario.model_dump(mode="json", exclude_unset=True) | {"faults": [dict(fields)]}
    if not has_end and scenario.stop.duration_s is None:
        data["stop"] = {"height": MAX_HEIGHTS, "timeout_s": MAX_SECONDS}
    try:
        checked = Scenario.model_validate(data)
    except ValidationError as error:
        raise BadInput(describe(error, data, Scenario).removeprefix("faults[0].").removeprefix("faults[0]: ")) from None
    if isinstance(checked.faults[0], CustomFault):
        raise BadInput("kind: a custom kind has code, which only the scenario's file may have; expected a kind by name")
    if problem := checked.live_problem:
        raise BadInput(problem.removeprefix("faults[0]."))
    return checked.faults[0]


def minimal_fields(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain data without defaults, from which it can be rebuilt."""
    return scenario.model_dump(mode="json", exclude_defaults=True)


def scenario_text(scenario: Scenario, path: Path | None) -> str:
    """The text of a self-contained file of a scenario.

    It is the text of the file at ``path``, with its comments, unless that inherits, has changed or is missing.
    """
    text = None if path is None else _text_that_stands_alone(path, scenario)
    if text is not None:
        return text
    return dump(scenario.model_dump(mode="json", exclude_unset=True))


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
    """Read a file and those that it extends: its parent, the parent's parent and so on, in this order."""
    layers = [_layer(path, _read_text(path))]
    seen = [path.resolve()]
    while (given := layers[-1].fields.get(EXTENDS, _ABSENT)) is not _ABSENT:
        child = layers[-1].path
        if not isinstance(given, str) or not given:
            raise BadInput(f"{child}: {EXTENDS}: expected the path of a scenario file, got {reprlib.repr(given)}")
        parent = child.parent / given
        try:
            text = _read_text(parent)
        except BadInput as error:
            raise BadInput(f"{child}: {EXTENDS}: {error}") from None
        if parent.resolve() in seen:
            chain = " > ".join(str(each) for each in [*(layer.path for layer in layers), parent])
            raise BadInput(f"{child}: {EXTENDS}: is a circle: {chain}")
        if len(layers) > MAX_PARENTS:
            raise BadInput(f"{child}: {EXTENDS}: {path} extends a chain of more than {MAX_PARENTS} files")
        layers.append(_layer(parent, text))
        seen.append(parent.resolve())
    return layers


_ABSENT: Final = object()


def _layer(path: Path, text: str) -> Layer:
    return Layer(path, _with_programs(_parse(text, path), path.parent, path))


def _read_text(path: Path) -> str:
    try:
        with open(path, encoding=ENCODING, opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadInput(f"{path}: cannot be read: is no regular file")
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > MAX_CHARACTERS:
        raise BadInput(f"{path}: cannot be read: more than {MAX_CHARACTERS:,} characters")
    return text


def _open_without_waiting(path: str, flags: int) -> int:
    """An opener for :func:`open` that does not block: opening a pipe does not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        fields = parse(text)
    except NoYaml as error:
        raise BadInput(f"{path}: no YAML: {one_line(str(error))}") from None
    if not isinstance(fields, dict):
        raise BadInput(f"{path}: expected a mapping of scenario fields, got {type(fields).__name__}")
    return fields
