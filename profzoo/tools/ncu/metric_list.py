"""Lists ncu's metrics by name: `python -m profzoo.tools.ncu.metric_list --match WORDS --sets JSON [--chip CHIP]`.

A metric is listed if its name or description has all words. A star marks those that profzoo collects.
"""

import argparse
import csv
import json
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from profzoo.errors import DataError
from profzoo.machine import gpus
from profzoo.machine.external_programs import MISSING, ask_program
from profzoo.tools.ncu.command import INSTALL, PROGRAM, section_options
from profzoo.tools.ncu.quantities import EIGHT_BITS, QUANTITIES, add_eight_bit_metrics, metrics_to_ask

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet


# Asks ncu which metrics a GPU has, and which of them section sets collect.

# The chip whose metrics are listed where there is no GPU: that of H100 and H200.
CHIP = "gh100"
HEADING, UNIT, DESCRIPTION = "metric name", "metric unit", "metric description"
# Compute capability of chips by the beginning of their names, the longest beginning first.
CAPABILITIES = {
    "gv11b": 7.2, "gv": 7.0, "tu": 7.5, "ga100": 8.0, "ga10b": 8.7, "ga": 8.6, "ad": 8.9, "gh": 9.0, "gb10": 10.0,
    "gb20": 12.0,
}  # fmt: skip
# What a section collects, for all GPUs or for those from one compute capability to another: `arch:75:86:name`.
COLLECTED = re.compile(r"\s+-(?:arch:(?P<low>\d+):(?P<high>\d+):)?(?:breakdown:)?(?P<name>.*__.*)")
GROUP = "group:"
# Kinds of metrics that ncu lists apart; versions before 2025 do not know them.
COLLECTIONS = ("launch", "source", "nvlink", "numa")
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Metric:
    """A metric by its name without endings such as `.sum`; sets: section sets that collect it."""

    name: str
    unit: str = ""
    description: str = ""
    sets: Sequence[str] = field(default_factory=tuple)


def query_metrics(chip: str | None) -> tuple[dict[str, Metric], str, set[float]]:
    """Return the metrics of a chip by name, where they are from, and the compute capabilities of these GPUs, if known.

    chip: None for the GPUs of this machine.

    Raises:
        DataError: ncu is not there, does not know the chip, or prints no list.
    """
    printed = _ask([] if chip is None else ["--chips", chip])
    found, where = read_metrics(printed), chip or "the GPU of this machine"
    if not found and chip is None:
        chip, where = CHIP, f"{CHIP} (there is no GPU here)"
        printed = _ask(["--chips", chip])
        found = read_metrics(printed)
    if not found:
        said = (printed.strip().splitlines() or ["nothing"])[0].removeprefix("==ERROR== ")
        known = f"; it knows {chips}" if (chips := ask_program([PROGRAM, "--list-chips"]).stdout.strip()) else ""
        raise DataError(f"{PROGRAM} lists no metrics of {where}, but says: {said[:100]}{known[:400]}")
    for collection in COLLECTIONS:
        options = ["--query-metrics-collection", collection, *([] if chip is None else ["--chips", chip])]
        found = {**read_metrics(_ask(options)), **found}
    return found, where, gpus.read_compute_capabilities() if chip is None else capabilities_of(chip)


def capabilities_of(chip: str) -> set[float]:
    """Return the compute capability of a chip; empty if it is not known.

    >>> capabilities_of("gh100"), capabilities_of("xx1")
    ({9.0}, set())
    """
    return set([capability for start, capability in CAPABILITIES.items() if chip.lower().startswith(start)][:1])


def _ask(options: Sequence[str]) -> str:
    """Return what ncu prints of metrics.

    Raises:
        DataError: ncu is not there.
    """
    answer = ask_program([PROGRAM, "--query-metrics", *options, "--csv"], PATIENCE_S)
    if answer.returncode == MISSING:
        raise DataError(f"{PROGRAM} is not on PATH, so that its metrics cannot be listed: {INSTALL}")
    return answer.stdout or answer.stderr


def read_metrics(printed: str) -> dict[str, Metric]:
    """Return the metrics of a list as `ncu --query-metrics --csv` prints it, by name; empty if there is no list.

    >>> read_metrics('"Metric name","Metric unit","Metric description","gh100"\\n"a__b","byte","Bytes","1"')
    {'a__b': Metric(name='a__b', unit='byte', description='Bytes', sets=())}
    """
    found: dict[str, Metric] = {}
    heading: list[str] = []
    for row in csv.reader(printed.splitlines()):
        names = [name.strip().lower() for name in row]
        if HEADING in names:
            heading = names
        elif heading and len(row) == len(heading):
            field_of = dict(zip(heading, row, strict=True))
            name = field_of[HEADING]
            found[name] = Metric(name, field_of.get(UNIT, ""), field_of.get(DESCRIPTION, ""))
    return found


def query_sets(sets: Mapping[str, "SectionSet"], capabilities: Collection[float]) -> dict[str, list[str]]:
    """Return the section sets that collect each metric, by its name without endings, as this ncu expands sections.

    Of a set with a section that this ncu does not have, only the metrics that it names itself are known.

    capabilities: compute capabilities of the GPUs that are asked about; if empty, those of any GPU are returned.
    """
    found: dict[str, list[str]] = {}
    for name, chosen in sets.items():
        answer = ask_program([PROGRAM, "--list-metrics", *section_options(chosen)], PATIENCE_S)
        named = chosen.get("metrics", [])
        asked = _names_on(named, capabilities)
        listed = [one for one in read_collected(answer.stdout, capabilities) if one not in named or one in asked]
        for metric in dict.fromkeys(base_name(one) for one in [*listed, *asked] if "__" in one):
            found.setdefault(metric, []).append(name)
        for precision in EIGHT_BITS.values():
            more = [one for one in add_eight_bit_metrics(named, precision) if one not in named]
            for metric in map(base_name, _names_on(more, capabilities)):
                found.setdefault(metric, []).append(f"{name} in cells of {precision}")
    return found


def _names_on(metrics: Sequence[str], capabilities: Collection[float]) -> Sequence[str]:
    """Return the names of metrics on GPUs of these compute capabilities; as they are if there are none."""
    return [name for one in capabilities for name in metrics_to_ask(metrics, one)] if capabilities else metrics


def read_collected(printed: str, capabilities: Collection[float]) -> list[str]:
    """Return the metrics that sections collect on GPUs of these compute capabilities, or on any if there are none.

    printed: what `ncu --list-metrics` prints. Groups, whose metrics it does not say, are left out.

    >>> read_collected("a__b.sum\\n -arch:75:86:a__b.sum\\na__c.sum\\n -a__c.sum", [9.0])
    ['a__c.sum']
    """
    found = []
    for line in printed.splitlines():
        told = COLLECTED.fullmatch(line)
        if told is None or told["name"].startswith(GROUP):
            continue
        low, high = (float(told[end] or otherwise) / 10 for end, otherwise in (("low", 0), ("high", "inf")))
        if not capabilities or any(low <= one <= high for one in capabilities):
            found.append(told["name"])
    return found


def base_name(metric: str) -> str:
    """Return a metric without endings; what samples it stays.

    >>> base_name("dram__bytes_read.sum"), base_name("TPC.Triage.sm__cycles_active.avg"), base_name("pmsampling:a__b")
    ('dram__bytes_read', 'TPC.Triage.sm__cycles_active', 'pmsampling:a__b')
    """
    before, between, after = metric.partition("__")
    return before + between + after.partition(".")[0]


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
