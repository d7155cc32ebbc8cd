"""Feeds damaged files to every reader: `python -m tests.faults.readers --cases 100000 [--seed 0] [--minutes 20]`.

Each case is a file of a real tool or of this workflow and a mutation of it, both drawn by the case's own seed. What is
read must be all that was there before where the meaning did not change, must be exactly what the changed file says, as
it is read a second time otherwise, or must fail by a DataError of one line that names the file. Prints each that does
not, with its seed, and how many cases ended how.
"""

import argparse
import functools
import gzip
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.tables import across_cells, cell_tables, steps_per_export
from profzoo.tools.ncu import raw_page
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import trace as torch_trace
from tests.faults import mutations, otherwise, recorded
from tests.faults.mutations import DAMAGED, SAME, Mutated

Mutation = Callable[[bytes, random.Random], Mutated]
NEEDS: dict[str, fact.Needs] = {
    "baseline": cell_tables.OF_RUN,
    "tools": {**across_cells.OF_TOOL, **steps_per_export.NEEDS, "command": fact.TEXTS, "ranks": fact.PROCESSES},
}
# Where there is memory for files, as a case takes less time than a disk.
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Reader:
    """A kind of file under test.

    name: of the file; content: undamaged; read: what the workflow makes of it, comparable; says: the same of a content,
    read otherwise; mutate: mutations of its own; beside: files that stand beside it; weight: how often it is drawn,
    less where a case takes long.
    """

    name: str
    content: bytes
    read: Callable[[Path], Any]
    says: Callable[[bytes], Any]
    mutate: tuple[Mutation, ...]
    beside: Mapping[str, bytes] = field(default_factory=dict)
    weight: int = 20


def rows_of(frame: pd.DataFrame) -> otherwise.Rows:
    """The rows of a table, as otherwise.of_table has them."""
    texts = {name for name, kind in frame.dtypes.items() if isinstance(kind, pd.StringDtype)}
    return otherwise.together(
        {
            name: values if name in texts else [None if value != value else value for value in values]
            for name, values in frame.to_dict("list").items()
        }
    )


def of_sqlite(path: Path) -> otherwise.Totals:
    """The kernels by name, grid and block; where time goes has to be told too."""
    table = nsys_tables.summarise(path)
    assert nsys_steps.where_time_goes(path).columns.tolist() == nsys_steps.COLUMNS
    found: otherwise.Totals = {}
    for *key, launches, ns in table[["kernel", "grid_x", "block_x", "launches", "total_ns"]].to_numpy().tolist():
        before = found.get(tuple(key), (0, 0))
        found[tuple(key)] = before[0] + launches, before[1] + ns
    return found


def of_trace(path: Path) -> otherwise.Totals:
    events = torch_tables.device_events(torch_trace.read_trace(path))
    return otherwise.by_name(events[["kind", "name", "device_ns"]].to_numpy().tolist())


def of_page(path: Path) -> otherwise.Launches:
    """What a raw page says of each launch; of the one by demangled names these alone."""
    table = recorded.pages(path)
    measured = path.name == "mangled.csv"
    sizes = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "stream"]
    # What describes links of the machine is kept or left out by what other columns say of them.
    told = [name for name in table if name not in raw_page.LEADING and not raw_page.is_link(name)]
    metrics = told if measured else []
    return {
        row["id"]: (
            row["mangled" if measured else "kernel"],
            [row[name] for name in sizes],
            {name: None if pd.isna(row[name]) or row[name] == "" else row[name] for name in metrics},
        )
        for row in table.to_dict("records")
    }


def of_json(path: Path, needs: fact.Needs) -> str:
    return json.dumps(fact.read_sidecar(path, needs), sort_keys=True)


