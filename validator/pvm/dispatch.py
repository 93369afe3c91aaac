"""From a payload to the handler it is for, and from an actor's code to what runs it (SPEC §2, §4)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

from validator.host import HandlerContext
from validator.pvm import script
from validator.pvm.machine import Vm
from validator.records import PYTHON_CODE
from validator.transactions import SCRIPT_CODE
from validator.types import is_name

_ENVELOPE: Final = frozenset({"_handler", "_payload"})
_STRICT_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
"""The standard alphabet, padded to a multiple of four; Python's own strict decoders differ between versions."""


def resolve_handler(handler: str, payload: bytes) -> tuple[str, bytes]:
    """The handler and payload of a fire: a payload of exactly ``_handler`` and ``_payload`` names its own handler."""
    if payload.lstrip()[:1] != b"{":
        return handler, payload
    try:
        pairs: Any = json.loads(payload.decode("utf-8"), object_pairs_hook=list)
    except (ValueError, RecursionError):
        return handler, payload
    if len(pairs) != 2 or {key for key, _ in pairs} != _ENVELOPE:
        return handler, payload
    inner = dict(pairs)
    name, encoded = inner["_handler"], inner["_payload"]
    if not isinstance(name, str) or not isinstance(encoded, str):
        return handler, payload
    if not is_name(name) or not _STRICT_BASE64.fullmatch(encoded):
        return handler, payload
    return name, base64.b64decode(encoded)


def program(vm: Vm, code: str, handler: str, payload: bytes) -> Callable[[HandlerContext], None]:
    """What runs a handler of an actor with this code."""
    if code.startswith(PYTHON_CODE):
        return lambda context: vm.run(code, handler, payload, context)
    assert code == SCRIPT_CODE, f"no actor can be deployed with code {code!r}"
    return lambda context: script.run(context, payload)
