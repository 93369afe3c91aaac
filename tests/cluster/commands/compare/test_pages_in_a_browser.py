"""The index and the comparison in headless Chromium: no complaint, no request, light and dark, desk and phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from cluster.commands.compare.comparison import compare
from cluster.commands.compare.comparison_output import render_comparison
from cluster.commands.compare.groups import read_group
from cluster.report.run_index import INDEX_FILE, read_index, write_index
from tests.cluster.browser import DESK, PHONE, Browser, chromium, needs_chromium
from tests.cluster.commands.compare.folders import drawn, write_run, write_sweep

pytestmark = needs_chromium

SIZES = {"desk": DESK, "phone": PHONE}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    detail = "validator-1 diverged at height 6 " + "with-a-word-that-is-far-too-long-to-fit" * 5
    write_run(root / "failed", verdict="fail", checks=[{"name": "roots", "verdict": "fail", "detail": detail}])
    write_run(root / "20260304-050607-a-scenario-with-a-very-long-name-indeed", scenario="a-very-long-name" * 4)
    for name, latency in (("a", 60.0), ("b", 80.0)):
        write_sweep(root / name, range(9), drawn(range(9), Random(1), finality_latency_p50_ms=latency))
    (root / "broken").mkdir()
    (root / "broken" / "result.json").write_text("{")
    write_index(root, read_index(root))
    comparison = root / "comparison.html"
    found = compare(read_group([root / "a"]), read_group([root / "b"]), 1)
    comparison.write_text(render_comparison(found), encoding="utf-8")
    return {"index": root / INDEX_FILE, "comparison": comparison}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", ["desk", "phone"])
@pytest.mark.parametrize("name", ["index", "comparison"])
def test_it_opens_without_a_complaint_and_fits(
    browser: Browser, pages: dict[str, Path], name: str, size: str, dark: bool
) -> None:
    browser.open(pages[name], size=SIZES[size], dark=dark)
    assert browser.errors == []
    assert [address for address in browser.requests if address != pages[name].as_uri()] in ([], ["data:,"])
    width, inner = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inner == SIZES[size][0]


def test_the_index_can_be_filtered(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["index"])
    shown = browser.evaluate(
        "(() => { const filter = document.getElementById('filter'); filter.value = 'FAIL smoke';"
        " filter.dispatchEvent(new Event('input'));"
        " return [...document.querySelectorAll('[data-search]')].filter((row) => !row.hidden).length; })()"
    )
    assert shown == 1


def test_the_index_can_be_sorted(browser: Browser, pages: dict[str, Path]) -> None:
    """By numbers as numbers, largest first; by texts as texts; entries without a value are last either way."""
    browser.open(pages["index"])
    column = (
        "(() => { const heads = [...document.querySelectorAll('#runs thead th')];"
        " const place = heads.findIndex((each) => each.textContent.startsWith('NAME'));"
        " heads[place].querySelector('button').click();"
        " const cells = [...document.querySelectorAll('#runs tbody tr')].map((row) => row.cells[place]);"
        " return [heads[place].getAttribute('aria-sort'),"
        " cells.map((cell) => cell.dataset.value ?? cell.textContent.trim())]; })()"
    )
    for name, first in (("Heights", "descending"), ("Run", "ascending"), ("Finality", "descending")):
        for direction in (first, "ascending" if first == "descending" else "descending"):
            shown, values = browser.evaluate(column.replace("NAME", name))
            filled = [value for value in values if value]
            assert shown == direction
            assert values == filled + [""] * (len(values) - len(filled))
            key = str if name == "Run" else float
            assert filled == sorted(filled, key=key, reverse=direction == "descending")
    assert browser.errors == []
