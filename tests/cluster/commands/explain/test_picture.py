"""The drawing of a network, and the page around it."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cluster.commands.explain.outline import distances, outline
from cluster.commands.explain.outline_output import render_outline
from cluster.commands.explain.picture import NARROW, WIDE, caption, picture
from cluster.report.svg import CHARACTER_PIXELS
from cluster.scenario import Scenario
from tests.cluster.browser import PHONE, chromium, needs_chromium
from tests.hangs import HANGS_AFTER_S
from tests.tools import CHROMIUM

SVG = "{http://www.w3.org/2000/svg}"
REGIONS: dict[str, Any] = {
    "regions": {"us-east": ["validator-0", "validator-1"], "eu-west": ["validator-2"]},
    "latencies": "azure",
}


def scenario(count: int = 7, nodes: list[dict[str, Any]] | None = None, **links: Any) -> Scenario:
    return Scenario.model_validate(
        {"name": "drawn", "validators": {"count": count, "nodes": nodes or []}, "links": links}
    )


def drawn(given: Scenario) -> ElementTree.Element:
    return ElementTree.fromstring(picture(given))


def lines(given: Scenario) -> list[ElementTree.Element]:
    return drawn(given).findall(f".//{SVG}line")


def labels(given: Scenario, kind: str = "label") -> list[str]:
    return [str(text.text) for text in drawn(given).findall(f".//{SVG}text[@class='{kind}']")]


KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "ring": {"topology": "ring"},
    "star": {"topology": {"kind": "star", "hub": "validator-3"}},
    "random": {"topology": {"kind": "random-regular", "degree": 2}},
    "small world": {"topology": "small-world"},
    "edges": {"topology": {"kind": "edges", "edges": [["validator-0", "validator-6"]], "allow_disconnected": True}},
}


@pytest.mark.parametrize("links", KINDS.values(), ids=KINDS)
def test_every_validator_and_every_link_is_drawn_within_the_frame(links: dict[str, Any]) -> None:
    given = scenario(**links)
    circles = drawn(given).findall(f".//{SVG}circle[@class='node']")
    places = {(float(circle.attrib["cx"]), float(circle.attrib["cy"])) for circle in circles}
    assert len(circles) == len(places) == 7
    assert all(20 < x < WIDE.width - 20 and 20 < y < WIDE.height - 20 for x, y in places)
    assert len(lines(given)) == len(given.network.links)


@pytest.mark.parametrize("links", [*KINDS.values(), REGIONS], ids=[*KINDS, "regions"])
def test_a_phone_has_a_drawing_of_its_own_with_text_that_stays_within(links: dict[str, Any]) -> None:
    long = "a-name-that-is-as-long-as-a-name-can-possibly-be-and-longer"
    given = scenario(nodes=[{}] * 4 + [{"name": long}], **links)
    element = ElementTree.fromstring(picture(given, NARROW))
    width = float(element.attrib["viewBox"].split()[2])
    assert width <= 360, "so that it need not be scaled down"
    for text in element.findall(f".//{SVG}text"):
        half = len(str(text.text)) * CHARACTER_PIXELS / 2
        assert half <= float(text.attrib["x"]) <= width - half, text.text


def test_the_hub_of_a_star_is_in_the_middle() -> None:
    circles = drawn(scenario(topology={"kind": "star", "hub": "validator-3"})).findall(f".//{SVG}circle[@class='node']")
    assert (float(circles[3].attrib["cx"]), float(circles[3].attrib["cy"])) == WIDE.middle


def test_one_line_stands_for_all_links_between_two_regions() -> None:
    given = scenario(**REGIONS)
    assert len(lines(given)) == 3, "us-east, eu-west, and those without a region"
    assert "41.5" in labels(given)
    assert set(labels(given, "region")) == {"us-east", "eu-west", "no region"}
    assert labels(given, "within") == ["1 ms", "20 ms"]
    assert "a thick line represents all links between two regions" in caption(given)


def test_names_of_regions_are_where_no_line_comes_from() -> None:
    element = drawn(scenario(**REGIONS))
    areas = element.findall(f".//{SVG}circle[@class='area']")
    for area, name in zip(areas, element.findall(f".//{SVG}text[@class='region']"), strict=True):
        is_below = float(name.attrib["y"]) > float(area.attrib["cy"])
        assert is_below == (float(area.attrib["cy"]) > WIDE.height / 2), name.text


def test_links_of_gateways_are_drawn_one_by_one() -> None:
    everywhere = {"a": [f"validator-{i}" for i in range(4)], "b": [f"validator-{i}" for i in range(4, 7)]}
    given = scenario(regions=everywhere, topology="regions")
    assert len(lines(given)) == len(given.network.links) == 6 + 3 + 1


@pytest.mark.kits
def test_who_has_something_particular_has_another_rim_and_says_what() -> None:
    given = scenario(nodes=[{"name": "slow-one", "job_ms": 9}, {"mutant": "double-fire"}])
    assert len(drawn(given).findall(f".//{SVG}circle[@class='node special']")) == 2
    titles = [title.text for title in drawn(given).findall(f".//{SVG}g/{SVG}title")]
    assert titles[:3] == ["slow-one; each job takes 9 ms", "validator-1; planted bug double-fire", "validator-2"]
    assert "slow-one" in labels(given)
    assert "a dashed rim marks" in caption(given)


def test_links_that_cannot_be_told_apart_are_not_drawn() -> None:
    assert lines(scenario(40)) == []
    assert caption(scenario(40)) == "40 validators, topology full: 780 links, too many to draw."
    assert len(lines(scenario(40, topology="small-world"))) == 80
    assert labels(scenario(40, topology="small-world")) == [], "and their latencies could not be read"


@pytest.mark.parametrize("count", [1, 2, 512])
def test_the_smallest_and_the_largest_network_can_be_drawn(count: int) -> None:
    circles = drawn(scenario(count)).findall(f".//{SVG}circle[@class='node']")
    assert len(circles) == count


def test_it_is_light_and_dark_and_needs_nothing_else() -> None:
    text = picture(scenario(**REGIONS))
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"(?:href|src)=|url\(|@import", text)
    assert [address for address in re.findall(r"https?://[^\"]+", text) if "www.w3.org" not in address] == []


# --- the page -------------------------------------------------------------------------------------------------------


def page(given: Scenario) -> str:
    return render_outline(given, outline(given), distances(given.network), "scenarios/drawn.yaml")


class _Elements(HTMLParser):
    """Collects headings, and notes what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)


