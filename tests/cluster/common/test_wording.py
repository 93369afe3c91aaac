"""Numbers of things in words."""

from __future__ import annotations

from cluster.audit.reexecution.describe import steps_after, steps_before
from cluster.common.wording import counted, first_few, listed, plural


def test_one_is_not_many() -> None:
    assert [counted(count, "height") for count in (0, 1, 2, 1_200)] == [
        "0 heights",
        "1 height",
        "2 heights",
        "1,200 heights",
    ]
    assert plural(1, "step") == "step"


def test_numbers_stand_under_their_word() -> None:
    assert listed("height", [15]) == "height 15"
    assert listed("height", [15, 1_016]) == "heights 15, 1,016"


def test_a_parting_counts_its_steps() -> None:
    assert (steps_before(1), steps_after(1)) == ("the step before it agrees", "the step behind it differs too")
    assert (steps_before(1_200), steps_after(2)) == ("1,200 steps before it agree", "2 steps behind it differ too")


def test_beyond_the_first_few_names_the_others_are_counted() -> None:
    assert first_few(["a", "b"], 2) == "a, b"
    assert first_few(["a", "b", "c", "d"], 2) == "a, b and 2 more"
