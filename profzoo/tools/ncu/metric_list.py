"""Lists ncu's metrics by name: `python -m profzoo.tools.ncu.metric_list --match WORDS --sets JSON [--chip CHIP]`.

A metric is listed if its name or description has all words. A star marks those that profzoo collects.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from profzoo.errors import DataError
from profzoo.tools.ncu.metric_query import Metric, base_name, query_metrics, query_sets
from profzoo.tools.ncu.quantities import QUANTITIES

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet

WIDTH = 80
INDENT = " " * 6
USED, OTHER = "* ", "  "


def find_metrics(
    metrics: Mapping[str, Metric], sets: Mapping[str, Sequence[str]], words: Sequence[str]
) -> list[Metric]:
    """Return the metrics with all words in name or description, those with them in the name first.

    Args:
        metrics: what ncu lists.
        sets: section sets by metric; metrics that ncu does not list are found as well.
        words: words to find in any case, or metrics with endings as columns of tables have them; without any, the
            metrics that sets collect are returned.
    """
    every = {**{name: Metric(name) for name in sets}, **metrics}
    wanted = [(base_name(word) if "__" in word else word).lower() for word in words]
    found = []
    for name, metric in sorted(every.items()):
        text = f"{name} {metric.description}".lower()
        if all(word in text for word in wanted) and (wanted or name in sets):
            found.append(replace(metric, sets=tuple(sets.get(name, ()))))
    return sorted(found, key=lambda one: not all(word in one.name.lower() for word in wanted))


def quantities_of(metric: str) -> list[str]:
    """Return the columns of the table of kernels that are made of a metric.

    >>> quantities_of("lts__t_bytes"), quantities_of("lts__t_requests")
    (['l2_bytes'], [])
    """
    made = {name: [base_name(one) for part in of.sums for one in part.factors] for name, of in QUANTITIES.items()}
    return [name for name, parts in made.items() if metric in parts]


def format_metrics(found: Sequence[Metric], width: int = WIDTH) -> list[str]:
    """Return the lines of a list of metrics, none of them longer than the width if no name is."""
    lines = []
    for metric in found:
        unit = f"  ({metric.unit})" if metric.unit else ""
        lines.append(f"{USED if metric.sets else OTHER}{metric.name}{unit}")
        lines += _wrapped(metric.description, width)
        if metric.sets:
            lines += _wrapped(f"sets: {', '.join(metric.sets)}", width)
        if columns := quantities_of(metric.name):
            lines += _wrapped(f"in kernels.csv: {', '.join(columns)}", width)
    return lines


def format_summary(found: Sequence[Metric], where: str, words: Sequence[str], width: int = WIDTH) -> list[str]:
    """Return the lines below the list: how many metrics there are, and how to go on."""
    what = f" with {' and '.join(words)} in name or description" if words else ""
    used = sum(1 for one in found if one.sets)
    many = "metric" if len(found) == 1 else "metrics"
    told = f"{len(found)} {many} of {where}{what}; section sets of profzoo collect {used} (*)."
    if not found:
        told = f"No metric of {where} has {' and '.join(words)} in name or description: try fewer or shorter words."
    more = "A set of your own collects others: add it to `ncu.sets`, with endings such as `.sum` or `.avg`."
    return textwrap.wrap(told, width) + (textwrap.wrap(more, width) if found else [])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False, break_long_words=False
    )


def main(match: str, chip: str | None, sets: Mapping[str, "SectionSet"]) -> list[str]:
    """Return the lines to print.

    Raises:
        DataError: ncu is not there, or lists no metrics of the chip.
    """
    words = match.split()
    metrics, where, capabilities = query_metrics(chip)
    found = find_metrics(metrics, query_sets(sets, capabilities), words)
    return [*format_metrics(found), *([""] if found else []), *format_summary(found, where, words)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m profzoo.tools.ncu.metric_list", description=__doc__)
    parser.add_argument("--match", default="", metavar="WORDS")
    parser.add_argument("--chip", default=None)
    parser.add_argument("--sets", required=True, type=json.loads, metavar="JSON")
    given = parser.parse_args()
    try:
        print("\n".join(main(given.match, given.chip or None, given.sets)))
    except DataError as error:
        sys.exit(f"profzoo: {error}")
