"""The scorecard's page, and the comparison of two scorecards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.commands.compare.comparison import compare
from cluster.commands.compare.groups import read_group
from cluster.common.errors import BadInput, ExitCode
from kits.market.dos.scorecard import Scorecard
from kits.market.dos.scorecard_output import render_scorecard
from kits.market.dos.section import ATTACK_NAMES, DEFAULT_BOUNDS
from tests.cluster.browser import DESK, PHONE, Browser, chromium, needs_chromium
from tests.kits.market.dos.cards import attacked, card, large_card

SIZES = {"desk": DESK, "phone": PHONE}


def written(path: Path, scorecard: Scorecard) -> Path:
    path.write_text(json.dumps(scorecard.page()))
    return path


# --- the page -------------------------------------------------------------------------------------------------------


def test_a_heat_map_has_a_cell_for_each_attack_and_variant() -> None:
    scorecard = large_card(range(1))
    page = render_scorecard(scorecard)
    free = sum(score.is_free for scores in scorecard.scores.values() for score in scores)
    assert 0 < free < 3 * len(ATTACK_NAMES)
    for name in ("grade", *DEFAULT_BOUNDS):
        graded = 3 * len(ATTACK_NAMES) - (free if name == "state_bytes_per_coin" else 0)
        section = page.partition(f'<section class="card" aria-labelledby="map-{name}">')[2].partition("</section>")[0]
        assert len(re.findall(r'<td class="g-[A-F]', section)) == graded
        assert len(re.findall(r'<td class="g-', section)) == 3 * len(ATTACK_NAMES)
        for variant in ("cip1", "hardened", "fifo"):
            assert f'<th scope="col">{variant} SCAN_LIMIT=1024</th>' in section


def test_a_cells_colour_is_its_grade_and_its_words_are_what_is_bad() -> None:
    page = render_scorecard(card(attacked(late=5)))
    assert '<th scope="row">same-block</th><td class="g-C"><strong>C</strong> lateness_p99_added</td>' in page
    assert '<td class="g-A"><strong>A</strong> 1</td>' in page, "honest fires"
    assert ">Pass</p>" in page
    failed = render_scorecard(card(attacked(late=50), problem="roots <fail>"))
    assert '<td class="g-F"><strong>F</strong> lateness_p99_added</td>' in failed
    assert "roots &lt;fail&gt;" in failed


def test_a_map_holds_variants_against_cip1() -> None:
    scorecard = large_card(range(1))
    page = render_scorecard(scorecard)
    section = page.partition('<section class="card" aria-labelledby="map-against">')[2].partition("</section>")[0]
    assert "Against the same attack on cip1 SCAN_LIMIT=1024" in section
    assert len(re.findall(r'<td class="g-', section)) == 2 * len(ATTACK_NAMES)
    assert "better: lateness_p99_added" in section and "worse: " in section
    assert "map-against" not in render_scorecard(card(attacked(late=5)))


def test_an_attack_that_did_not_end_has_an_empty_cell() -> None:
    whole = large_card(range(1))
    missing = whole.plan.trial(whole.plan.variants[0], whole.plan.attacks[0], 0)
    ended = {trial: result for trial, result in whole.results.items() if trial != missing}
    part = Scorecard(whole.plan, whole.dos, ended, "", interrupted=True)
    assert '<th scope="row">same-block</th><td class="g-none"><strong>?</strong> –</td>' in render_scorecard(part)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "scorecard.html"
    path.write_text(render_scorecard(large_card(range(2))), encoding="utf-8")
    return path


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_it_opens_without_a_complaint_and_fits(browser: Browser, page: Path, size: str, dark: bool) -> None:
    browser.open(page, size=SIZES[size], dark=dark)
    assert browser.errors == []
    assert [address for address in browser.requests if address != page.as_uri()] in ([], ["data:,"])
    width, inner = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner == SIZES[size][0]
    colours = "[...document.querySelectorAll('.heat .g-A, .heat .g-F')].map((cell) => getComputedStyle(cell).color)"
    assert len(set(browser.evaluate(colours))) == 2


# --- comparison -----------------------------------------------------------------------------------------------------


def test_two_scorecards_are_compared_seed_by_seed(tmp_path: Path) -> None:
    late = [[attacked(late=n + worse, fires=40 + n % 2) for n in range(10)] for worse in (0, 9)]
    cards = [written(tmp_path / f"{place}.json", card(*given)) for place, given in enumerate(late)]
    found = compare(read_group(cards[:1]), read_group(cards[1:]), 1)
    changes = {change.name: change for change in found.changes}
    assert found.first.seeds == list(range(10))
    change = changes["lateness_p99 (same-block, cip1)"]
    assert (change.difference.change, change.word) == (9, "worse")
    assert not changes["honest_fires_ratio (same-block, cip1)"].is_significant


@pytest.mark.parametrize(("metric", "word"), [("spend", "better"), ("honest_fires_ratio", "better")])
def test_a_dearer_attack_and_more_honest_fires_are_better(tmp_path: Path, metric: str, word: str) -> None:
    results = [[attacked(fires=fires + n, spend=spend + n) for n in range(9)] for fires, spend in ((20, 10), (40, 900))]
    groups = [read_group([written(tmp_path / f"{place}.json", card(*given))]) for place, given in enumerate(results)]
    changes = compare(groups[0], groups[1], 1).changes
    change = next(each for each in changes if each.name == f"{metric} (same-block, cip1)")
    assert change.word == word


def test_the_command_takes_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "dos"
    folder.mkdir()
    written(folder / "scorecard.json", card(attacked(late=1), attacked(late=3)))
    other = written(tmp_path / "b.json", card(attacked(late=4), attacked(late=6)))
    assert main(["compare", str(folder), str(other), "--html", str(tmp_path / "c.html")]) == ExitCode.PASS
    out = capsys.readouterr().out
    assert "lateness_p99 (same-block, cip1)" in out
    assert "lateness_p99 (same-block, cip1)" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "stampede-dos/9"}', '{"format": "stampede-dos/1"}'])
def test_a_file_that_is_no_scorecard_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "card.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"card.json: is no scorecard of stampede dos$"):
        read_group([path])
