"""A script's text is that of the standard library's encoder, though another one writes most of them; and its cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadgen.workloads.script import (
    Cost,
    allow_watching,
    attempt,
    burn,
    cancel_saved,
    cost_of,
    encode_script,
    extend_saved,
    put,
    schedule,
    send,
    transfer,
)

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


def test_costs_are_those_of_the_price_list() -> None:
    payload = [burn(7), put("ké", "v")]
    timer = schedule(1, payload, save_as="id")
    assert cost_of(payload) == Cost(207, 4)
    assert cost_of([timer, attempt(timer)]) == Cost(2 * 1_200, 2 * (len(encode_script(payload)) + 2 + 64))
    assert cost_of([["get", "k"], ["del", "k"], ["fail", "x"], transfer("0x00", 1)]) == Cost(410)
    assert cost_of([["emit", "", "é"], allow_watching("k", True)]) == Cost(250, 3)
    assert cost_of([send("0x00", "h", "abc", 2_000, 9), ["cancel", {"id": "00"}]]) == Cost(2_580, 12)
    assert cost_of([cancel_saved("k"), extend_saved("k", 9)]) == Cost(1_020)
    assert cost_of([["schedule", {"in": 1, "payload": {"hex": "0011"}}]]) == Cost(1_000, 2)


@pytest.mark.parametrize(
    "operation",
    [
        *([], [[]], [1], ["other", 1], ["burn"], ["burn", "1"], ["burn", 1, 2], ["set", "k"], ["set", 1, "v"]),
        *(["try", "burn"], ["try", ["burn", "1"]], ["schedule", []], ["send", {"payload": ""}], ["send", 1]),
        *(["get", 1], ["emit", "", 1], ["allow_watching", "k", 1], ["cancel", "saved"], ["transfer", "0x00"]),
    ],
    ids=repr,
)
def test_what_is_no_operation_has_no_price(operation: list[Any]) -> None:
    with pytest.raises(ValueError, match="no known price"):
        cost_of([operation])
