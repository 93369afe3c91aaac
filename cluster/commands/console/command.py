"""Commands of ``stampede`` as dataclasses: a field is an option or an argument, and :meth:`Command.run` does the work.

A module with commands defines ``COMMANDS``: its commands, keyed by name. :func:`add_commands` creates argparse parsers
for them. The namespace that a parser returns has an attribute ``make``: a function that returns the command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from cluster.common.files import check_folder, check_target
from cluster.record.folder import RUNS_FOLDER
from validator.primitives.user_file import nothing_runs

ADD: Final = "add"
"""Key in a field's metadata. Its value is the function that adds the field to a parser."""
NAME: Final = "name"
"""Key in a field's metadata. Its value is the option's name if that differs from the field's name, else ``None``."""
IS_ARGUMENT: Final = "is_argument"
"""Key in a field's metadata. Its value is true for a positional argument."""
WRITES: Final = "writes"
"""Key in a field's metadata. Its value is :data:`FILE` or :data:`FOLDER` for a path that the command writes, else
``None``."""
FILE: Final = "FILE"
FOLDER: Final = "DIR"
OPTIONAL: Final = "?"
SEVERAL: Final = "+"


class Topic(StrEnum):
    """The headings of ``stampede --help``, in their order. The text is that of the heading."""

    RUN = "run a scenario"
    LOOK = "look into a run"
    SEARCH = "search for bugs"
    TEST = "test your implementation"
    ECONOMICS = "economics"
    KUBERNETES = "Kubernetes"
    TOOLS = "tools"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command with the values of its options. Subclasses are frozen dataclasses with keyword fields."""

    HELP: ClassVar[str]
    """Help text in the list of commands."""
    TOPIC: ClassVar[Topic] = Topic.TOOLS
    """The heading under which ``stampede --help`` lists the command."""
    DESCRIPTION: ClassVar[str] = ""
    """Text at the beginning of the command's help page. If it is empty, :attr:`HELP` is used."""
    EPILOG: ClassVar[str] = ""
    RUNS_CODE: ClassVar[bool]
    """Whether it may execute code of a scenario or a run: policies, workloads, Locustfiles, executors. Each command
    says so. One that does not only reads them, even where it runs chains."""

    def run(self) -> int:
        """Execute the command; returns the exit code. Raises :class:`~cluster.common.errors.HarnessError`."""
        raise NotImplementedError

    def permitted(self) -> AbstractContextManager[object]:
        """The context in which the command runs: it lets code of a scenario or a run be executed, or not."""
        return nullcontext() if self.RUNS_CODE else nothing_runs()

    def check_outputs(self) -> None:
        """Check, before the work, that all files and folders can be written that the command was told to write.

        Files in a folder that the command creates are skipped. ``runs`` is created for a file in it. Raises
        :class:`~cluster.common.errors.BadInput`.
        """
        paths: dict[str, list[Path]] = {FILE: [], FOLDER: []}
        for each in fields(self):
            if each.metadata.get(WRITES) and (path := getattr(self, each.name)) is not None:
                paths[each.metadata[WRITES]].append(path)
        for folder in paths[FOLDER]:
            check_folder(folder)
        created = [folder.resolve() for folder in paths[FOLDER] if not folder.exists()]
        for file in paths[FILE]:
            if file.parent == RUNS_FOLDER:
                with suppress(OSError):  # the check below reports it
                    RUNS_FOLDER.mkdir(exist_ok=True)
            if file.parent.resolve() not in created:
                check_target(file)

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments and options to a parser.

        The arguments of base classes come before those of the class. Its options come before those of base classes.
        """
        own_first = [name for kind in cls.__mro__ for name in vars(kind).get("__annotations__", ())]
        named = {each.name: each for each in fields(cls) if ADD in each.metadata}
        arguments = [name for name, each in named.items() if each.metadata.get(IS_ARGUMENT)]
        for name in dict.fromkeys([*arguments, *(name for name in own_first if name in named)]):
            named[name].metadata[ADD](parser, name)
        parser.set_defaults(make=cls.of_options)

    @classmethod
    def option_name(cls, field_name: str) -> str:
        """The option of a field, such as ``--interval-ms``."""
        (metadata,) = [each.metadata for each in fields(cls) if each.name == field_name]
        return _option_name(field_name, metadata.get(NAME))

    @classmethod
    def of_options(cls, options: argparse.Namespace, **more: Any) -> Command:
        """Create the command from the values that argparse has read. ``more`` are values of further fields."""
        return cls(**{each.name: getattr(options, each.name) for each in fields(cls) if ADD in each.metadata}, **more)


@dataclass(frozen=True)
class Group:
    """Commands that share a first word, such as ``stampede state``."""

    help: str
    commands: Mapping[str, type[Command]]
    metavar: str
    topic: Topic = Topic.TOOLS


@dataclass(frozen=True)
class Filled:
    """A command whose options are slow to load: ``fill`` adds them when the command is used or its help is read."""

    help: str
    fill: Callable[[argparse.ArgumentParser], None]
    topic: Topic


Commands: TypeAlias = Mapping[str, "type[Command] | Group | Filled"]


def add_commands(subparsers: argparse._SubParsersAction[Any], commands: Commands) -> None:
    """Add an argparse parser for each command."""
    for name, each in commands.items():
        if isinstance(each, Group):
            parser = subparsers.add_parser(name, help=each.help, description=each.help)
            tools = parser.add_subparsers(required=True, metavar=each.metavar, parser_class=type(parser))
            add_commands(tools, each.commands)
        elif isinstance(each, Filled):
            parser = subparsers.add_parser(name, help=each.help, description=each.help)
            parser.fill = each.fill
        else:
            assert isinstance(each.RUNS_CODE, bool), f"{name} says whether it executes code of a scenario or a run"
            text = each.DESCRIPTION or each.HELP
            parser = subparsers.add_parser(name, help=each.HELP, description=text, epilog=each.EPILOG or None)
            if "\n" in each.EPILOG:
                parser.formatter_class = argparse.RawDescriptionHelpFormatter
            each.add_to(parser)
        parser.topic = each.topic if isinstance(each, Group | Filled) else each.TOPIC


def _option_name(field_name: str, name: str | None = None) -> str:
    return name or f"--{field_name.replace('_', '-')}"


def option(
    text: str,
    metavar: str | None = None,
    parse: Callable[[str], object] | None = None,
    *,
    name: str | None = None,
    default: object = None,
    choices: Sequence[str] | None = None,
    nargs: str | None = None,
    repeats: bool = False,
    writes: str | None = None,
    **more: Any,
) -> Any:
    """Define a field of a :class:`Command` as an option, with the help ``text``.

    The option is ``--field-name``, or ``name``. ``parse`` converts a word to a value. ``writes`` is :data:`FILE` or
    :data:`FOLDER` for a path that the command writes; it is also the default of ``metavar``, and that of ``parse`` is
    then :class:`~pathlib.Path`. With ``repeats`` the option can
    be given several times, and the field is the list of all values. With ``nargs`` :data:`SEVERAL`, several words may
    follow an option. If the option is not given, the field is ``default`` or, with ``repeats``, the empty list.
    """
    parse = parse or (str if writes is None else Path)
    given: dict[str, Any] = {"help": text, "metavar": metavar or writes, "type": parse}
    given |= {"choices": choices, "default": default}
    if nargs is not None:
        given["nargs"] = nargs
    if repeats:
        given |= {"action": "append" if nargs is None else "extend", "default": []}
    given |= more

    def add(parser: argparse.ArgumentParser, field_name: str) -> None:
        setattr(parser.add_argument(_option_name(field_name, name), dest=field_name, **given), WRITES, writes)

    return field(metadata={ADD: add, NAME: name, WRITES: writes})


def flag(text: str) -> Any:
    """Define a boolean field of a :class:`Command`, which is true if its option is given."""

    def add(parser: argparse.ArgumentParser, name: str) -> None:
        parser.add_argument(_option_name(name), action="store_true", help=text)

    return field(metadata={ADD: add})


def argument(
    metavar: str,
    text: str,
    parse: Callable[[str], object] = str,
    *,
    nargs: str | None = None,
    default: object = None,
    choices: Sequence[str] | None = None,
    writes: str | None = None,
) -> Any:
    """Define a field of a :class:`Command` as a positional argument.

    ``nargs`` is ``None`` for exactly one word, :data:`OPTIONAL` or :data:`SEVERAL`. ``writes`` is :data:`FILE` or
    :data:`FOLDER` for a path that the command writes.
    """

    def add(parser: argparse.ArgumentParser, name: str) -> None:
        more: dict[str, Any] = {} if nargs is None else {"nargs": nargs, "default": default}
        action = parser.add_argument(name, metavar=metavar, type=parse, help=text, choices=choices, **more)
        setattr(action, WRITES, writes)

    return field(metadata={ADD: add, IS_ARGUMENT: True, WRITES: writes})
