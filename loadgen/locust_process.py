"""A Locust process whose configuration is its command line alone: ``python -m loadgen.locust_process OPTIONS``.

The command ``locust`` also reads ``~/.locust.conf``, and ``locust.conf`` and ``pyproject.toml`` in the working
directory. A line there, such as ``tags = nightly``, would change a load without a word. :mod:`loadgen.run` starts this
program without Locust's variables, in a folder that has no modules of the user's.
"""

from __future__ import annotations

import sys
from typing import Any

from locust import argument_parser, main


class CommandLine(argument_parser.LocustArgumentParser):
    """Locust's parser, without the files that Locust reads by itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "default_config_files": []})


if __name__ == "__main__":
    argument_parser.LocustArgumentParser = CommandLine  # type: ignore[misc]
    sys.exit(main.main())
