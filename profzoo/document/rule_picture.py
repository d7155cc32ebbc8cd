"""Draw docs/pictures/rules.svg from the graph of rules that `snakemake --rulegraph dot` prints to standard input.

Each rule stands in the row above the first rule that reads its files. An arrow is left out where other arrows connect
the same two rules. Rows are ordered so that arrows cross little: each rule goes to the mean place of its neighbours
(Sugiyama et al. 1981, doi:10.1109/TSMC.1981.4308636).
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import mean

RULE, ARROW = re.compile(r'^\s*(\d+)\[label = "([^"]+)"', re.M), re.compile(r"^\s*(\d+) -> (\d+)", re.M)
# Sizes in pixels: of a letter, a box, the space between rows, and between neighbours of a row.
LETTER, HEIGHT, DOWN, BESIDE = 6.2, 26, 62, 14
SWEEPS = 12
Arrow = tuple[str, str]
# A rule by its name; or the place where an arrow passes a row, by the arrow and the row.
Item = str | tuple[Arrow, int]


def read_arrows(graph: str) -> list[Arrow]:
    """Return the arrows of a graph in the language of Graphviz, from rule to rule, without those that others imply."""
    names = dict(RULE.findall(graph))
    arrows = sorted({(names[one], names[other]) for one, other in ARROW.findall(graph)})
    after: dict[str, set[str]] = {}
    for one, other in arrows:
        after.setdefault(one, set()).add(other)

    def reached(rule: str) -> Iterator[str]:
        for following in after.get(rule, ()):
            yield following
            yield from reached(following)

    implied = {one: {far for near in after[one] for far in reached(near)} for one in after}
    return [(one, other) for one, other in arrows if other not in implied[one]]


def place_rules(arrows: Sequence[Arrow]) -> tuple[dict[Item, tuple[float, float]], list[list[Item]]]:
    """Return the middle of each rule and of each place where an arrow passes, and the stations of each arrow."""
    above: dict[str, int] = dict.fromkeys(sorted({rule for arrow in arrows for rule in arrow}), 0)
    for _ in above:
        for one, other in arrows:
            above[one] = max(above[one], above[other] + 1)
    row = {rule: max(above.values()) - number for rule, number in above.items()}
    ways: list[list[Item]] = [
        [one, *(((one, other), number) for number in range(row[one] + 1, row[other])), other] for one, other in arrows
    ]
    rows: list[list[Item]] = [[] for _ in {*row.values()}]
    for item in dict.fromkeys(item for way in ways for item in way):
        rows[row[item] if isinstance(item, str) else item[1]].append(item)
    beside: dict[Item, list[Item]] = {}
    for item, following in (step for way in ways for step in pairwise(way)):
        beside.setdefault(item, []).append(following)
        beside.setdefault(following, []).append(item)
    x: dict[Item, float] = dict.fromkeys(beside, 0.0)
    for sweep in range(SWEEPS):
        for own in rows if sweep % 2 else rows[::-1]:
            _spread(own, x, {item: mean(x[other] for other in beside[item]) for item in own})
    left = min(x[item] - _width(item) / 2 for item in x)
    middles = {item: (x[item] - left, (number + 0.5) * DOWN) for number, own in enumerate(rows) for item in own}
    return middles, ways


def _spread(own: list[Item], x: dict[Item, float], wanted: Mapping[Item, float]) -> None:
    """Order a row by the wanted places, and give each item the nearest place that overlaps no other."""
    own.sort(key=lambda item: wanted[item])
    end = -float("inf")
    for item in own:
        x[item] = max(wanted[item], end + _width(item) / 2)
        end = x[item] + _width(item) / 2 + BESIDE
    shift = mean(wanted[item] - x[item] for item in own)
    for item in own:
        x[item] += shift


def _width(item: Item) -> float:
    return LETTER * len(item) + 2 * BESIDE if isinstance(item, str) else 0.0


def draw_rules(arrows: Sequence[Arrow]) -> str:
    """Return the picture of these arrows as SVG."""
    middles, ways = place_rules(arrows)
    width = max(x + _width(item) / 2 for item, (x, _) in middles.items())
    height = max(y for _, y in middles.values()) + DOWN / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-4 0 {width + 8:.0f} {height:.0f}" font-family="sans-serif" '
        'font-size="11" text-anchor="middle">',
        f'<rect x="-4" width="{width + 8:.0f}" height="{height:.0f}" fill="white"/>',
        '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8" fill="#777"/></marker>',
        *(_arrow([middles[item] for item in way]) for way in ways),
    ]
    for item, (x, y) in middles.items():
        if isinstance(item, str):
            box = f'x="{x - _width(item) / 2:.1f}" y="{y - HEIGHT / 2:.1f}" width="{_width(item):.1f}"'
            parts.append(f'<rect {box} height="{HEIGHT}" rx="6" fill="white" stroke="#267f76" stroke-width="1.5"/>')
            parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}">{escape(item)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _arrow(points: Sequence[tuple[float, float]]) -> str:
    """Return a smooth line from below the first of the points to above the last."""
    points = [(points[0][0], points[0][1] + HEIGHT / 2), *points[1:-1], (points[-1][0], points[-1][1] - HEIGHT / 2)]
    line = "M{:.1f} {:.1f}".format(*points[0])
    for (x, y), (end, low) in pairwise(points):
        half = (y + low) / 2
        line += f"C{x:.1f} {half:.1f} {end:.1f} {half:.1f} {end:.1f} {low:.1f}"
    return f'<path d="{line}" fill="none" stroke="#777" stroke-width="1.2" marker-end="url(#head)"/>'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw_rules(read_arrows(sys.stdin.read())))
