"""A Locust process whose configuration is its command line alone: ``python -m loadgen.locust_process OPTIONS``.

The command ``locust`` also reads ``~/.locust.conf``, and ``locust.conf`` and ``pyproject.toml`` in the working
directory. A line there, such as ``tags = nightly``, would change a load without a word. :mod:`loadgen.run` starts this
program without Locust's variables, in a folder that has no modules of the user's.

Without a web interface, and with our locustfile alone, the web server is not loaded.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Final

HEADLESS: Final = "--headless"
LOCUSTFILE: Final = "--locustfile"


def needs_web(arguments: list[str]) -> bool:
    """Whether the process has a web interface, or a locustfile of the user's, which may use its module."""
    files = arguments[arguments.index(LOCUSTFILE) + 1] if LOCUSTFILE in arguments else ""
    return HEADLESS not in arguments or "," in files


def load_less() -> None:
    """Have Locust find an empty module in place of its web interface."""
    web: Any = ModuleType("locust.web")
    web.WebUI = None
    sys.modules["locust.web"] = web


def main() -> Any:
    """Entry of the process. Returns Locust's exit code."""
    if not needs_web(sys.argv):
        load_less()
    from locust import argument_parser, main

    class CommandLine(argument_parser.LocustArgumentParser):
        """Locust's parser, without the files that Locust reads by itself."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**{**settings, "default_config_files": []})

    argument_parser.LocustArgumentParser = CommandLine  # type: ignore[misc]
    return main.main()


if __name__ == "__main__":
    sys.exit(main())