@functools.cache
def readers() -> Mapping[str, Reader]:
    """All kinds of files, by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = [
            Reader(one.name, one.content, lambda path, one=one: rows_of(one.read(path)),
                   functools.partial(otherwise.of_table, table=one.table), mutations.TABLES)
            for one in recorded.csv_kinds(folder)
        ]  # fmt: skip
        pages = [
            Reader(one.name, one.content, of_page,
                   functools.partial(otherwise.of_page, measured=one.name == "mangled.csv"),
                   mutations.PAGES, one.beside, weight=3)
            for one in recorded.mangled(folder)
        ]  # fmt: skip
        sidecars = [
            Reader(f"{kind}.json", recorded.sidecar(folder), functools.partial(of_json, needs=needs), otherwise.of_json,
                   mutations.JSON, weight=40)
            for kind, needs in NEEDS.items()
        ]  # fmt: skip
        (folder / "again").mkdir()
        small, trace = recorded.database(folder / "again"), gzip.compress(recorded.trace(), mtime=0)
    others = [
        Reader("details.csv", recorded.details_page(), lambda path: rows_of(raw_page.read_details(path)), otherwise.of_details,
               (mutations.named, mutations.no_number, mutations.column_lost)),
        Reader("x.sqlite", small, of_sqlite, otherwise.of_sqlite, (mutations.value_of_row,), weight=3),
        Reader("x.json.gz", trace, of_trace, otherwise.of_trace, (mutations.packed, mutations.event_other)),
    ]  # fmt: skip
    return {one.name: one for one in [*tables, *pages, *sidecars, *others]}


def wrong(reader: Reader, draw: random.Random, folder: Path) -> tuple[str, str | None]:
    """How a case ended, and what is wrong with that, None where nothing is."""
    mutate = draw.choice(draw.choice([mutations.BYTES, reader.mutate]))
    content, expected = mutate(reader.content, draw)
    path = folder / reader.name
    path.write_bytes(content)
    try:
        found = reader.read(path)
    except DataError as error:
        if expected == SAME:
            return "refused", f"{mutate.__name__} changed nothing: {error}"
        if not any(str(folder / name) in str(error) for name in (reader.name, *reader.beside)):
            return "refused", f"{mutate.__name__}: no file is named: {error}"
        return "refused", f"{mutate.__name__}: not one line: {error!r}" if "\n" in str(error) else None
    except Exception as error:
        return "failed", f"{mutate.__name__}: {type(error).__name__}: {error}"
    if expected == DAMAGED:
        return "read", f"{mutate.__name__} was read"
    return held_against(reader, mutate.__name__, content, expected, found)


def held_against(reader: Reader, how: str, content: bytes, expected: str, found: Any) -> tuple[str, str | None]:
    """What was read of a changed file, against what it says, or what was there before."""
    if found == whole(reader.name):
        return "the same", None
    if expected == SAME:
        return "read", f"{how} changed nothing, and another table was read"
    try:
        says = reader.says(content)
    except Exception as error:
        return "read", f"{how}: was read, and cannot be otherwise: {type(error).__name__}: {error}"
    return "as it says", None if found == says else f"{how}: was read as something else than it says"


@functools.cache
def whole(name: str) -> Any:
    """What is read of the undamaged file."""
    reader = readers()[name]
    with tempfile.TemporaryDirectory() as folder:
        for other, content in {**reader.beside, name: reader.content}.items():
            (Path(folder) / other).write_bytes(content)
        return reader.read(Path(folder) / name)


def run(cases: int, seed: int, names: tuple[str, ...] = ()) -> Iterator[tuple[int, str, str, str | None]]:
    """Of each case: its seed, the file's name, how it ended, what is wrong; names: of the files to draw from, or all."""
    chosen = [readers()[name] for name in names or readers()]
    weights = [reader.weight for reader in chosen]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        for case in range(seed, seed + cases):
            draw = random.Random(case)
            (reader,) = draw.choices(chosen, weights)
            for other, content in reader.beside.items():
                (folder / other).write_bytes(content)
            yield case, reader.name, *wrong(reader, draw, folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.readers", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each further one has the next")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which it ends wherever it is")
    options = parser.parse_args()
    began = time.monotonic()
    ended: Counter[str] = Counter()
    fed: Counter[str] = Counter()
    found = 0
    for case, name, how, what in run(options.cases, options.seed):
        ended[how] += 1
        fed[name] += 1
        if what:
            found += 1
            print(f"seed {case}: {name}: {what}"[:300], flush=True)
        if time.monotonic() - began > 60 * options.minutes:
            break
    print(dict(fed))
    print(
        f"{fed.total()} cases from seed {options.seed} in {time.monotonic() - began:.0f} s: {dict(ended)}; {found} wrong"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
