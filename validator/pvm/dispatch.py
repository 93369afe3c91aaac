"""Dispatch of a run: which handler a payload selects, and which function runs an actor's code (SPEC §2, §4)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

from validator.chain.records import PYTHON_CODE
from validator.chain.transactions import SCRIPT_CODE
from validator.primitives.types import is_name
from validator.pvm import script
from validator.pvm.runtime.host import Host
from validator.pvm.runtime.machine import Vm

_ENVELOPE: Final = frozenset({"_handler", "_payload"})
BASE64_GROUP: Final = 4
_TEXT: Final = rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_SPACE: Final = rb"[ \t\n\r]*+"
_TWO_TEXTS: Final = re.compile(
    _SPACE.join([b"", rb"\{", _TEXT, b":", _TEXT, b",", _TEXT, b":", _TEXT, rb"\}", b""]), re.DOTALL
)
"""Matches a JSON object with two members whose values are texts, without decoding the texts. Decoding the payload of a
fire is free of charge, so every other payload is excluded by this one match."""
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def resolve_handler(handler: str, payload: bytes) -> tuple[str, bytes]:
    """The handler that a fire calls, and the payload that it passes.

    A payload that is a JSON object of exactly ``_handler`` and ``_payload`` (in base64) replaces both.
    """
    if not _TWO_TEXTS.fullmatch(payload):
        return handler, payload
    try:
        pairs: Any = json.loads(payload.decode("utf-8"), object_pairs_hook=list)
    except ValueError:
        return handler, payload
    inner = dict(pairs)
    if inner.keys() != _ENVELOPE or not is_name(inner["_handler"]):
        return handler, payload
    decoded = _decoded(inner["_payload"])
    return (handler, payload) if decoded is None else (inner["_handler"], decoded)


def _decoded(text: str) -> bytes | None:
    """Decode strict base64: the standard alphabet, padded to a multiple of four. ``None`` for any other text.

    Python's own strict decoders are not used, since they differ between versions.
    """
    if len(text) % BASE64_GROUP or not text.isascii():
        return None
    data = text.encode()
    bare = data.removesuffix(b"==") if data.endswith(b"==") else data.removesuffix(b"=")
    return None if bare.translate(None, _BASE64) else base64.b64decode(data)


def program(vm: Vm, code: str, handler: str, payload: bytes) -> Callable[[Host], None]:
    """A function that runs a handler of an actor with this code."""
    if code.startswith(PYTHON_CODE):
        return lambda context: vm.run(code, handler, payload, context)
    assert code == SCRIPT_CODE, f"no actor can be deployed with code {code!r}"
    return lambda context: script.run(context, payload)
