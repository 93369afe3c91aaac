"""Becomes a Ray worker that loads less: ``python ray_worker.py SCRIPT …`` runs Ray's script of workers.

Ray imports libraries that a testnet never uses: for accelerators' metadata over HTTP, and for the schemas of
environments that hosts do not have. They take a third of the time of its import, in the driver and in each host. Here
such a library is loaded when it is used, not when it is imported.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

UNUSED = ("jsonschema", "requests", "yaml")
COMMANDS = {"uvicorn.main": ("Server", "main", "run")}
"""Modules of commands whose packages import some names from them, none of which a host uses."""


class Later(ModuleType):
    """A module that takes the place of one of its name until an attribute is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        found = import_module(self.__name__)
        vars(self).update(vars(found))
        return getattr(found, name)


def load_later(*names: str) -> None:
    """Have modules that are not loaded yet load once they are used."""
    for name in names:
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            sys.modules[name] = later = Later(name)
            later.__spec__ = spec  # whoever looks for the library finds it


def main() -> None:
    """Entry of the process."""
    del sys.argv[0]
    script = sys.argv[0]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(script)
    load_later(*UNUSED)
    for command, names in COMMANDS.items():
        sys.modules[command] = ModuleType(command)
        vars(sys.modules[command]).update(dict.fromkeys(names))
    with open(script, "rb") as file:
        exec(compile(file.read(), script, "exec"), {"__name__": "__main__", "__file__": script})


if __name__ == "__main__":
    main()
