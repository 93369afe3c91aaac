"""Options that several commands take, and how they are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cluster.common.limits import MAX_SEED
from cluster.live.web.addresses import LOOPBACK, listening_address

if TYPE_CHECKING:
    from cluster.scenario.overrides import Change

MAX_PORT: Final = 65_535


def parse_seed(text: str) -> int:
    """A run's seed."""
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: expected an integer from 0 to 2**64 - 1")
    return int(text)


def parse_port(text: str) -> int:
    """A TCP port."""
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: expected an integer from 1 to {MAX_PORT}")
    return int(text)


def parse_address(text: str) -> str:
    """An address to listen at, which others are told."""
    try:
        return listening_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_bind_option(command: argparse.ArgumentParser) -> None:
    """``--bind``: where a live testnet listens."""
    command.add_argument(
        "--bind",
        type=parse_address,
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"listen at this address of the machine, for whoever can reach it (default {LOOPBACK})",
    )


def add_change_options(command: argparse.ArgumentParser) -> None:
    """``--set`` and ``--unset``; what they say is in ``changes``, in the order in which it was given."""
    command.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        type=_change("parse_setting"),
        metavar="PATH=VALUE",
        help="set a field of the scenario, as links.loss=0.1 or 'faults[+]={kind: kill, …}'; may be repeated",
    )
    command.add_argument(
        "--unset",
        dest="changes",
        action="append",
        type=_change("parse_removal"),
        metavar="PATH",
        help="set a field back to its default, or take an item out of its list",
    )


def _change(parser: str) -> Callable[[str], Any]:
    """Reads a change by the function of that name in :mod:`cluster.scenario.overrides`, which is loaded when there is
    one."""

    def read(text: str) -> Change:
        from cluster.scenario import overrides as settings

        try:
            change: Change = getattr(settings, parser)(text)
        except settings.SettingError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return change

    return read
