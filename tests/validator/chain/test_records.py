"""The keys of state: each kind of record under a prefix of its own."""

from __future__ import annotations

import ast
from pathlib import Path

from validator.chain import records


def test_no_two_kinds_of_records_share_a_prefix() -> None:
    tree = ast.parse(Path(records.__file__).read_text(encoding="utf-8"))
    prefixes = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant) and type(node.value.value) is bytes
    ]
    assert len(prefixes) >= 12
    assert len(set(prefixes)) == len(prefixes) == len(records._CODECS)
    assert all(len(prefix) == 1 for prefix in prefixes)
