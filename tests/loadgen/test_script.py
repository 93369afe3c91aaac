"""A script's text is that of the standard library's encoder, though another one writes most of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from loadgen.workloads.script import encode_script

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))  # a script's texts are UTF-8
VALUES = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(-(2**256), 2**256)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


@given(st.lists(st.lists(VALUES, max_size=4), max_size=4))
@example([["emit", "", 'é\x7f\x1f\u2028"\\/\U0001f600\0\b\f\n\r\t']])
@example([["emit", "", "\x1f\b\f\n\r\t\0/\\"]])
@example([["emit", "", "\x7f"]])
def test_texts_are_those_of_the_standard_library(script: list[list[Any]]) -> None:
    assert encode_script(script) == json.dumps(script, separators=(",", ":")).encode()
