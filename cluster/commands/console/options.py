"""Options that several commands share, and parsers of option values."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit, urlunsplit

from cluster.commands.console.command import ADD, NAME, Command, flag, option
from cluster.common.errors import BadInput
from cluster.common.limits import MAX_DURATION_S, MAX_SEED
from cluster.common.wording import printable
from cluster.live.web.addresses import LOOPBACK, MAX_PORT, listening_address
from cluster.record.folder import RUN, Kind, replace_at_claim
from validator.primitives.types import parse_decimal

if TYPE_CHECKING:
    from cluster.record.run import Backend
    from cluster.scenario.overrides import Change

UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DURATION: Final = re.compile(r"(?P<number>[1-9][0-9]{0,8})(?P<unit>[smhd])")
FROM_ENVIRONMENT: Final = "env"
COLLECTOR_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's variables with the address of a collector. The first one is complete, the second one is a base."""
TRACES_PATH: Final = "/v1/traces"
SHOWN_CHARACTERS: Final = 40
"""Maximum number of characters of a wrong value that an error shows."""


def whole_number(name: str, least: int, most: int) -> Callable[[str], int]:
    """A parser for an option with an integer from ``least`` to ``most``; ``name`` is for the error message."""

    def read(text: str) -> int:
        number = parse_decimal(text, most)
        if number is None or number < least:
            expected = f"expected an integer from {least:,} to {most:,}"
            raise argparse.ArgumentTypeError(f"{text[:SHOWN_CHARACTERS]!r} is not a valid {name}: {expected}")
        return number

    return read


parse_seed: Final = whole_number("seed", 0, MAX_SEED)


def parse_duration(text: str) -> int:
    """Parse a duration such as ``90s``, ``30m`` or ``24h``; returns seconds."""
    found = DURATION.fullmatch(text)
    seconds = 0 if found is None else int(found["number"]) * UNITS_S[found["unit"]]
    if not 1 <= seconds <= MAX_DURATION_S:
        most = f"{MAX_DURATION_S // UNITS_S['d']}d"
        expected = f"expected a number with s, m, h or d, such as 90s, 30m or 24h, up to {most}"
        raise argparse.ArgumentTypeError(f"{text[:SHOWN_CHARACTERS]!r} is not a valid duration: {expected}")
    return seconds


def parse_address(text: str) -> str:
    """Parse an address of this machine to listen on."""
    try:
        return listening_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


parse_port: Final = whole_number("port", 1, MAX_PORT)


@dataclass(frozen=True, kw_only=True)
class BackendOption(Command):
    """``--backend``: where a scenario runs."""

    backend: Backend = option(
        "real processes on Ray, or the simulator (default %(default)s)", choices=("live", "sim"), default="live"
    )


@dataclass(frozen=True, kw_only=True)
class CodeOptions(Command):
    """``--allow-code`` and ``--no-code`` of commands that execute code of a scenario or a run."""

    RUNS_CODE = True
    allow_code: bool = flag("execute code whose text is inside the YAML file or the run's folder, too; read it before")
    no_code: bool = flag("refuse a scenario or a run with code, even in files next to it")

    def permitted(self) -> AbstractContextManager[object]:
        from cluster.scenario.code.gate import Gate, opened

        if self.allow_code and self.no_code:
            raise BadInput("--allow-code: not with --no-code")
        return opened(Gate(self.allow_code, self.no_code, _tell))


