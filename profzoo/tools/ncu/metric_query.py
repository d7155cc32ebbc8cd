"""Asks ncu which metrics a GPU has, and which of them section sets collect."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profzoo.errors import DataError
from profzoo.machine.external_programs import MISSING, ask_program
from profzoo.tools.ncu.command import INSTALL, PROGRAM, section_options

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet

# The chip whose metrics are listed where there is no GPU: that of H100 and H200.
CHIP = "gh100"
HEADING, UNIT, DESCRIPTION = "metric name", "metric unit", "metric description"
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


def query_metrics(chip: str | None) -> tuple[dict[str, Metric], str]:
    """Return the metrics of a chip by name, and where they are from; chip: None for the GPUs of this machine.

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
    return found, where


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


def query_sets(sets: Mapping[str, "SectionSet"]) -> dict[str, list[str]]:
    """Return the section sets that collect each metric, by its name without endings, as this ncu expands sections.

    Of a set with a section that this ncu does not have, only the metrics that it names itself are known.
    """
    found: dict[str, list[str]] = {}
    for name, chosen in sets.items():
        answer = ask_program([PROGRAM, "--list-metrics", *section_options(chosen)], PATIENCE_S)
        lines = [
            line.strip().removeprefix("-")
            for line in answer.stdout.splitlines()
            if "==" not in line and "group:" not in line
        ]
        for metric in dict.fromkeys(base_name(one) for one in [*lines, *chosen.get("metrics", [])] if "__" in one):
            found.setdefault(metric, []).append(name)
    return found


def base_name(metric: str) -> str:
    """Return a metric without endings; what samples it stays.

    >>> base_name("dram__bytes_read.sum"), base_name("TPC.Triage.sm__cycles_active.avg"), base_name("pmsampling:a__b")
    ('dram__bytes_read', 'TPC.Triage.sm__cycles_active', 'pmsampling:a__b')
    """
    before, between, after = metric.partition("__")
    return before + between + after.partition(".")[0]
