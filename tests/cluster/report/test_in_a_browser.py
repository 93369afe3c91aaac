"""The report in headless Chromium: no complaint, no request, light and dark, desk and phone; the timeline zooms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.checks.run import judge_run
from cluster.record.run import RunRecord, TraceWindow
from cluster.report.page import render_report
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from tests.cluster.browser import DESK, PHONE, Browser, chromium, needs_chromium
from tests.cluster.records import WRITTEN, make_genesis, make_record, make_scenario, stalled, with_kill

COMMAND = "stampede run scenarios/x.yaml --backend sim --seed 1  # at commit 0123456789ab"
SCENARIO = Scenario.model_validate(
    {
        "name": "a-scenario-with-a-name-that-is-rather-long-for-a-phone",
        "load": {"users": [{"workload": "flood", "count": 2, "options": {"timers": 5, "spread_blocks": 3}}]},
        "faults": [{"kind": "kill", "target": "validator-2", "at_height": 4, "down_ms": 2_000}],
        "stop": {"height": 12, "timeout_s": 60},
    }
)
DIVERGING = SCENARIO.model_validate(
    {
        "name": "diverging",
        "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 300, "options": {"timers": 5}}]},
        "validators": [None, {"mutant": "double-fire"}, None, None],
        "stop": {"height": 12, "timeout_s": 60},
    }
)
SIZES = {"desk": DESK, "tablet": (800, 900), "phone": PHONE}

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def write(record: RunRecord, path: Path) -> Path:
    path.write_text(render_report(judge_run(record), COMMAND, WRITTEN), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(simulate(SCENARIO, 3), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, simulated: Path) -> dict[str, Path]:
    """Reports of every verdict."""
    folder = tmp_path_factory.mktemp("pages")
    empty = RunRecord(make_scenario(), "live", 1, "unknown", make_genesis(), interrupted=True)
    failing = make_record()
    failing.validators[1].mutant = "double-fire"
    assert failing.validators[1].status is not None
    failing.validators[1].status["diverged"] = {
        "height": 6,
        "reason": "state_root",
        "expected_root": "ab" * 32,
        "computed_root": "cd" * 32,
    }
    failing.trace.windows = [TraceWindow("a window without messages", 0.0, 100.0)]
    return {
        "simulated": simulated,
        "empty": write(empty, folder / "empty.html"),
        "failing": write(failing, folder / "failing.html"),
        "diverged": write(simulate(DIVERGING, 1), folder / "diverged.html"),
    }


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", ["desk", "phone"])
@pytest.mark.parametrize(
    "name", ["simulated", *(pytest.param(name, marks=pytest.mark.slow) for name in ("empty", "failing", "diverged"))]
)
def test_it_opens_without_a_complaint_and_fits(
    browser: Browser, pages: dict[str, Path], name: str, size: str, dark: bool
) -> None:
    browser.open(pages[name], size=SIZES[size], dark=dark)
    assert browser.errors == []
    assert [address for address in browser.requests if address != pages[name].as_uri()] in ([], ["data:,"])
    width, inner = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner == SIZES[size][0]
    shown = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert shown == ("rgb(17, 17, 16)" if dark else "rgb(244, 244, 241)")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with faults that begin close to each other."""
    record = simulate(SCENARIO, 3)
    kill = record.faults[0]
    assert kill.begun_ms is not None
    assert kill.ended_ms is not None
    cut = replace(kill, kind="partition", target="validator-0", targets=(), impaired=("validator-0",))
    slow = replace(kill, kind="slow_disk", target="validator-3", targets=("validator-3",), impaired=("validator-3",))
    record.faults = [kill, cut, replace(slow, begun_ms=kill.begun_ms + 200)]
    return write(record, tmp_path_factory.mktemp("several") / "report.html")


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_every_fault_of_the_timeline_is_named_or_numbered(browser: Browser, several: Path, size: str) -> None:
    browser.open(several, size=SIZES[size])
    names = browser.evaluate("document.getElementById('timeline').dataset.faults").split("; ")
    assert [name.split()[0] for name in names] == ["1", "2", "3"]
    listed = browser.evaluate("[...document.querySelectorAll('#bands li')].map((each) => each.textContent)")
    assert [name.split(maxsplit=1)[0] for name in listed] == ["1", "2", "3"]
    assert "partition validator-0" in listed[1]


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_of_many_faults_those_with_room_stand_over_their_beginnings(
    browser: Browser, tmp_path: Path, size: str
) -> None:
    record = simulate(SCENARIO, 3)
    slow = replace(record.faults[0], kind="slow_disk")
    begin = [record.duration_ms * place / 100 for place in range(99)]
    record.faults = [replace(slow, begun_ms=each, ended_ms=each + 1) for each in begin]
    browser.open(write(record, tmp_path / "report.html"), size=SIZES[size])
    numbers = [int(name) for name in browser.evaluate("document.getElementById('timeline').dataset.faults").split("; ")]
    assert numbers[0] == 1
    assert numbers[-1] > 90, "nobody pushed the others away"
    assert max(later - earlier for earlier, later in pairwise(numbers)) < 20
    assert len(browser.evaluate("[...document.querySelectorAll('#bands li')]")) == 99


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with more faults than a page lists."""
    record = simulate(SCENARIO, 3)
    kill = record.faults[0]
    slow = replace(kill, kind="slow_disk", target="validator-1", targets=("validator-1",), impaired=("validator-1",))
    begin = [record.duration_ms * place / 1_000 for place in range(999)]
    record.faults = [
        replace(slow if place % 3 else kill, begun_ms=each, ended_ms=each + 1) for place, each in enumerate(begin)
    ]
    return write(record, tmp_path_factory.mktemp("crowded") / "report.html")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_a_thousand_faults_fit(browser: Browser, crowded: Path, size: str, dark: bool) -> None:
    browser.open(crowded, size=SIZES[size], dark=dark)
    assert browser.errors == []
    width, inner = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner
    elements, height = browser.evaluate("[document.querySelectorAll('*').length, document.body.scrollHeight]")
    assert elements < 25_000
    assert height < 16_000, "folded"
    strip, bands = browser.evaluate(
        "['.strip', '.band'].map((each) => document.querySelectorAll(`#heights-wide ${each}`).length)"
    )
    assert 50 < strip < 200
    assert bands == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_the_table_of_faults_can_be_filtered(browser: Browser, crowded: Path, size: str) -> None:
    browser.open(crowded, size=SIZES[size])
    browser.evaluate("document.querySelector('details:has(#faults)').open = true")
    shown = "[...document.querySelectorAll('#faults tbody tr')].filter((row) => row.getBoundingClientRect().height)"
    assert browser.evaluate(f"{shown}.length") == 999
    browser.evaluate(
        "((filter) => { filter.value = 'KILL validator-2'; filter.dispatchEvent(new Event('input')); })"
        "(document.querySelector('[data-filter=faults]'))"
    )
    texts = browser.evaluate(f"{shown}.map((row) => row.textContent)")
    assert len(texts) == 333
    assert all("kill validator-2" in text for text in texts)


def test_the_timeline_points_at_each_of_many_faults(browser: Browser, crowded: Path) -> None:
    browser.open(crowded, "#t=1000-1030")
    told = browser.evaluate(
        "(() => { const canvas = document.getElementById('timeline'), box = canvas.getBoundingClientRect(), found = [];"
        " for (let across = 110; across < box.width; across += 2) for (let lane = 0; lane < 4; lane++) {"
        "  const at = { clientX: box.left + across, clientY: box.top + 50 + 52 * lane, pointerId: 1 };"
        "  canvas.dispatchEvent(new PointerEvent('pointermove', at));"
        "  found.push(document.getElementById('details').textContent); } return found; })()"
    )
    assert any(re.search(r"\d+ kill validator-2", text) for text in told)
    assert any(re.search(r"\d+ slow_disk validator-1", text) for text in told)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_stall_is_filled_where_a_fault_is_hatched(browser: Browser, tmp_path: Path, dark: bool) -> None:
    record = stalled(with_kill(make_record()))
    browser.open(write(record, tmp_path / "report.html"), dark=dark)
    names = browser.evaluate("document.getElementById('timeline').dataset.faults").split("; ")
    assert names == ["stall", "kill validator-2"], "the whole name has no room before the fault's"
    filled, ground = browser.evaluate(
        "((band) => [getComputedStyle(band).fill, getComputedStyle(document.body).backgroundColor])"
        "(document.querySelector('#heights-wide .stall'))"
    )
    assert filled == ("rgb(255, 138, 128)" if dark else "rgb(179, 38, 30)") != ground


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("table", ["faults", "validators", "classes"])
def test_no_column_is_out_of_sight(browser: Browser, several: Path, table: str, size: str) -> None:
    browser.open(several, size=SIZES[size])
    wide, room = browser.evaluate(
        f"(({{ parentElement: box }}) => [box.scrollWidth, box.clientWidth])(document.getElementById('{table}'))"
    )
    assert wide <= room
    heights = browser.evaluate(
        f"[...document.querySelectorAll('#{table} tbody tr')].map((row) => row.getBoundingClientRect().height)"
    )
    assert max(heights) < 250


def test_what_scrolls_has_a_shadow_at_its_edge(browser: Browser, several: Path) -> None:
    browser.open(several, size=PHONE)
    attached = browser.evaluate("getComputedStyle(document.querySelector('details .scroll')).backgroundAttachment")
    assert attached == "local, local, scroll, scroll"


def test_a_divergence_is_told_with_the_keys_in_which_it_parted(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["diverged"])
    rows = browser.evaluate(
        "[...document.querySelectorAll('.difference tbody tr')]"
        ".map((row) => [...row.children].map((c) => c.textContent))"
    )
    assert any("account 0x" in row[0] and row[0].startswith("balance") and row[2] != row[3] for row in rows)
    assert "the fire of timer" in browser.evaluate("document.querySelector('.divergence').textContent")


def test_the_theme_can_be_chosen_against_the_systems(browser: Browser, simulated: Path) -> None:
    browser.open(simulated, dark=True)
    colours = []
    for _ in range(3):
        browser.evaluate("document.getElementById('theme').click()")
        colours.append(
            browser.evaluate(
                "[document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor]"
            )
        )
    assert colours == [["light", "rgb(244, 244, 241)"], ["dark", "rgb(17, 17, 16)"], [None, "rgb(17, 17, 16)"]]


def test_the_command_is_copied(browser: Browser, simulated: Path) -> None:
    browser.open(simulated)
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    text = browser.evaluate(
        "(async () => { const button = document.querySelector('[data-copy]'); button.click();"
        " await new Promise((done) => new MutationObserver(done).observe(button, { childList: true }));"
        " return button.textContent; })()"
    )
    assert text == "Copied"


# --- the timeline -----------------------------------------------------------------------------------------------------


def shown(browser: Browser) -> tuple[float, float, int]:
    """From when, until when, and how many messages are drawn."""
    start, end, messages = browser.evaluate(
        "(({ from, to, messages }) => [+from, +to, +messages])(document.getElementById('timeline').dataset)"
    )
    return start, end, messages


def test_it_zooms_by_buttons_keys_and_windows(browser: Browser, simulated: Path) -> None:
    browser.open(simulated)
    start, end, messages = shown(browser)
    assert start == 0 < end
    assert messages == 0
    browser.evaluate("document.querySelector('[data-zoom=in]').click()")
    nearer, closer, _ = shown(browser)
    assert closer - nearer == pytest.approx(end / 2, abs=0.02)
    browser.evaluate("document.querySelector('[data-zoom=whole]').click()")
    assert shown(browser) == (start, end, messages)
    browser.evaluate(
        "(() => { const list = document.getElementById('windows'); list.value = '0';"
        " list.dispatchEvent(new Event('change')); })()"
    )
    first, last, drawn = shown(browser)
    assert first == 0
    assert last < end
    assert drawn > 50
    browser.evaluate(
        "document.getElementById('timeline').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }))"
    )
    assert shown(browser)[0] > first


def test_a_link_to_a_moment_opens_there(browser: Browser, simulated: Path) -> None:
    browser.open(simulated, "#t=200-700")
    start, end, messages = shown(browser)
    assert (start, end) == (200, 700)
    assert messages > 0


def test_kinds_of_messages_can_be_hidden(browser: Browser, simulated: Path) -> None:
    browser.open(simulated, "#t=0-1900")
    before = shown(browser)[2]
    browser.evaluate("document.querySelector('[data-kind=notarize]').click()")
    after = shown(browser)[2]
    assert 0 < after < before
    browser.evaluate("document.querySelector('[data-kind=notarize]').click()")
    assert shown(browser)[2] == before


CURSORS = (
    "[...document.querySelectorAll('svg.wide[data-axis]')].map((svg) => {"
    " const line = svg.querySelector('.cursor'), [low, high, start, end] = svg.dataset.scale.split(' ').map(Number);"
    " return [svg.id, svg.dataset.axis, line.getAttribute('visibility'),"
    " low + (line.getAttribute('x1') - start) / (end - start) * (high - low)]; })"
)
"""The cursor of each chart: the chart and its axis, whether it is visible, and its value."""


def test_a_moment_is_marked_in_all_charts_and_a_click_moves_the_timeline(browser: Browser, simulated: Path) -> None:
    browser.open(simulated)
    assert all(visibility == "hidden" for _, _, visibility, _ in browser.evaluate(CURSORS))
    height, ms = browser.evaluate(
        "(() => { const { lanes } = JSON.parse(document.getElementById('timeline-data').textContent);"
        " const most = lanes.map((lane) => lane.blocks).sort((a, b) => b.length - a.length)[0];"
        " const [ms, height] = most[Math.floor(most.length / 2)], svg = document.getElementById('latency-wide');"
        " const [low, high, start, end] = svg.dataset.scale.split(' ').map(Number), box = svg.getBoundingClientRect();"
        " const pixel = start + (height - low) / (high - low) * (end - start);"
        " const at = { clientX: box.left + pixel * box.width / svg.viewBox.baseVal.width, clientY: box.top + 60 };"
        " svg.dispatchEvent(new PointerEvent('pointermove', at)); svg.dispatchEvent(new MouseEvent('click', at));"
        " return [height, ms]; })()"
    )
    cursors = browser.evaluate(CURSORS)
    visible = {ident.removesuffix("-wide") for ident, _, visibility, _ in cursors if visibility == "visible"}
    assert visible >= {"heights", "latency", "fires", "backlog", "basefees", "lanes"}
    for ident, axis, visibility, value in cursors:
        assert visibility == "hidden" or value == pytest.approx(height if axis == "height" else ms / 1_000, abs=0.02), (
            ident
        )
    browser.open(simulated, "#t=1000-1400")
    shaded = browser.evaluate(
        "(() => { const svg = document.getElementById('heights-wide'), shown = svg.querySelector('.shown');"
        " const [low, high, start, end] = svg.dataset.scale.split(' ').map(Number);"
        " const value = (pixel) => low + (pixel - start) / (end - start) * (high - low), x = +shown.getAttribute('x');"
        " return [shown.getAttribute('visibility'), value(x), value(x + +shown.getAttribute('width'))]; })()"
    )
    assert shaded == ["visible", pytest.approx(1.0, abs=0.01), pytest.approx(1.4, abs=0.02)]
    assert browser.errors == []


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_pointing_at_a_message_tells_of_it(browser: Browser, simulated: Path, size: str) -> None:
    browser.open(simulated, "#t=200-700", size=SIZES[size])
    told = browser.evaluate(
        "(() => { const canvas = document.getElementById('timeline'), box = canvas.getBoundingClientRect(), found = [];"
        " for (let across = 40; across < box.width; across += 3) for (let down = 50; down < box.height; down += 9) {"
        "  const at = { clientX: box.left + across, clientY: box.top + down, pointerId: 1 };"
        "  canvas.dispatchEvent(new PointerEvent('pointermove', at));"
        "  found.push(document.getElementById('details').textContent); } return found; })()"
    )
    assert any(
        re.search(r"proposal, view \d+: validator-\d → validator-\d · .* took [\d.]+ ms, [\d,]+ bytes", t) for t in told
    )
    assert any(re.search(r"validator-\d · height \d+ final", text) for text in told)
    assert any(re.search(r"validator-\d · view \d+", text) for text in told)


def test_dragging_and_the_wheel_move_and_zoom(browser: Browser, simulated: Path) -> None:
    browser.open(simulated, "#t=1000-2000")
    x, y = browser.evaluate(
        "(() => { scrollTo(0, 0); document.getElementById('timeline-card').scrollIntoView();"
        " const box = document.getElementById('timeline').getBoundingClientRect();"
        " return [box.left + box.width / 2, box.top + box.height / 2]; })()"
    )
    for kind, at in (("mousePressed", x), ("mouseMoved", x - 100), ("mouseReleased", x - 100)):
        browser.call("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1, clickCount=1)
    start, end, _ = shown(browser)
    assert start > 1_050
    assert end - start == pytest.approx(1_000, abs=1)
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-300, modifiers=2)
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    start, end, _ = shown(browser)
    assert end - start < 700
