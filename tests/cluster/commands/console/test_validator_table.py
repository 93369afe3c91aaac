"""The validator table of a run on a terminal: a row a validator, and those that matter where there are too many."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from cluster.commands.console.validator_table import rows, validator_table
from cluster.record.run import Sample

NAMES = [f"validator-{index}" for index in range(4)]
SAMPLE = Sample(
    at_ms=5_000.0,
    heights=(40, 33, None, 40),
    fires=10,
    transactions=5,
    pending_timers=3,
    backlog=1,
    basefee_cycle=1,
    basefee_lane_timer=1,
    lane_share=0.55,
    views=(41, 36, None, 41),
    states=("up", "up", "down", "up"),
    faults=("kill validator-2",),
)


def drawn(sample: Sample, names: list[str], lines: int = 24, width: int = 80) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=False, color_system=None)
    console.print(validator_table(Text("height 40"), sample, names, lines))
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_every_validator_has_a_row() -> None:
    assert drawn(SAMPLE, NAMES) == [
        "height 40",
        "lane    ███████████░░░░░░░░░ 55%",
        "faults  kill validator-2",
        "validator          height  behind  view",
        "validator-0  up        40            41",
        "validator-1  up        33       7    36",
        "validator-2  down       –             –",
        "validator-3  up        40            41",
    ]


def test_without_faults_there_is_no_line_of_them() -> None:
    assert not any(line.startswith("faults") for line in drawn(replace(SAMPLE, faults=()), NAMES))


def test_a_lane_that_is_overfull_is_full() -> None:
    assert drawn(replace(SAMPLE, lane_share=1.2), NAMES)[1] == "lane    ████████████████████ 120%"


def test_of_many_those_that_matter_are_shown() -> None:
    count = 64
    names = [f"validator-{index}" for index in range(count)]
    heights: list[int | None] = [40] * count
    states = ["up"] * count
    heights[50], states[50] = None, "joining"
    heights[60] = 20
    many = replace(SAMPLE, heights=tuple(heights), views=tuple(heights), states=tuple(states), faults=())
    lines = drawn(many, names, lines=15)
    shown = [line.split()[0] for line in lines[3:-1]]
    assert shown == [*(f"validator-{index}" for index in range(7)), "validator-50", "validator-60"]
    assert lines[-1] == "… and 55 more, 55 of them up"
    assert len(lines) <= 15


def test_what_a_sample_does_not_tell_is_guessed_from_heights() -> None:
    plain = replace(SAMPLE, states=(), views=())
    assert [row.state for row in rows(plain, NAMES)] == ["up", "up", "silent", "up"]
    assert {row.view for row in rows(plain, NAMES)} == {None}


def test_faults_with_long_names_stay_on_their_line() -> None:
    lines = drawn(replace(SAMPLE, faults=("partition " + ", ".join(NAMES * 5),)), NAMES, width=40)
    assert len(lines) == 8
    assert lines[2].endswith("…")
