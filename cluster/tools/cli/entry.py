"""Entry of the console command: loads the rest, and reports Ctrl-C in one line even while loading."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the process's own command line; returns the exit code."""
    try:
        from cluster.tools.cli.main import main as perform

        return perform()
    except KeyboardInterrupt:
        from cluster.common.errors import ExitCode

        print("stampede: interrupted", file=sys.stderr)
        return ExitCode.INCONCLUSIVE
