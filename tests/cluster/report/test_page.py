"""The report: whole, self-contained, escaped, bounded."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cluster.audit.books import keep_books
from cluster.checks.kind import shipped
from cluster.checks.run import check_run, judge_run
from cluster.common.checkout import version
from cluster.common.outcome import Outcome
from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.host_info import machine
from cluster.record.message_trace import MAX_MESSAGES_PER_WINDOW, MAX_WATCHED, MAX_WINDOWS
from cluster.record.run import Backend, RunRecord, TracedMessage, TraceWindow, ViewEntered
from cluster.report.charts import MAX_POINTS, charts, latency_chart
from cluster.report.fault_labels import marked
from cluster.report.page import render_report
from cluster.report.svg import Chart
from cluster.report.tables import facts, fault_rows, tiles, validator_rows
from cluster.report.timeline import timeline_data
from cluster.scenario.files import scenario_hash
from tests.cluster.records import (
    WRITTEN,
    ChainMaker,
    make_genesis,
    make_record,
    make_scenario,
    stalled,
    with_kill,
    with_late,
)

COMMAND = "stampede run scenarios/x.yaml --backend sim --seed 1  # at commit 0123456789ab"
VOID = {"meta", "link", "br", "hr", "img", "input"}


def report_of(record: RunRecord) -> str:
    return render_report(judge_run(record), COMMAND, WRITTEN)


def empty_record() -> RunRecord:
    return RunRecord(make_scenario(), "sim", 1, "unknown", make_genesis(), interrupted=True)


def mutated_record() -> RunRecord:
    record = with_kill(make_record())
    validator = record.validators[1]
    validator.mutant = "double-fire"
    validator.blocks = validator.blocks[:5]
    assert validator.status is not None
    validator.status["diverged"] = {"height": 6, "reason": "state_root", "expected_root": "ab", "computed_root": "cd"}
    record.problems = ["validator-1 stopped"]
    return record


def crowded_record() -> RunRecord:
    return make_record(count=20, scenario=make_scenario(validators=20))


class Page(HTMLParser):
    """Collects ids and addresses, and checks that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("src", "href") and value:
                self.addresses.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass


@pytest.mark.parametrize("make", [lambda: with_kill(make_record()), empty_record, mutated_record, crowded_record])
def test_a_report_is_well_formed_and_needs_nothing_else(make: Callable[[], RunRecord]) -> None:
    text = report_of(make())
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert page.addresses == ["data:,"]
    assert text.count("<script") == 2
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text


def test_the_verdict_checks_and_command_are_there() -> None:
    text = report_of(with_kill(make_record()))
    assert 'class="badge pass" id="verdict"' in text
    assert text.count('<td class="state pass">') + text.count('<td class="state idle">') == len(shipped())
    assert text.count('<td class="state idle">') == 6
    assert "13 passed, 6 not applicable" in text
    assert COMMAND in text
    assert "kill validator-2" in text
    assert "p95 84 ms" in text
    assert text.count('role="img"') == 17
    assert "prefers-color-scheme: dark" in text


def test_mutated_validators_are_watermarked() -> None:
    text = report_of(mutated_record())
    assert 'class="watermark"' in text
    assert "validator-1 runs the mutant <code>double-fire</code>" in text
    assert 'class="mutated"' in text
    assert "diverged at height 6" in text
    assert 'class="watermark"' not in report_of(make_record())


LONG_COMMAND = "./mine --chain '<b>' \x1b[2J" + 200 * "x"


def foreign_record(count: int = 4) -> RunRecord:
    scenario = make_scenario(validators=[{"executor": LONG_COMMAND}, *({} for _ in range(count - 1))])
    return make_record(count=count, scenario=scenario)


def test_a_foreign_executor_is_named_with_its_command() -> None:
    text = report_of(foreign_record())
    shown = "./mine --chain &#39;&lt;b&gt;&#39; \\x1b[2Jxxx"
    assert f"validator-0 leaves its state transition to <code>{shown}" in text
    assert f'<span class="chip plain">executor: {shown}' in text
    assert "<b>" not in text and "\x1b" not in text and 150 * "x" not in text
    assert Page(text).open == []
    assert 'id="executors"' not in report_of(make_record())


def test_byzantine_validators_are_watermarked() -> None:
    record = make_record()
    record.validators[2].byzantine = ("twins", "garbage")
    text = report_of(record)
    assert '<div class="watermark" aria-hidden="true"><span>BYZANTINE</span></div>' in text
    assert "validator-2 breaks the protocol on purpose (<code>twins, garbage</code>)" in text
    assert "byzantine: twins, garbage" in text
    assert Page(text).open == []