def test_the_page_has_everything_and_is_closed() -> None:
    found = _Elements(page(scenario(**REGIONS)))
    assert found.open == []
    assert found.headings[:3] == ["Network", "Latencies", "Backends"]
    assert "Timeline" in found.headings


def test_the_picture_follows_the_page_into_another_theme() -> None:
    text = page(scenario())
    assert 'id="theme"' in text
    assert '[data-theme="dark"] svg.network{' in text
    assert ':root:not([data-theme="light"]) svg.network,' in text


def test_what_a_scenario_says_is_text_and_no_markup() -> None:
    given = Scenario(name="a", description="<script>alert(1)</script>")
    assert "<script>alert" not in page(given)


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_is_cut_and_the_picture_keeps_its_size(tmp_path: Path, dark: bool) -> None:
    path = tmp_path / "page.html"
    section = {"count": 7, "epochs": [{"from_view": 1, "members": [f"validator-{index}" for index in range(6)]}]}
    given = Scenario.model_validate({"name": "drawn", "validators": section, "links": REGIONS})
    path.write_text(page(given), encoding="utf-8")
    with chromium(tmp_path / "profile") as browser:
        browser.open(path, size=PHONE, dark=dark)
        assert browser.errors == []
        boxes = "[...document.querySelectorAll('.scroll')].map((each) => [each.scrollWidth, each.clientWidth])"
        assert all(wide <= room for wide, room in browser.evaluate(boxes))
        shown = "[...document.querySelectorAll('svg.network')].map((each) => each.getBoundingClientRect().width)"
        wide, narrow = browser.evaluate(shown)
        assert wide == 0 < 0.85 * NARROW.width < narrow <= PHONE[0]


@needs_chromium
def test_the_page_opens_without_console_errors(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(scenario(**REGIONS)), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [str(CHROMIUM), *options, profile, "--enable-logging=stderr", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'class="network"' in done.stdout
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
