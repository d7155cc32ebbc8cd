"""Asks ncu which metrics a GPU has, and which of them section sets collect."""

import csv
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profzoo.errors import DataError
from profzoo.machine import gpus
from profzoo.machine.external_programs import MISSING, ask_program
from profzoo.tools.ncu.command import INSTALL, PROGRAM, section_options
from profzoo.tools.ncu.quantities import EIGHT_BITS, add_eight_bit_metrics, metrics_to_ask

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet

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
