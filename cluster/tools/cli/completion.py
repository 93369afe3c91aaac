"""Completion for shells: static scripts from the argument parsers, with commands, options, choices and scenario names.

A script needs no Python when it completes, so it answers at once. It is written again after an upgrade. A word that is
no command, option or known value is completed as a file, by the shell's default.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cluster.common.errors import ExitCode
from cluster.scenario.files import shipped_scenarios
from cluster.tools.console.command import Command, argument

SCENARIO_ARGUMENTS: Final = ("scenario", "scenarios")
"""Names of arguments for which the names of shipped scenarios are offered."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command."""

    flags: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...] = ()
    """The possible values; empty if there are too many to list."""


@dataclass(frozen=True, slots=True)
class Place:
    """One command or subcommand: what may follow it."""

    path: tuple[str, ...]
    """The words up to here, such as ``("drill", "outage")``; empty for ``stampede`` itself."""
    options: tuple[Option, ...]
    commands: Mapping[str, str]
    """The subcommands, with their help."""
    takes_scenario: bool

    @property
    def name(self) -> str:
        return " ".join(self.path)


def parsers_of(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """A parser and those of all its subcommands, parents first, each with the words up to it."""
    fill = getattr(parser, "fill", None)
    if fill is not None:
        parser.fill = None  # type: ignore[attr-defined]
        fill(parser)
    yield path, parser
    inner: dict[str, argparse.ArgumentParser] = dict(getattr(parser, "words", {}))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner |= action.choices
    for name, each in inner.items():
        yield from parsers_of(each, (*path, name))


def places_of(parser: argparse.ArgumentParser) -> Iterator[Place]:
    """The places of a parser and of all its subcommands, parents first."""
    for path, each in parsers_of(parser):
        yield _place(each, path)


def _place(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Place:
    words: Mapping[str, argparse.ArgumentParser] = getattr(parser, "words", {})
    commands = {name: each.description or "" for name, each in words.items()}
    options: list[Option] = []
    takes_scenario = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands |= {each.dest: each.help or "" for each in action._choices_actions}
        elif action.option_strings:
            values = tuple(map(str, action.choices or ()))
            takes_value = action.nargs != 0
            options.append(Option(tuple(action.option_strings), _line(action, parser), takes_value, values))
        else:
            takes_scenario = takes_scenario or action.dest in SCENARIO_ARGUMENTS
            commands |= {str(choice): "" for choice in action.choices or ()}
    return Place(path, tuple(options), commands, takes_scenario)


def _line(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help of an option in one line."""
    if not action.help or action.help == argparse.SUPPRESS:
        return ""
    filled = action.help % {**vars(action), "prog": parser.prog}
    return " ".join(filled.split())


# --- bash and zsh ---------------------------------------------------------------------------------------------------

BASH: Final = """\
# Completion of stampede for {shell}; made by: stampede completion {shell}
_stampede_commands() {{
    case "$1" in
{commands}
    esac
}}
_stampede_options() {{
    case "$1" in
{options}
    esac
}}
_stampede_values() {{
    case "$1" in
{values}
    esac
}}
_stampede_scenarios() {{
    case "$1" in
        {taking}) echo {scenarios} ;;
    esac
}}
_stampede() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" place="" word found i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case " $(_stampede_commands "$place") " in
            *" $word "*) place="${{place:+$place }}$word" ;;
        esac
    done
    found="$(_stampede_values "$place|$before")"
    if [ -z "$found" ]; then
        case "$cur" in
            -*) found="$(_stampede_options "$place")" ;;
            *) found="$(_stampede_commands "$place") $(_stampede_scenarios "$place")" ;;
        esac
    fi
    COMPREPLY=( $(compgen -W "$found" -- "$cur") )
}}
complete -o default -F _stampede stampede
"""
ZSH_BEGINNING: Final = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def bash_script(places: Sequence[Place], scenarios: Iterable[str], shell: str = "bash") -> str:
    """The script for bash 3.2 or later; with :data:`ZSH_BEGINNING` before it, also that for zsh."""
    values = {
        f"{place.name}|{flag}": option.values
        for place in places
        for option in place.options
        if option.values
        for flag in option.flags
    }
    return BASH.format(
        shell=shell,
        commands=_cases({place.name: place.commands for place in places}),
        options=_cases({place.name: [flag for each in place.options for flag in each.flags] for place in places}),
        values=_cases(values),
        taking="|".join(f'"{place.name}"' for place in places if place.takes_scenario),
        scenarios=" ".join(scenarios),
    )


def _cases(words: Mapping[str, Iterable[str]]) -> str:
    listed = {name: " ".join(found) for name, found in words.items()}
    return "\n".join(f'        "{name}") echo "{text}" ;;' for name, text in listed.items() if text)


def zsh_script(places: Sequence[Place], scenarios: Iterable[str]) -> str:
    """The script for zsh, by its emulation of bash's completion."""
    return ZSH_BEGINNING + bash_script(places, scenarios, "zsh")


# --- fish -----------------------------------------------------------------------------------------------------------

FISH: Final = """\
# Completion of stampede for fish; made by: stampede completion fish
set -g __stampede_places {places}
function __stampede_at
    set -l place ""
    for word in (commandline -opc)[2..-1]
        set -l next (string trim "$place $word")
        contains -- "$next" $__stampede_places; and set place $next
    end
    test "$place" = "$argv"
end
"""


def fish_script(places: Sequence[Place], scenarios: Iterable[str]) -> str:
    """The script for fish."""
    lines = [FISH.format(places=" ".join(_fish(place.name) for place in places if place.path))]
    names = _fish(" ".join(scenarios))
    for place in places:
        at = f"complete -c stampede -n {_fish(f'__stampede_at {_fish(place.name)}')}"
        lines += [f"{at} -f -a {name} -d {_fish(text)}\n" for name, text in place.commands.items()]
        lines += [f"{at} -a {names}\n"] if place.takes_scenario else []
        for option in place.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            value = f" -x -a {_fish(' '.join(option.values))}" if option.values else " -r" if option.takes_value else ""
            lines.append(f"{at} {flags}{value} -d {_fish(option.help)}\n")
    return "".join(lines)


def _fish(text: str) -> str:
    """A text in fish's single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


Writer = Callable[[Sequence[Place], Iterable[str]], str]
SHELLS: Final[Mapping[str, Writer]] = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


@dataclass(frozen=True, kw_only=True)
class Completion(Command):
    RUNS_CODE = False
    shell: str = argument("SHELL", f"one of {', '.join(SHELLS)}", choices=tuple(SHELLS))
    parser: argparse.ArgumentParser
    """The parser of the whole command line."""

    def run(self) -> int:
        print(SHELLS[self.shell](list(places_of(self.parser)), sorted(shipped_scenarios())), end="")
        return ExitCode.PASS
