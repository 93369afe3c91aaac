"""Charts: scales, labels that keep apart, and odd data without nonsense."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from cluster.report.svg import (
    CHARACTER_PIXELS,
    MAX_BANDS_DRAWN,
    NARROW,
    TICK_ROW_PIXELS,
    WIDE,
    Band,
    Chart,
    Mark,
    Row,
    RowChart,
    Scale,
    Series,
    number,
    render,
)


def chart(points: list[tuple[float, float]], **changes: object) -> Chart:
    base = Chart("c", "Title", "Text", "x", "y", [Series("one", points)])
    return replace(base, **changes)  # type: ignore[arg-type]


def test_numbers_are_short() -> None:
    values = {0: "0", 950: "950", 9_999: "9,999", 12_345: "12.3 k", 1_000_000: "1 M", 2.5: "2.5", 10**24: "1.0e+24"}
    assert {value: number(value) for value in values} == values


def test_a_scale_maps_its_ends_and_ticks_are_round() -> None:
    scale = Scale(0, 100, 10, 210)
    assert (scale(0), scale(100)) == (10, 210)
    assert scale.ticks(5) == [0, 20, 40, 60, 80, 100]
    decades = Scale(1, 10**6, 0, 60, logarithmic=True)
    assert decades(1_000) == pytest.approx(30)
    assert decades.ticks(6) == [10**power for power in range(7)]


def test_a_wide_range_is_drawn_on_a_log_scale_where_it_is_allowed() -> None:
    points = [(1.0, 10.0), (2.0, 10_000.0)]
    assert "(log scale)" in render(chart(points, may_be_logarithmic=True))
    assert "(log scale)" not in render(chart(points))
    assert "(log scale)" not in render(chart([(1.0, 10.0), (2.0, 20.0)], may_be_logarithmic=True))


def test_a_chart_of_rows_has_a_log_scale_where_it_is_allowed_and_no_value_is_zero() -> None:
    def drawn(*values: float, allowed: bool = True) -> str:
        named = [(f"p{place}", value) for place, value in enumerate(values)]
        return render(RowChart("rows", "Rows", "", "ms", [Row("one", named)], may_be_logarithmic=allowed))

    assert "ms (log scale)" in drawn(10, 10_000)
    assert all("(log scale)" not in text for text in (drawn(10, 10_000, allowed=False), drawn(10, 90), drawn(0, 9_000)))


def test_no_line_goes_through_the_name_of_a_band() -> None:
    """Each name has a ground that is drawn after all lines of bands, and covers the name."""
    bands = [Band(1.0, 1.5, "1 kill validator-0"), Band(1.2, 1.9, "2 kill validator-1"), Band(1.4, 2.0, "3 cut")]
    drawn = render(chart([(1.0, 1.0), (2.0, 2.0)], bands=bands), [WIDE])
    lines = [found.end() for found in re.finditer('class="band-edge"', drawn)]
    grounds = list(re.finditer(r'class="name-ground" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="13.0"', drawn))
    names = list(re.finditer(r'class="band-name" x="([\d.]+)" y="([\d.]+)" text-anchor="start">([^<]+)<', drawn))
    assert len(grounds) == len(names) == 3
    for ground, name in zip(grounds, names, strict=True):
        assert max(lines) < ground.start() < name.start()
        x, y, width = (float(value) for value in ground.groups())
        assert x < float(name[1]) and x + width > float(name[1]) + 6 * len(name[3])
        assert y < float(name[2]) - 9 and y + 13 > float(name[2]) + 2


@pytest.mark.parametrize("style", ["line", "step", "dots", "bars", "area"])
@pytest.mark.parametrize("points", [[(1.0, 0.0)], [(1.0, 5.0), (2.0, 5.0)], [(0.0, 1e30), (1.0, 0.0)]])
def test_odd_data_draws_without_nonsense(style: str, points: list[tuple[float, float]]) -> None:
    drawn = render(chart(points, series=[Series("one", points, style), Series("two", points, style, 1)]))
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_a_line_has_a_gap_where_nobody_looked() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (9.0, 3.0), (10.0, 4.0)]
    strokes = [
        re.findall(r'class="line [^"]*" d="([^"]+)"', render(chart(points, series=[series])))[0]
        for series in (Series("one", points, gap=3.0), Series("one", points))
    ]
    assert [stroke.count("M") for stroke in strokes] == [2, 1]


def test_labels_and_band_names_keep_apart() -> None:
    series = [Series(f"s{i}", [(0.0, 1.0), (1.0, 1.0)], colour=i) for i in range(6)]
    bands = [Band(0.1, 0.2, "kill one"), Band(0.12, 0.3, "kill two"), Band(0.9, 2.0, "kill three")]
    drawn = render(chart([], series=series, bands=bands, marks=[Mark(1.0, "p50"), Mark(1.01, "p95")]))
    wide = drawn[: drawn.index('id="c-narrow"')]
    heights = sorted(float(y) for y in re.findall(r'class="(?:mark-)?name" x="[\d.]+" y="([\d.]+)"', wide))
    assert len(heights) == 8
    assert all(later - earlier >= 13.9 for earlier, later in pairwise(heights))
    names = re.findall(r'class="band-name" x="([\d.]+)" y="([\d.]+)"', wide)
    assert names[0][1] != names[1][1]


def test_bands_without_room_for_their_names_have_their_short_ones() -> None:
    series = [Series("s", [(0.0, 1.0), (1.0, 1.0)])]
    bands = [Band(0.1 + place / 100, 0.9, f"{place} kill leader (validator-{place})", str(place)) for place in range(6)]
    drawn = render(chart([], series=series, bands=bands))
    for size in ("wide", "narrow"):
        at = drawn.index(f'id="c-{size}"')
        names = re.findall(r'class="band-name"[^>]*>(\d)', drawn[at : drawn.index("</svg>", at)])
        assert names == ["0", "1", "2", "3", "4", "5"]
    apart = [*bands[:4], Band(0.35, 0.9, "4 kill leader (validator-4)", "4")]
    wide = render(chart([], series=series, bands=apart))
    assert ">4</text>" in wide[: wide.index('id="c-narrow"')]


def test_many_bands_have_their_short_names_alone_over_their_starts() -> None:
    series = [Series("s", [(0.0, 1.0), (1.0, 1.0)])]
    bands = [Band(place / 90, (place + 0.5) / 90, f"{place} kill leader", str(place)) for place in range(90)]
    drawn = render(chart([], series=series, bands=bands))
    for size, least in (("wide", 40), ("narrow", 15)):
        at = drawn.index(f'id="c-{size}"')
        part = drawn[at : drawn.index("</svg>", at)]
        edges = [float(x) for x in re.findall(r'class="band" x="([\d.]+)"', part)]
        names = re.findall(r'class="band-name" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)', part)
        assert len(names) >= least
        assert all(abs(float(x) - edges[int(name)]) < 15 for x, _, name in names)
        assert len({y for _, y, _ in names}) <= 2


def test_points_of_a_scatter_have_shapes_of_their_own() -> None:
    series = [Series(f"s{i}", [(0.0, 1.0), (1.0, 1.0)], "scatter", i) for i in range(4)]
    drawn = render(chart([], series=series))
    wide = drawn[: drawn.index('id="c-narrow"')]
    assert (wide.count("<circle"), wide.count("<rect x"), wide.count('<path d="M')) == (2, 2, 4)
    assert 'class="name"' not in wide


def test_rows_have_their_values_in_words_and_in_place() -> None:
    rows = [Row("flood", [("p50", 0.0), ("p99", 5.0)]), Row("a <very> long name", [("p50", 2.0), ("p99", 2.0)])]
    drawn = render(RowChart("r", "Title", "Text", "blocks", rows))
    assert "<title>flood: p50 0, p99 5</title>" in drawn
    assert "a &lt;very&gt; long name" in drawn
    wide = drawn[: drawn.index('id="r-narrow"')]
    median, tail = re.search(r'<circle cx="([\d.]+)"', wide), re.search(r'<rect x="([\d.]+)"', wide)
    assert median is not None and tail is not None
    assert float(median[1]) < float(tail[1])


def test_rows_of_zeros_draw_without_nonsense() -> None:
    drawn = render(RowChart("r", "Title", "Text", "blocks", [Row("one", [("p50", 0.0), ("p99", 0.0)])]))
    assert "nan" not in drawn
    assert render(RowChart("r", "Title", "Text", "blocks", [], "Nothing <here>.")) == (
        '<p class="empty">Nothing &lt;here&gt;.</p>'
    )


def test_a_crowd_of_bands_is_a_strip_and_stalls_stay_bands() -> None:
    series = [Series("s", [(0.0, 1.0), (1.0, 1.0)])]
    count = MAX_BANDS_DRAWN + 50
    bands = [Band(place / count, (place + 0.3) / count, f"{place} kill leader", str(place)) for place in range(count)]
    bands.append(Band(0.5, 0.6, "no final block for 9 s", "stall", is_stall=True))
    drawn = render(chart([], series=series, bands=bands))
    assert 'class="band"' not in drawn
    assert drawn.count('class="stall"') == 2
    assert drawn.count(">150 faults</text>") == 2
    wide = drawn[: drawn.index('id="c-narrow"')]
    told = re.findall(r"<title>([^<]*)</title></rect>", wide)
    assert {int(number) for text in told for number in re.findall(r"(\d+) kill", text)} == set(range(count))


def test_a_strip_says_how_much_of_each_stretch_is_filled() -> None:
    series = [Series("s", [(0.0, 1.0), (1.0, 1.0)])]
    whole = [Band(0.0, 0.4, f"{place} pause", str(place)) for place in range(MAX_BANDS_DRAWN)]
    drawn = render(chart([], series=series, bands=[*whole, Band(0.9, 0.9, "late kill", "x")]))
    opacities = [float(found) for found in re.findall(r'fill-opacity="([\d.]+)"', drawn)]
    assert set(opacities) >= {1.0, 0.25}, "filled, and hardly touched"
    assert "0 pause; 1 pause; and 98 more" in drawn


def test_intervals_are_whiskers_that_the_axis_has_room_for() -> None:
    points, intervals = [(0.0, 1.0), (1.0, 2.0)], [(0.5, 1.5), (1.0, 9.0)]
    plain = render(chart(points))
    drawn = render(chart(points, series=[Series("one", points, intervals=intervals)]))
    assert "whisker" not in plain
    assert drawn.count('class="line whisker c0"') == 2 * len(points), "on a desktop and on a phone"
    assert ">10</text>" in drawn and ">10</text>" not in plain
    tops = [float(top) for top in re.findall(r'whisker c0" d="M[\d.]+ ([\d.]+)V', drawn)]
    assert tops[1] < tops[0]
    assert drawn.count("<circle") == 4, "the points of the line are marked"


def test_values_below_zero_have_an_axis_at_zero() -> None:
    drawn = render(chart([(0.0, -3.0), (1.0, 4.0)]))
    assert "−" not in drawn and ">-4</text>" in drawn
    heights = {float(at) for at in re.findall(r'<line class="axis" x1="50.0" y1="([\d.]+)" x2="346.0" y2="\1"', drawn)}
    assert len(heights) == 2, "the x axis, and zero"
    below = render(chart([(0.0, -3.0), (1.0, -2.0)]))
    assert ">0</text>" in below and ">-3</text>" in below


def test_given_ticks_are_all_drawn_with_their_names() -> None:
    names = ["one", "two", "three", "four", "five", "six", "seven"]
    points = [(float(at), 1.0) for at in range(7)]
    drawn = render(chart(points, x_ticks=range(7), format_x=lambda at: names[round(at)]))
    assert [drawn.count(f">{name}</text>") for name in names] == [2] * 7
    without_last = render(chart(points[:-1], x_ticks=range(7), format_x=lambda at: names[round(at)]), (NARROW,))
    places = [
        float(x) for x in re.findall(r'<text class="tick" x="([\d.]+)" y="[\d.]+" text-anchor="middle"', without_last)
    ]
    assert max(places) < NARROW.end, "a tick without a point is within the axis"


def test_long_names_of_ticks_are_in_rows_without_overlap() -> None:
    names = [f"level number {at}" for at in range(7)]
    points = [(float(at), 1.0) for at in range(7)]
    short, drawn = (
        render(chart(points, x_ticks=range(7), format_x=lambda at, given=given: given[round(at)]), (NARROW,))
        for given in ("abcdefg", names)
    )
    found = re.findall(r'<text class="tick" x="([\d.]+)" y="([\d.]+)" text-anchor="middle">level', drawn)
    rows: dict[float, list[float]] = {}
    for across, down in found:
        rows.setdefault(float(down), []).append(float(across))
    assert len(found) == 7
    assert len(rows) > 1
    width = len(names[0]) * CHARACTER_PIXELS
    assert all(right - left > width for row in rows.values() for left, right in pairwise(row))
    assert max(across for row in rows.values() for across in row) + width / 2 <= NARROW.width
    heights = [float(re.findall(r'viewBox="0 0 360 ([\d.]+)"', each)[0]) for each in (short, drawn)]
    assert heights == [NARROW.height, NARROW.height + TICK_ROW_PIXELS * (len(rows) - 1)]
