"""The picture of the rules: arrows that others imply are left out, rows follow arrows, and nothing overlaps."""

from itertools import combinations
from xml.etree import ElementTree

from profzoo.document import rule_picture

GRAPH = """digraph snakemake_dag {
    node[shape=box];
	0[label = "report", color = "0.45 0.6 0.85", style="rounded"];
	1[label = "verdicts", color = "0.66 0.6 0.85", style="rounded"];
	2[label = "export", color = "0.66 0.6 0.85", style="rounded"];
	3[label = "columns", color = "0.66 0.6 0.85", style="rounded"];
	4[label = "figures", color = "0.66 0.6 0.85", style="rounded"];
	1 -> 0
	2 -> 0
	2 -> 1
	3 -> 0
	4 -> 0
	2 -> 4
}
"""
WORDS = "columns report, export figures, export verdicts, figures report, verdicts report"
ARROWS = [(first, second) for first, second in map(str.split, WORDS.split(","))]


def test_an_arrow_that_others_imply_is_left_out() -> None:
    assert rule_picture.read_arrows(GRAPH) == ARROWS
    assert rule_picture.read_arrows("") == []


def test_each_rule_stands_above_the_first_that_reads_its_files() -> None:
    middles, ways = rule_picture.place_rules([*ARROWS, ("export", "far"), ("far", "end"), ("report", "end")])
    rows = {rule: y / rule_picture.DOWN - 0.5 for rule, (_, y) in middles.items() if isinstance(rule, str)}
    assert rows == {"export": 0, "verdicts": 1, "figures": 1, "columns": 1, "report": 2, "far": 2, "end": 3}
    # An arrow that is longer than a row passes the rows between.
    assert ["export", (("export", "far"), 1), "far"] in ways
    boxes = [(y, x, rule_picture._width(item)) for item, (x, y) in middles.items()]
    for (y, x, width), (other_y, other_x, other_width) in combinations(boxes, 2):
        assert y != other_y or abs(x - other_x) >= (width + other_width) / 2
    assert min(x - width / 2 for _, x, width in boxes) == 0


def test_the_picture_has_all_rules_and_arrows() -> None:
    picture = ElementTree.fromstring(rule_picture.draw_rules(ARROWS))
    of = "{http://www.w3.org/2000/svg}"
    assert {text.text for text in picture.iter(f"{of}text")} == {rule for arrow in ARROWS for rule in arrow}
    assert len([line for line in picture.iter(f"{of}path") if line.get("marker-end")]) == len(ARROWS)
