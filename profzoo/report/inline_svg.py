"""Inline a figure's SVG into a page: unique ids, a description for screen readers, and theme colours."""

import html
import re

from profzoo.report.svg_sanitizer import sanitise_svg

# Colours in which matplotlib and seaborn draw text, lines and background, with the page's names for them.
THEME_COLOURS = {"#262626": "--ink", "#333333": "--ink", "#444444": "--ink", "#666666": "--soft", "#cccccc": "--line"}
PAPER = re.compile(r"(<(?:path|g)\b[^>]*?style=\"[^\"]*?\b(?:fill|stroke): )#ffffff")
INK = re.compile(rf"(\b(?:fill|stroke): )({'|'.join(THEME_COLOURS)})\b")
# Marks keep the colours of the palette; these elements get the colours of the theme.
ELEMENTS = re.compile(r"<(?:text|g|use)\b[^>]*>|<path\b[^>]*fill: none[^>]*>")


def inline_figure(svg: str, name: str, told: str) -> str:
    """Return the SVG element for a page; name: name of the figure; told: its description for screen readers.

    Raises:
        DataError: the SVG contains something that a browser would run or load.

    >>> inline_figure('<!-- by --><svg width="9pt"><g id="a"><text style="fill: #262626">1</text></g></svg>', "n", "")
    '<svg role="img" aria-label=""><g id="n-a"><text style="fill: var(--ink)">1</text></g></svg>'
    """
    # Several SVGs in one page share one space of ids.
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", sanitise_svg(svg))
    for _ in range(2):
        # A style may hold both a fill and a stroke.
        svg = PAPER.sub(r"\g<1>var(--paper)", svg)
    svg = ELEMENTS.sub(lambda tag: INK.sub(lambda style: f"{style[1]}var({THEME_COLOURS[style[2]]})", tag[0]), svg)
    svg = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", svg, count=2)
    return re.sub(r"<svg\b", f'<svg role="img" aria-label="{html.escape(told)}"', svg, count=1)
