"""Kubernetes' library for Python without its models and APIs: no command here uses them, and they take seconds to load.

The library imports all of itself as soon as any of its modules is imported. Here its packages are put in their place
without that. A package loads the rest once it is asked for a name that is no module of it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

PACKAGES: Final = ("kubernetes", "kubernetes.client", "kubernetes.client.models")
"""Packages that import all of their modules, parents first."""


class _Package(ModuleType):
    """A package whose own code has not run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if find_spec(f"{self.__name__}.{name}") is not None:
            return import_module(f"{self.__name__}.{name}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None and self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _put_in_place(name: str) -> None:
    spec = find_spec(name)
    assert spec is not None
    package = module_from_spec(spec)
    package.__class__ = _Package
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


if PACKAGES[0] not in sys.modules:
    for each in PACKAGES:
        _put_in_place(each)

from kubernetes.client.api_client import ApiClient  # noqa: E402
from kubernetes.client.configuration import Configuration  # noqa: E402
from kubernetes.client.exceptions import ApiException  # noqa: E402

vars(sys.modules["kubernetes.client"]).update(ApiClient=ApiClient, Configuration=Configuration)

from kubernetes import config  # noqa: E402 (it asks for both)
from kubernetes.stream.ws_client import create_websocket, get_websocket_url  # noqa: E402

__all__ = ["ApiClient", "ApiException", "Configuration", "config", "create_websocket", "get_websocket_url"]
