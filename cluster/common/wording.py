"""Text for readers: plurals, lists, escaped control characters, and bytes of paths that are not UTF-8.

Python has such a byte of a path as a character that no encoding has. Wherever text leaves a process, it is spelled as
in ``caf\\xe9.yaml``: on the terminal and in files by the error handler :data:`SPELLED`, in JSON by :func:`json_text`
and :func:`json_bytes`.
"""

from __future__ import annotations

import codecs
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

SPELLED: Final = "stampede-spelled"
"""Name of the error handler that spells what cannot be encoded."""


def counted(count: int, word: str) -> str:
    """A count with its word in the singular or plural: ``1 height``, ``1,200 heights``."""
    return f"{count:,} {plural(count, word)}"


def plural(count: int, word: str) -> str:
    """The word, with an *s* unless ``count`` is 1."""
    return word if count == 1 else f"{word}s"


def first_few(names: Sequence[str], most: int) -> str:
    """A list of at most ``most`` names, with the number of those left out: ``a, b and 3 more``."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def cut(text: str, most: int) -> str:
    """A text, or its first ``most`` characters if it has more, which ``…`` then follows."""
    return text if len(text) <= most else f"{text[:most]}…"


def listed(word: str, numbers: Sequence[int]) -> str:
    """A word, in the singular or plural, with its numbers: ``height 15``, ``heights 15, 16``."""
    return f"{plural(len(numbers), word)} {', '.join(f'{number:,}' for number in numbers)}"


def printable(text: str) -> str:
    """A text with control characters and other unprintable ones escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in readable(text))


def readable(text: str) -> str:
    """A text that UTF-8 can encode: bytes of a path that are not UTF-8 are spelled."""
    return text.encode("utf-8", SPELLED).decode("utf-8")


def quoted(text: str) -> str:
    """A word for a shell. One with bytes that are not UTF-8 is quoted as bash and zsh read them: ``$'caf\\xe9'``."""
    if readable(text) == text:
        return shlex.quote(text)
    escaped = text.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{readable(escaped)}'"


def json_text(page: object, **layout: Any) -> str:
    """``page`` as JSON whose strings are :func:`readable`; ``layout`` are options of :func:`json.dumps`."""
    text = json.dumps(page, **layout)
    return json.dumps(_all_readable(page), **layout) if "\\ud" in text or not text.isascii() else text


def json_bytes(value: object) -> bytes:
    """A value as msgspec's JSON, with its strings :func:`readable`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_all_readable(msgspec.to_builtins(value)))


def _all_readable(value: object) -> object:
    match value:
        case str():
            return readable(value)
        case Mapping():
            return {_all_readable(name): _all_readable(each) for name, each in value.items()}
        case list() | tuple():
            return [_all_readable(each) for each in value]
        case _:
            return value


def _spell(error: UnicodeError) -> tuple[str | bytes, int]:
    """The error handler :data:`SPELLED`, for :func:`codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    spelled = ""
    for character in error.object[error.start : error.end]:
        is_byte = "\udc80" <= character <= "\udcff"
        spelled += f"\\x{ord(character) & 0xFF:02x}" if is_byte else ascii(character)[1:-1]
    return spelled, error.end


codecs.register_error(SPELLED, _spell)