def test_empty_states_are_sentences() -> None:
    text = report_of(empty_record())
    for sentence in ("No validator finalised a height.", "No timer fired.", "No block was finalised."):
        assert sentence in text
    assert "Ended early." in text


def test_what_a_run_says_is_escaped() -> None:
    record = make_record()
    record.problems = ["<script>alert(1)</script>"]
    record.scenario = record.scenario.model_copy(update={"description": "<b>bold</b> & more"})
    record.validators[0].name = 'a"<i>'
    text = report_of(record)
    assert "<script>alert" not in text
    assert "<b>bold" not in text
    assert "<i>" not in text
    assert "&lt;script&gt;" in text


def test_in_a_crowd_only_those_that_matter_are_named() -> None:
    record = crowded_record()
    record.validators[4].mutant = "double-fire"
    text = report_of(record)
    assert "20 validators; only those with a fault or broken on purpose are named." in text
    drawing = text[text.index('id="heights-wide"') : text.index('id="heights-narrow"')]
    assert drawing.count('class="line muted"') == 19


def long_run(heights: int) -> RunRecord:
    maker = ChainMaker()
    for _ in range(heights):
        maker.seal()
    return make_record(maker)


@pytest.mark.slow
def test_long_runs_are_thinned_and_say_so() -> None:
    record = long_run(2 * MAX_POINTS + 10)
    for one in charts(keep_books(record), marked(record), [], []):
        points = [len(series.points) for series in getattr(one.chart, "series", ())]
        assert all(count <= MAX_POINTS for count in points)
        if max(points, default=0) > 12:
            assert "Thinned: of each 5 " in one.note
    text = report_of(record)
    assert "Thinned: of each 5 heights the least and the largest value are drawn." in text
    assert len(text) < 1_500_000


