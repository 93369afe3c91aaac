"""The style that all pages share: text can be read, in both themes."""

from __future__ import annotations

import re

import pytest

from cluster.common.files import STYLE_FILE

STYLE_TEXT = STYLE_FILE.read_text(encoding="utf-8")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


INKS = ("ink", "ink-2", "ink-3", "pass", "fail", "inconclusive")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(theme: str) -> None:
    style = STYLE_TEXT
    block = style[style.index(":root {") :] if theme == "light" else style[style.index(':root[data-theme="dark"]') :]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", block[: block.index("}")]))
    for ground in ("card", "page", "code"):
        low = {ink: round(contrast(colours[ink], colours[ground]), 2) for ink in INKS}
        assert min(low.values()) >= 4.5, (ground, low)
    for word in ("pass", "fail", "inconclusive"):
        assert contrast(colours[word], colours[f"{word}-bg"]) >= 4.5
    for number in range(8):
        assert contrast(colours[f"c{number}"], colours["card"]) >= 3.0


def test_both_ways_to_the_dark_theme_have_the_same_colours() -> None:
    style = STYLE_TEXT
    starts = [style.index(':root:not([data-theme="light"]) {'), style.index(':root[data-theme="dark"] {')]
    system, chosen = (re.findall(r"--[\w-]+: [^;]+;", style[at : style.index("}", at)]) for at in starts)
    assert system == chosen
    assert len(system) > 20
