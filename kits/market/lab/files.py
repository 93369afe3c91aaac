"""Experiments and policies that do not ship: from files of the user, and from installed packages.

Code of a file passes the gate (:mod:`cluster.scenario.code.gate`) before it is executed. A lab keeps the text, so that
its pages can be made again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cluster.common.errors import BadInput, HarnessError
from cluster.common.plugins import EXPERIMENTS, load, points
from cluster.common.suggestions import unknown
from cluster.scenario.code.gate import Code, pass_gate
from cluster.scenario.code.programs import python_file
from cluster.scenario.files import scenario_from
from cluster.scenario.sections.kinds import OwnKind
from kits.market.lab.experiment import PLACE, Experiment, class_of, described
from loadgen.workloads.actor_program import is_program_path
from validator.chain.genesis import PolicyFile
from validator.policies.own import PolicyError, phase_of_file
from validator.primitives.offered import expect_class
from validator.primitives.user_file import UserFileError, one_line


@contextmanager
def users_code(experiment: Experiment) -> Iterator[None]:
    """Turns exceptions of a user's code, the experiment's or a policy's, into :class:`BadInput` of one line."""
    file = None if experiment.file is None else experiment.file.file
    try:
        with nullcontext() if file is None else one_line(file, unchanged=(HarnessError,)):
            yield
    except UserFileError as error:
        raise BadInput(str(error)) from error


def from_text(fields: Mapping[str, Any], source: str) -> Experiment:
    """The experiment of a file's name and text; ``source`` has them. Raises :class:`BadInput`."""
    try:
        own = OwnKind.model_validate(dict(fields))
        pass_gate([Code(PLACE, own.file, own.source)], source)
        return class_of(own)()
    except (ValidationError, UserFileError) as error:
        text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise BadInput(f"{source}: {text}") from error


def of_packages(shipped: Mapping[str, Experiment]) -> dict[str, Experiment]:
    """The experiments of installed packages, by name. What cannot be used is told in one line."""
    found: dict[str, Experiment] = {}
    for point in points(EXPERIMENTS):
        is_taken = point.name in shipped or point.name in found
        try:
            found[point.name] = load(point, partial(_offered, point.name), is_taken)
        except BadInput as error:
            print(f"stampede: {error}", file=sys.stderr)
    return found


def _offered(name: str, found: Any) -> Experiment:
    kind: Any = expect_class(found, Experiment, name, lambda kind: kind.name)
    return described(kind())


def experiment_of(given: str, shipped: Mapping[str, Experiment]) -> Experiment:
    """The experiment of a name or of the path of a file. Raises :class:`BadInput`."""
    if is_program_path(given):
        return from_text(python_file(given, Path(), PLACE), given)
    known = shipped if given in shipped else {**shipped, **of_packages(shipped)}
    if given not in known:
        raise BadInput(unknown("experiment", given, known))
    return known[given]


def policies_of(paths: Sequence[str]) -> dict[str, PolicyFile]:
    """The policies of files, by name. Raises :class:`BadInput`."""
    found: dict[str, PolicyFile] = {}
    for path in paths:
        if not is_program_path(path):
            raise BadInput(f"--policy {path}: expected the path of a Python file, such as ./{path}.py")
        policy = policy_from(path, f"--policy {path}")
        if policy.name in found:
            raise BadInput(f"--policy {path}: another policy is named {policy.name}, too; expected different names")
        found[policy.name] = policy
    return found


def policy_from(given: str | Mapping[str, Any], source: str) -> PolicyFile:
    """The policy of a path, or of name and text. Raises :class:`BadInput`."""
    chain = scenario_from({"name": "policy", "chain": {"policy": given}}, source).chain
    policy = chain.policies()[1]
    assert policy is not None, "it is no shipped one"
    try:
        phase_of_file(policy)
    except PolicyError as error:
        raise BadInput(f"{source}: {error}") from error
    return policy
