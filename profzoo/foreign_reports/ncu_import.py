"""Converts reports of Nsight Compute made elsewhere to what profzoo's own jobs leave: pages, details, sidecar."""

import csv
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import kernel_identity, sidecars, traced_kernels
from profzoo.foreign_reports.ncu_metrics import OF_LAUNCH, Launches, join, read_launches
from profzoo.foreign_reports.ncu_text import KERNEL, METRIC, UNIT, VALUE, PrintedTable, find_tables
from profzoo.io.scripts import write_json
from profzoo.tools.ncu import TOOL, details_page
from profzoo.tools.ncu.command import SHARED_MEMORY
from profzoo.tools.ncu.export import ENDING
from profzoo.tools.ncu.quantities import GPU_TIME

REPORT = ".ncu-rep"
PAGES = {"raw": ["--page", "raw", "--print-units", "base", "--print-kernel-base", "demangled"],
         "details": ["--page", "details"]}  # fmt: skip
NAME, CAPABILITY = "device__attribute_display_name", "CC"
NO_TIME = (
    "no launch has a duration (gpu__time_duration.sum), so that nothing can be added up: collect it, or give a report "
    "of nsys as well"
)
DETAILS = ["ID", KERNEL, "Section Name", METRIC, UNIT, VALUE, *details_page.ADVICE]


def main(
    paths: Sequence[str], model: str, traced: str | None, outputs: Mapping[str, str],
    say: Callable[[str], object] = print,
) -> None:  # fmt: skip
    """Read reports or printed pages; write the folder of `pages`, the page of `details` and `sidecar`.

    traced: export of nsys of the same program, or table of its launches, whose names of kernels are taken.

    Raises:
        DataError: a file cannot be used, or no launch has a duration and nothing else times them.
    """
    launches, details, files = None, list[tuple[PrintedTable, Mapping[str, str]]](), []
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(paths):
            tables, form = _tables(path, Path(folder) / str(number))
            read, numbers = _numbered(read_launches(path, tables))
            launches = read if launches is None else join(launches, read)
            details += [(table, numbers) for table in tables if "Rule Name" in table.heading] if not number else []
            files.append(sidecars.file_facts(path, form))
    assert launches is not None
    launches, untimed = _timed(launches) if not traced else (launches, [])
    times = _times(launches)
    if not times.sum() and not traced:
        why = next((f"; {line}" for line in launches.left_out if "time_duration" in line), "")
        raise DataError(f"{paths[0]}: {NO_TIME}{why}")
    named = _named(launches, traced)
    launches, placed = _placed(launches, traced)
    coverage = [*launches.left_out, *untimed, *named, *placed]
    pages = Path(outputs["pages"])
    pages.mkdir()
    for ending, column in ((ENDING, "mangled"), (".demangled.csv", KERNEL)):
        _write_page(launches, column, pages / f"imported{ending}")
    _write_details(details, Path(outputs["details"]))
    write_json(_facts(model, launches, times, files, coverage), outputs["sidecar"])
    for line in (f"{len(launches.table):,} launches", *coverage):
        say(f"{', '.join(paths)}: {line}")


def _tables(path: str, folder: Path) -> tuple[list[PrintedTable], str]:
    """Return the tables of a file, which of a report ncu prints, and what the file is."""
    if not path.endswith(REPORT):
        tables = find_tables(path)
        return tables, "details or metrics of ncu as CSV" if tables[0].long else "raw page of ncu as CSV"
    if not shutil.which("ncu"):
        raise DataError(
            f"{path} is a report, which only ncu reads, and ncu is not on PATH: where it is, type "
            f"`ncu --import {path} --page raw --csv --print-units base > page.csv`, and import that"
        )
    folder.mkdir()
    found = []
    for page, words in PAGES.items():
        answer = subprocess.run(["ncu", "--import", path, "--csv", *words], capture_output=True, text=True, check=False)
        if answer.returncode:
            last = (answer.stderr or answer.stdout).strip().splitlines()[-1:] or ["it says nothing"]
            raise DataError(f"{path} cannot be printed by this ncu: {last[0][:200]}: take the ncu that wrote it")
        printed = folder / f"{page}.csv"
        printed.write_text(answer.stdout, encoding="utf-8")
        found += find_tables(printed)
    return found, "report of Nsight Compute"


def _numbered(launches: Launches) -> tuple[Launches, dict[str, str]]:
    """Return launches numbered from 0 on, and the new number of each."""
    numbers = {number: str(place) for place, number in enumerate(launches.table["ID"])}
    return replace(launches, table=launches.table.assign(ID=list(numbers.values()))), numbers


