"""The gate: code of a scenario or a run passes it before anything of it runs with the user's rights.

Code is policies, custom workloads, kinds of faults and checks, Locustfiles and commands of executors. Programs of
actors are not: they run in the VM. Code by path, next to a scenario, passes. Code whose text is inside a YAML file, a
genesis or a run's folder may come from another party: it passes if the user allows it, by an option or by its SHA-256
in a file of the user.

The gate is open inside a ``with`` block, in its thread. What reads a scenario or a genesis there shows it the code
found (:func:`pass_gate`). Without a gate nothing is refused: the code is that of the caller, as in a process whose
parent has passed the gate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.common.wording import counted, printable
from cluster.scenario.sections.faults import CustomFault
from cluster.scenario.sections.kinds import OwnKind

if TYPE_CHECKING:
    from cluster.scenario.model import Scenario
    from validator.chain.genesis import Genesis

ALLOW: Final = "--allow-code"
"""The option that allows code whose text is inside a YAML file, a genesis or a run's folder."""
FORBID: Final = "--no-code"
"""The option that refuses all code."""
RUN_FILES: Final = ("result.json", "genesis.json")
"""Files by which the folder of a run is known."""
OWN_EXECUTOR: Final = ("stampede", "executor")
"""The first words of the command of the executor that ships, which is no code of a scenario."""


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of code."""

    place: str
    """Path of the field that has it."""
    name: str
    """The file's name, or the command."""
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hex."""
        return digest_of(self.text)

    def __str__(self) -> str:
        lines = counted(len(self.text.splitlines()), "line")
        return f"{printable(self.name)} ({self.place}), {lines}, SHA-256 {self.digest}"


@dataclass(slots=True)
class Gate:
    """The gate of a command. It tells each piece of code that passes, once."""

    allows: bool
    """Whether code may be anywhere."""
    forbids: bool = False
    """Whether no code passes."""
    tell: Callable[[str], None] = lambda line: None
    used_permission: bool = False
    """Whether code has passed that is not by path."""
    _by_path: set[str] = field(default_factory=set)
    _passed: set[str] = field(default_factory=set)

    def take(self, found: Iterable[Code], source: str) -> None:
        """Let code pass, or raise :class:`BadInput` in one line. ``source`` names the file or folder that has it."""
        new = [each for each in {code.digest: code for code in found}.values() if each.digest not in self._passed]
        inside = [each for each in new if each.digest not in self._by_path]
        if new and self.forbids:
            raise BadInput(f"{source}: has code, {new[0]}: {FORBID} refuses it")
        if inside and not self.allows:
            allowed = allowed_digests()
            refused = [each for each in inside if each.digest not in allowed]
            if refused:
                raise BadInput(
                    f"{source}: has code inside, {refused[0]}, which would run with your rights: read it, then give"
                    f" {ALLOW}, or add its SHA-256 to {allowed_file()}"
                )
        self.used_permission = self.used_permission or bool(inside)
        for each in new:
            self.tell(f"executes {each}{f', inside {source}' if each in inside else ''}")
            self._passed.add(each.digest)


_GATE: Final[ContextVar[Gate | None]] = ContextVar("gate", default=None)


@contextmanager
def opened(gate: Gate) -> Iterator[Gate]:
    """Code has to pass a gate inside the block."""
    token = _GATE.set(gate)
    try:
        yield gate
    finally:
        _GATE.reset(token)


def is_open() -> bool:
    """Whether there is a gate to pass: what is read is going to be executed."""
    return _GATE.get() is not None


def pass_gate(found: Iterable[Code], source: str) -> None:
    """Show code to the gate, if there is one. Raises :class:`BadInput`."""
    gate = _GATE.get()
    if gate is not None:
        gate.take(found, source)


def note_path(text: str, path: Path, folder: Path) -> None:
    """Tell the gate that a text was read from a file that a scenario in ``folder`` names, or is a command of it.

    A file of a run's folder is inside of that.
    """
    gate = _GATE.get()
    if gate is not None and not any((place / name).exists() for place in (folder, path.parent) for name in RUN_FILES):
        gate._by_path.add(digest_of(text))


def note_own(found: Iterable[Code]) -> None:
    """Tell the gate that the user has given code on the command line."""
    gate = _GATE.get()
    if gate is not None:
        gate._by_path.update(each.digest for each in found)


def code_of(scenario: Scenario) -> list[Code]:
    """All code of a scenario."""
    policy, load = scenario.chain.policy, scenario.load
    found = [] if isinstance(policy, str) else [Code("chain.policy", f"{policy.name}.py", policy.source)]
    for number, group in enumerate(load.users):
        if not isinstance(group.workload, str):
            found.append(Code(f"load.users[{number}].workload", group.workload.file, group.workload.source))
    found += _kinds(scenario)
    if load.locust is not None:
        found += [Code("load.locust", each.file, each.source) for each in load.locust.files]
    for command in dict.fromkeys(scenario.validators.executors.values()):
        if tuple(command.split()[:2]) != OWN_EXECUTOR:
            found.append(Code("validators.executor", command, command))
    return found


def _kinds(scenario: Scenario) -> list[Code]:
    """The custom kinds of a scenario's faults and its custom checks, and those that its forks bring."""
    found: dict[tuple[str, str], Code] = {}
    forked = ((f"forks[{n}].changes: ", scenario.after_fork(n)) for n in range(len(scenario.forks)))
    for where, each in (("", scenario), *forked):
        kinds = {
            f"faults[{n}].kind": fault.kind for n, fault in enumerate(each.faults) if isinstance(fault, CustomFault)
        }
        kinds |= {f"success.checks[{n}]": own for n, own in enumerate(each.success.checks) if isinstance(own, OwnKind)}
        for place, own in kinds.items():
            found.setdefault((own.file, own.source), Code(f"{where}{place}", own.file, own.source))
    return list(found.values())


def code_of_genesis(genesis: Genesis) -> list[Code]:
    """All code of a genesis."""
    own = genesis.policy_file
    return [] if own is None else [Code("policy", own.file, own.source)]


def option_for(scenario: Scenario, is_copy: bool) -> str:
    """`` --allow-code`` if a command that repeats a run of a scenario needs it, else an empty text.

    ``is_copy`` says whether it names a copy with all texts inside; otherwise it names what the user has named.
    """
    gate = _GATE.get()
    needs = bool(code_of(scenario)) if is_copy else gate is not None and gate.used_permission
    return f" {ALLOW}" if needs else ""


def digest_of(text: str) -> str:
    return sha256(text.encode(ENCODING)).hexdigest()


def allowed_file() -> Path:
    """The file in which the user allows code: a line for each, a SHA-256 in hex and maybe a remark."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "stampede" / "allowed-code"


def allowed_digests() -> Collection[str]:
    """The digests in the user's file. Raises :class:`BadInput` if it cannot be read."""
    path = allowed_file()
    try:
        lines = path.read_text(encoding=ENCODING).splitlines()
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return {line.split()[0].lower() for line in lines if line.split()}
