"""``stampede drill NAME`` and ``stampede drill --list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.commands.console.command import Filled, Topic

if TYPE_CHECKING:
    import argparse


def _fill(parser: argparse.ArgumentParser) -> None:
    """Add the drills' arguments to the command. The drills are imported only now, since that is slow."""
    from cluster.commands.drills.command_line import add_drills

    add_drills(parser)


COMMANDS: Final = {"drill": Filled("run a drill: a prepared scenario with a written expectation", _fill, Topic.RUN)}