def _timed(launches: Launches) -> tuple[Launches, list[str]]:
    """Return the launches that have a duration, where any has, and what there is to say of the others."""
    known = _times(launches) > 0
    if known.all() or not known.any():
        return launches, []
    table = launches.table[known].reset_index(drop=True)
    table["ID"] = [str(number) for number in range(len(table))]
    lost = int((~known).sum())
    return replace(launches, table=table), [f"{lost} of {len(known)} launches have no duration and are left out"]


def _times(launches: Launches) -> pd.Series:
    """Return the duration of each launch in ns, 0 where there is none."""
    name = next((one for one in (GPU_TIME, "gpu__time_duration.avg") if one in launches.table), None)
    if name is None:
        return pd.Series(0.0, index=launches.table.index)
    return pd.to_numeric(launches.table[name], errors="coerce").fillna(0.0)


def _named(launches: Launches, traced: str | None) -> list[str]:
    """Name kernels as the trace does, in the column `mangled`; return what there is to say of it."""
    printed = launches.table[KERNEL]
    known: dict[str, str] = {}
    if traced:
        known = kernel_identity.match_names(printed, traced_kernels.read_names(traced))
    launches.table["mangled"] = printed.map(lambda name: known.get(name, name))
    unknown = len(set(printed) - set(known))
    if not traced or not unknown:
        return []
    return [f"{unknown} of {printed.nunique()} kernels are not in nsys' trace, or look like several there"]


def _placed(launches: Launches, traced: str | None) -> tuple[Launches, list[str]]:
    """Return the launches with shared memory from the trace where the report lacks it, and what to say of it."""
    known = traced_kernels.read_shared_memory(traced) if traced else {}
    if not known:
        return launches, []
    table = launches.table.copy()
    for name in SHARED_MEMORY:
        table[name] = table.get(name, "")
    lacking = (table[list(SHARED_MEMORY)] == "").any(axis=1)
    sizes = [
        tuple(map(int, re.findall(r"\d+", f"{grid} {block}")))
        for grid, block in zip(table["Grid Size"], table["Block Size"], strict=True)
    ]
    keys = [(name, *of) for name, of in zip(table["mangled"], sizes, strict=True)]
    taken = lacking & np.array([key in known for key in keys], dtype=bool)
    if not taken.any():
        return launches, []
    for place, name in enumerate(SHARED_MEMORY):
        table.loc[taken, name] = [str(known[key][place]) for key, own in zip(keys, taken, strict=True) if own]
    units = dict(launches.units) | {name: launches.units.get(name) or "byte/block" for name in SHARED_MEMORY}
    return replace(launches, table=table, units=units), [
        f"{int(taken.sum()):,} of {len(table):,} launches have no shared memory in the report, and that of nsys' "
        "trace, in which their kernel, grid and block have one alone"
    ]


def _write_page(launches: Launches, names: str, path: Path) -> None:
    """Write a raw page as ncu prints it in base units."""
    table = launches.table.assign(**{KERNEL: launches.table[names]})
    ranges = [name for name in table if "Range:" in name]
    metrics = [name for name in table if name not in (*OF_LAUNCH, *ranges, "mangled", "Kernel Time")]
    heading = [*OF_LAUNCH[:4], *ranges, *OF_LAUNCH[4:], *metrics]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(heading)
        writer.writerow([launches.units.get(name, "") for name in heading])
        writer.writerows(table[heading].to_numpy().tolist())


def _write_details(tables: Sequence[tuple[PrintedTable, Mapping[str, str]]], path: Path) -> None:
    """Write the details page of the first file, its launches by their new numbers; no row where it has none."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(DETAILS)
        for table, numbers in tables[:1]:
            places = [table.heading.index(name) if name in table.heading else -1 for name in DETAILS]
            rows = [[row[at] if at >= 0 else "" for at in places] for row in table.rows]
            writer.writerows([[numbers[row[0]], *row[1:]] for row in rows if row[0] in numbers])


def _facts(
    model: str, launches: Launches, times: pd.Series, files: Sequence[Mapping[str, Any]], coverage: Sequence[str]
) -> dict[str, Any]:
    """Return the sidecar: one step, of all launches one after the other."""
    total = np.array([max(int(times.sum()), 1)], dtype=np.int64)
    steps = sidecars.step_facts("all launches of the report, added up", total, total) | {"whole": True}
    names = launches.table[NAME].unique() if NAME in launches.table else []
    device = names[0] if len(names) == 1 and names[0] else sidecars.UNKNOWN_GPU
    facts = sidecars.report_facts(TOOL, model, (str(device), "cuda"), steps, files)
    facts["imported"]["coverage"] = list(coverage)
    return facts
