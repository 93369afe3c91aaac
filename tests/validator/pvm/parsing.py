"""Parses texts under whatever Python starts this file, and says what came of each.

Reads a JSON list of texts from standard input; writes, of each, where it is refused unparsed, ``SyntaxError``, the
tree's own digest, or the name of whatever else the parser raised.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import warnings

from validator.pvm.language.source import check_text
from validator.pvm.language.subset import FEATURE_VERSION


def parsed(text: str) -> str:
    wrong = check_text(text)
    if wrong is not None:
        return f"{wrong.line}:{wrong.column}"
    try:
        tree = ast.parse(text, feature_version=FEATURE_VERSION)
    except SyntaxError:
        return "SyntaxError"
    except BaseException as error:  # noqa: BLE001  # this is what must not be
        return f"{type(error).__name__}: {error}"
    return hashlib.sha256(" ".join(type(node).__name__ for node in ast.walk(tree)).encode()).hexdigest()[:16]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump([parsed(text) for text in json.load(sys.stdin)], sys.stdout)