def test_one_slow_block_of_a_long_run_is_in_the_chart_of_latencies() -> None:
    """Every fourth leader is slow, and one block is the slowest of all, wherever thinning would look."""
    record = long_run(4 * MAX_POINTS // 2)
    books, proposals = keep_books(record), record.proposals
    for slowest in (400, 401, 402, 403):
        record.proposals = {
            height: at - (9_000 if height == slowest else 400 if height % 4 == 0 else 0)
            for height, at in proposals.items()
        }
        chart = latency_chart(books, marked(record)).chart
        assert isinstance(chart, Chart)
        points = dict(chart.series[0].points)
        assert points[float(slowest)] > 9_000
        assert sum(400 < latency < 9_000 for latency in points.values()) >= MAX_POINTS / 3
        assert sum(latency < 400 for latency in points.values()) >= MAX_POINTS / 3


def several_faults() -> RunRecord:
    record = with_kill(make_record())
    kill = replace(record.faults[0], target="leader")
    cut = replace(kill, kind="partition", target="validator-0", targets=(), impaired=("validator-0",))
    slow = replace(kill, kind="slow_disk", target="random", targets=("validator-3",), impaired=("validator-3",))
    record.faults = [kill, cut, slow]
    return record


def test_each_validator_has_a_badge_for_every_fault_that_hit_it() -> None:
    rows = {row["name"]: row["faults"] for row in validator_rows(keep_books(several_faults()))}
    assert {name: [badge for badge, _ in faults] for name, faults in rows.items()} == {
        "validator-0": ["2 partition"],
        "validator-1": [],
        "validator-2": ["1 kill"],
        "validator-3": ["3 slow disk"],
    }


def test_faults_are_told_with_whom_they_hit_everywhere() -> None:
    text = report_of(several_faults())
    assert '<span class="number">1</span> kill leader (validator-2)</th>' in text
    assert ">1 kill leader (validator-2)</text>" in text, "in the charts"
    assert '<span class="number">3</span> slow_disk random (validator-3) <span' in text, "under the timeline"
    assert "kill of leader (validator-2)" in text, "in the description of the chart"


def test_a_long_duration_is_told_in_seconds() -> None:
    for milliseconds, told in ((36_100.0, ("36.1", "s")), (840.0, ("840", "ms"))):
        assert tiles({"longest_stall_ms": milliseconds}) == [("longest stall", *told)]


def test_a_single_fault_has_no_number() -> None:
    text = report_of(with_kill(make_record()))
    assert 'class="number"' not in text
    assert ">kill validator-2</text>" in text


def test_a_stall_that_was_too_long_is_marked_in_every_chart_and_in_the_timeline() -> None:
    record = stalled(make_record())
    assert check_run(record).check("progress").verdict is Outcome.FAIL
    for one in charts(keep_books(record), marked(record), [], []):
        if one.chart.ident in ("heights", "latency", "fires", "backlog", "basefees", "lanes"):
            assert isinstance(one.chart, Chart)
            (band,) = [band for band in one.chart.bands if band.is_stall]
            assert band.name == "no final block for 7.3 s"
            if one.chart.ident != "heights":
                assert (band.start, band.end) == (5, 6)
            else:
                assert 7.2 < band.end - band.start < 7.3
            assert 'class="stall"' in one.drawing and ">no final block for 7.3 s</text>" in one.drawing
    (entry,) = timeline_data(keep_books(record), marked(record))["faults"]
    assert entry["isStall"] and entry["lanes"] == [0, 1, 2, 3] and 7_200 < entry["to"] - entry["from"] < 7_300
    assert "longer without a final block than allowed" in report_of(record)


def test_a_stall_within_the_limit_is_not_marked() -> None:
    text = report_of(stalled(make_record(), by_ms=4_000.0))
    assert 'class="stall"' not in text and "no final block for" not in text


def test_words_in_folded_tables_are_left_and_numbers_right() -> None:
    text = report_of(make_record())
    heads = re.findall(r"<thead><tr>(<th[^>]*>Actor</th>.*?)</tr>", text)
    assert heads and re.findall(r"<th scope=\"col\"( class=\"num\")?>(\w+)", heads[0])[:4] == [
        ("", "Actor"),
        ("", "Class"),
        (' class="num"', "Weight"),
        (' class="num"', "Due"),
    ]


def test_a_validator_that_joined_late_says_so() -> None:
    assert "joined by the snapshot of height 2" in report_of(with_late(make_record(), snapshot=2))
    assert "joined by the snapshot" not in report_of(make_record())


@pytest.mark.slow
def test_a_report_with_as_much_of_everything_as_is_kept_stays_small() -> None:
    record = make_record(count=20, scenario=make_scenario(validators=20))
    record.trace.watched = tuple(range(MAX_WATCHED))
    record.finalizations = Finalizations(
        Finalization(600.5 * at, index, at) for index in range(20) for at in range(2_000)
    )
    record.trace.views = [ViewEntered(600.25 * at, index, at) for index in range(MAX_WATCHED) for at in range(2_000)]
    record.duration_ms = 1_200_000.0
    for number in range(MAX_WINDOWS):
        begun = 100_000.0 * number
        kept = [
            TracedMessage(
                at % 12, (at + 1) % 12, begun + at * 1.25, begun + at * 1.25 + 40.125, "certificate", 1_234, 4_321
            )
            for at in range(MAX_MESSAGES_PER_WINDOW)
        ]
        record.trace.windows.append(TraceWindow("a fault begins", begun, begun + 2_000.0, kept))
    assert len(report_of(record)) < 2_000_000


@pytest.mark.parametrize(("backend", "planned"), [("sim", "4,000 ms"), ("live", "4,000 ms after the start")])
def test_a_time_that_does_not_count_from_the_runs_beginning_says_from_when(backend: Backend, planned: str) -> None:
    record = with_kill(make_record())
    assert fault_rows(keep_books(record))[0]["planned"] == record.faults[0].planned
    record.backend = backend
    record.faults[0].at_height, record.faults[0].at_ms = None, 4_000
    assert fault_rows(keep_books(record))[0]["planned"] == planned
    record.faults[0].is_planned = False
    assert fault_rows(keep_books(record))[0]["planned"] == "not planned"


def test_date_version_scenario_and_machine_are_told() -> None:
    record = make_record()
    told = dict(facts(keep_books(record), WRITTEN))
    assert told["Date"] == "2030-01-02 03:04:05 UTC"
    assert told["Version"] == version() and told["Scenario hash"] == scenario_hash(record.scenario)
    assert str(machine()["processor"]) in told["Machine"]
    other = replace(record, scenario=record.scenario.model_copy(update={"seed": 5}))
    assert dict(facts(keep_books(other), WRITTEN))["Scenario hash"] != told["Scenario hash"]


def test_the_policy_the_preset_and_what_each_price_burned_are_told() -> None:
    record = make_record()
    record.genesis = replace(record.genesis, preset="hardened")
    told = dict(facts(keep_books(record), WRITTEN))
    assert (told["Policy"], told["Preset"]) == ("cip1", "hardened")
    assert told["Burned"] == "cycle 77,017,000,000, cell 2,592,000,000, lane timer 17,017,000,000"
    text = report_of(record)
    assert "hardened" in text and told["Burned"] in text
    assert dict(facts(keep_books(make_record()), WRITTEN))["Preset"] == "none"