def _tell(line: str) -> None:
    print(f"stampede: {printable(line)}", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class SeedOption(Command):
    """``--seed`` of a scenario's run."""

    seed: int | None = option("use this seed instead of the scenario's", "N", parse_seed)


@dataclass(frozen=True, kw_only=True)
class DurationOption(Command):
    """``--for``: how long the load of a run lasts."""

    duration_s: int | None = option(
        "stop the load after this time (90s, 30m, 24h) instead of at the scenario's stop height",
        "DURATION",
        parse_duration,
        name="--for",
    )


@dataclass(frozen=True, kw_only=True)
class BindOption(Command):
    """``--bind``: the address that a live testnet listens on."""

    bind: str = option(
        f"address of this machine to listen on (default {LOOPBACK}, which other machines cannot reach)",
        "ADDRESS",
        parse_address,
        default=LOOPBACK,
    )


def parse_runbooks(text: str) -> str:
    """Parse the address of the page about alerts."""
    try:
        parts = urlsplit(text)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and "#" not in text
    except ValueError:
        is_fine = False
    if not is_fine:
        raise argparse.ArgumentTypeError(f"{text!r}: expected http://… or https://…, without #")
    return text


@dataclass(frozen=True, kw_only=True)
class RunbooksOption(Command):
    """``--runbooks``: where operators read what to do about an alert."""

    runbooks: str | None = option(
        "address of docs/alerts.md, to which each alert leads (default: its path in the project)", "URL", parse_runbooks
    )


def parse_collector(text: str) -> str:
    """Parse the URL of a collector of OpenTelemetry. Returns the address to which spans are posted.

    A URL is a base to which the path of traces is appended, as in ``OTEL_EXPORTER_OTLP_ENDPOINT``, unless it has that
    path. The word ``env`` is the address in OpenTelemetry's variables.
    """
    where, base = "", text
    if text == FROM_ENVIRONMENT:
        where = next((name for name in COLLECTOR_VARIABLES if os.environ.get(name)), "")
        if not where:
            raise argparse.ArgumentTypeError(f"env: neither {' nor '.join(COLLECTOR_VARIABLES)} is set")
        base = os.environ[where]
    try:
        parts = urlsplit(base)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no port, or no address
        is_fine = False
    if not is_fine or any(not "!" <= character <= "~" for character in base):
        said = f"{where}: " if where else ""
        raise argparse.ArgumentTypeError(
            f"{said}{base[:SHOWN_CHARACTERS]!r} is no URL of a collector: expected one such as http://localhost:4318"
        )
    if where == COLLECTOR_VARIABLES[0] or parts.path.endswith(TRACES_PATH):
        return base
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + TRACES_PATH))


@dataclass(frozen=True, kw_only=True)
class StopOnFailOption(Command):
    """``--stop-on-fail`` of a run."""

    stop_on_fail: bool = flag(
        "end the run at the first violation of a rule that is seen while it runs; everything is kept"
    )


def _add_changes(command: argparse.ArgumentParser, name: str) -> None:
    command.add_argument(
        "--set",
        dest=name,
        action="append",
        default=[],
        type=_change("parse_setting"),
        metavar="PATH=VALUE",
        help="set a field of the scenario, such as links.loss=0.1 or 'faults[+]={kind: kill, …}'; repeatable",
    )
    command.add_argument(
        "--unset",
        dest=name,
        action="append",
        type=_change("parse_removal"),
        metavar="PATH",
        help="reset a field to its default, or remove an item from its list; repeatable",
    )


@dataclass(frozen=True, kw_only=True)
class ForceOption(Command):
    """``--force`` of a command with the option ``--out``, whose folder is of the kind :attr:`KIND`."""

    KIND: ClassVar[Kind] = RUN
    force: bool = flag("empty the folder of --out first, if all in it is what an earlier such command wrote")

    def check_outputs(self) -> None:
        super().check_outputs()
        if not self.force:
            return
        out: Path | None = getattr(self, "out")  # noqa: B009 (each subclass has it)
        if out is None:
            raise BadInput("--force needs --out: a new folder is empty")
        replace_at_claim(out, self.kind())

    def kind(self) -> Kind:
        """The kind of the folder."""
        return self.KIND


@dataclass(frozen=True, kw_only=True)
class ChangeOptions(Command):
    """``--set`` and ``--unset``; ``changes`` has both, in the order given."""

    changes: Sequence[Change] = field(metadata={ADD: _add_changes, NAME: "--set"})


def _change(parser: str) -> Callable[[str], Any]:
    """A parser for a change of a scenario. It calls the function ``parser`` of :mod:`cluster.scenario.overrides`.

    That module is slow to load, so it is imported only when the parser is called.
    """

    def read(text: str) -> Change:
        from cluster.scenario import overrides

        try:
            change: Change = getattr(overrides, parser)(text)
        except overrides.SettingError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return change

    return read
