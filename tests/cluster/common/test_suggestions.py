"""Suggestions for an unknown name."""

from __future__ import annotations

import pytest

from cluster.common.suggestions import MAX_LISTED, closest, instead, listing, unknown

NAMES = ["for_ms", "from", "at_height", "validator-0", "validator-1"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("for_s", "for_ms"),
        ("form", "from"),
        ("at_heigth", "at_height"),
        ("validater-1", "validator-1"),
        ("validator-7", None),
        ("validater-9", None),
        ("Validator7", None),
        ("validator_5", None),
        ("colour", None),
        ("", None),
    ],
)
def test_a_name_that_is_near_is_guessed(name: str, meant: str | None) -> None:
    assert closest(name, NAMES) == meant


def test_an_unknown_name_is_said_with_what_would_be_right() -> None:
    assert unknown("field", "for_s", NAMES) == "unknown field 'for_s'; did you mean for_ms?"
    assert unknown("field", "colour", ["a", "b"]) == "unknown field 'colour'; known: a, b"


def test_otherwise_those_there_are_are_listed_and_very_many_cut() -> None:
    assert instead("for_s", NAMES) == "did you mean for_ms?"
    assert instead("colour", ["a", "b"]) == "there are a, b"
    many = [f"validator-{index}" for index in range(100)]
    words = listing(many).split(", ")
    assert len(words) == MAX_LISTED and words[-2:] == ["…", "validator-99"]
    assert listing(many[:MAX_LISTED]).split(", ") == many[:MAX_LISTED]
