"""``stampede drill NAME`` and ``stampede drill --list``."""

from __future__ import annotations

from typing import Any


def add_commands(commands: Any) -> None:
    """Add the command to the console command's parser."""
    commands.add_parser("drill", help="run a drill: a prepared scenario with a written expectation").fill = _fill


def _fill(parser: Any) -> None:
    """Load the drills, which is slow and needed only by this command."""
    from cluster.tools.drills.command_line import add_drills

    add_drills(parser)
