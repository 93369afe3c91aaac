"""The progress line."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from cluster.commands.console.output import LastingOutput
from cluster.commands.console.terminal import Progress
from cluster.record.run import Backend
from tests.cluster.records import make_record, make_samples

NAMES = [f"validator-{index}" for index in range(4)]


class Clock:
    """Wall-clock seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain_console(width: int = 100) -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, width=width, force_terminal=False, color_system=None), output


def test_plain_lines_come_at_a_limited_rate() -> None:
    console, output = plain_console()
    clock = Clock()
    progress = Progress(console, 12, "sim", NAMES, clock)
    samples = make_samples(make_record(), every_ms=100.0)
    for sample in samples:
        progress.update(sample)
        clock.now += 0.3
    progress.close()
    lines = output.getvalue().splitlines()
    assert len(lines) <= len(samples) * 0.3 / 2.0 + 2
    assert "height 12/12" in lines[-1]


def test_the_line_holds_rates_of_the_last_seconds() -> None:
    console, _ = plain_console()
    progress = Progress(console, 12, "sim", NAMES, Clock())
    for sample in make_samples(make_record(), every_ms=250.0):
        progress.update(sample)
    line = progress.line()
    assert "height 12/12" in line
    assert "s virtual" in line
    assert "12 pending timers · 3 backlog · 4/4 validators answer" in line
    rate = float(line.split(" blocks/s")[0].split()[-1])
    assert 3 < rate < 5


@pytest.mark.parametrize("answers", [(None,) * 4, (3, None, None, None)], ids=["nobody", "one that is behind"])
def test_silence_makes_no_negative_rate_and_loses_no_height(answers: tuple[int | None, ...]) -> None:
    console, _ = plain_console()
    progress = Progress(console, None, "live", NAMES, Clock())
    samples = make_samples(make_record(), every_ms=250.0)
    for sample in samples:
        progress.update(sample)
    progress.update(replace(samples[-1], at_ms=samples[-1].at_ms + 250.0, heights=answers))
    line = progress.line()
    assert "height 12 " in line
    assert "-" not in line
    assert ("– blocks/s · – fires/s" in line) == (answers == (None,) * 4)


def test_a_rate_begins_where_somebody_answers_again() -> None:
    console, _ = plain_console()
    progress = Progress(console, None, "live", NAMES, Clock())
    samples = make_samples(make_record(), every_ms=250.0)
    progress.update(replace(samples[0], heights=(None,) * 4))
    for sample in samples[-4:]:
        progress.update(sample)
    rate = float(progress.line().split(" blocks/s")[0].split()[-1])
    assert 0 < rate < 5


def test_beyond_its_target_a_run_drains() -> None:
    console, _ = plain_console()
    progress = Progress(console, 10, "live", NAMES, Clock())
    for sample in make_samples(make_record(), every_ms=250.0):
        progress.update(sample)
    assert "height 12, draining" in progress.line()


def test_notices_stay() -> None:
    console, output = plain_console()
    progress = Progress(console, 12, "live", NAMES, Clock())
    progress.notice("killed validator-2")
    progress.update(make_samples(make_record())[4])
    progress.notice("validator-2 is back")
    assert "killed validator-2" in output.getvalue()
    assert "2.0 s  validator-2 is back" in output.getvalue()


@pytest.mark.parametrize(("backend", "told"), [("live", 1), ("sim", 0)])
def test_the_first_final_block_of_a_live_run_is_told_once(backend: Backend, told: int) -> None:
    output = io.StringIO()
    progress = Progress(Console(file=output, width=200), 30, backend, ["a", "b"], lambda: 0.0)
    answers: list[tuple[int | None, ...]] = [(None, None), (0, None), (0, 2), (None, None), (3, 3)]
    sample = make_samples(make_record(), every_ms=100.0)[0]
    for place, heights in enumerate(answers):
        progress.update(replace(sample, at_ms=100.0 * place, heights=heights))
    lines = [line for line in output.getvalue().splitlines() if "blocks become final" in line]
    assert lines == ["   0.2 s  blocks become final: height 2"] * told


def test_a_table_that_goes_to_a_program_has_no_trailing_blanks() -> None:
    output = io.StringIO()
    LastingOutput(output).write("name   value  \n  a      1 \t\n\n")
    assert output.getvalue() == "name   value\n  a      1\n\n"


def test_a_terminal_line_is_drawn_in_place_and_fits_its_width() -> None:
    output = io.StringIO()
    console = Console(file=output, width=40, force_terminal=True, color_system=None)
    clock = Clock()
    progress = Progress(console, 12, "live", NAMES, clock)
    for sample in make_samples(make_record()):
        progress.update(sample)
        clock.now += 1
    progress.notice("killed validator-2")
    progress.close()
    assert "\x1b[" in output.getvalue()
    assert "…" in output.getvalue()
