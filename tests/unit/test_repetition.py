"""What all steps repeat, and in how many steps a kernel ran: of programs on the CPU, and of small exports of nsys."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from profzoo.harness import ranges
from profzoo.io import csv_tables as reading
from profzoo.io.common_columns import IN_STEPS, OF_STEPS
from profzoo.io.scripts import write_csv, write_json
from profzoo.launches.step_alignment import lay_steps
from profzoo.range_names import DOMAIN
from profzoo.tables import cell_tables, kernel_table, layers, repetition
from profzoo.tables.layers import Others
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from tests import owned
from tests.differing import as_nsys, routed_step
from tests.unit.test_nsys_tables import ONE, TWO, export, kernel

WIDTH, STEPS = 6, 6
# Steps of the window, which begins after one of warm-up, that have what only some have.
EVERY_SECOND = [1, 3, 5]


class Blocks(nn.Module):
    """Blocks of which a step may leave some out."""

    def __init__(self) -> None:
        """With random weights."""
        super().__init__()
        self.stem, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3))
        self.dropped: set[int] = set()

    def forward(self, rows: Tensor) -> Tensor:
        """From (batch, WIDTH) to the same."""
        rows = self.stem(rows)
        for number, block in enumerate(self.blocks):
            rows = rows if number in self.dropped else block(rows)
        return self.head(rows)


def one_step(network: Blocks, optimizer: torch.optim.Optimizer, batch: int = 4, update: bool = True) -> None:
    owned.passes(network, torch.ones(batch, WIDTH))
    if update:
        with record_function(f"{DOMAIN}:optimizer"):
            optimizer.step()


def recorded(folder: Path, change: Callable[[Blocks, int], dict]) -> Path:
    """Record STEPS steps; change: sets the network for a step, by its number, and returns arguments of one_step."""
    torch.manual_seed(0)
    network = Blocks()
    ranges.mark_modules(network, ranges.torch_range)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    number = iter(range(-1, STEPS))

    def step() -> None:
        mine = max(next(number), 0)
        with record_function(f"{DOMAIN}:step"):
            one_step(network, optimizer, **change(network, mine))

    trace = torch_trace.make_trace(owned.of_steps([step] * (STEPS + 1)))
    write_csv(owners.tabulate_operators(trace), folder / "launches.csv")
    write_csv(owners.tabulate_modules(trace), folder / "modules.csv")
    write_json({"cell": {"window": STEPS}}, folder / "s.json")
    return folder


def compared(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The summary and the launches of a recorded program."""
    made = folder / "repetition.csv", folder / "step-launches.csv"
    repetition.main(str(folder / "launches.csv"), Others(), *map(str, made))
    return reading.read(made[0], repetition.TABLE), reading.read(made[1], repetition.LAUNCHES_TABLE)


def drop(steps: dict[int, set[int]]) -> Callable[[Blocks, int], dict]:
    def change(network: Blocks, step: int) -> dict:
        network.dropped = steps.get(step, set())
        return {}

    return change


def test_operators_that_only_some_steps_have_are_told_apart(tmp_path: Path) -> None:
    """Gradients are accumulated over two steps, so that every second one has an optimizer."""
    found, places = compared(recorded(tmp_path, lambda _, step: {"update": step in EVERY_SECOND}))
    (summary,) = found.to_dict("records")
    table = reading.read(tmp_path / "launches.csv", owners.TABLE)
    sizes = table.groupby("step").size()
    assert summary["kind"] == "operator" and summary["steps"] == STEPS and summary["kinds"] == 2
    assert (summary["least_launches"], summary["most_launches"]) == (sizes.min(), sizes.max())
    # Whatever the alignment is, no kind of operator is in all steps more often than in the step with the fewest of it.
    counts = table.groupby(["range", "name", "step"], observed=True).size().unstack(fill_value=0).min(axis=1).sum()
    assert 0.9 * counts <= summary["shared_launches"] * len(table) / STEPS <= counts < sizes.mean()
    assert places[IN_STEPS].sum() == len(table) and set(places[OF_STEPS]) == {STEPS}
    assert places["mean_ns"].mul(places[IN_STEPS]).sum() == pytest.approx(table["ns"].sum())
    of_optimizer = places[places["range"] == "optimizer"]
    assert summary["ranges"].startswith("optimizer") and set(of_optimizer[IN_STEPS]) == {len(EVERY_SECOND)}
    assert set(places.loc[places["range"] == "forward", IN_STEPS]) == {STEPS}


def test_batches_of_other_sizes_differ_in_shape_alone(tmp_path: Path) -> None:
    (summary,) = compared(recorded(tmp_path, lambda _, step: {"batch": 4 + step % 3}))[0].to_dict("records")
    assert summary["shared_launches"] == 1 and summary["same_launches"] < 1 and summary["kinds"] == 3
    assert "all of them have the same ones" in summary["says"]


def test_equal_steps_have_no_row_and_their_layers_no_such_columns(tmp_path: Path) -> None:
    summary, places = compared(recorded(tmp_path, lambda *_: {}))
    assert summary.empty and places.empty
    for path in layers_of(tmp_path).values():
        assert IN_STEPS not in Path(path).read_text().splitlines()[0]


def layers_of(folder: Path) -> dict[str, str]:
    """Files of layers, operators and kernels that are made of a recorded program."""
    outputs = {name: str(folder / f"{name}.csv") for name in ("layers", "operators", "kernels", "coverage")}
    given = [str(folder / name) for name in ("launches.csv", "modules.csv", "s.json")]
    layers.write_layers(*given, Others(), outputs)
    return outputs


def test_layers_say_in_how_many_steps_they_ran(tmp_path: Path) -> None:
    recorded(tmp_path, drop({0: {1}, 3: {2}}))
    table = reading.read(layers_of(tmp_path)["layers"], layers.TABLE).set_index(["module", "direction"])
    counted = {f"blocks.{number}": table.loc[(f"blocks.{number}", "forward"), IN_STEPS] for number in range(3)}
    assert counted == {"blocks.0": STEPS, "blocks.1": STEPS - 1, "blocks.2": STEPS - 1}
    assert table.loc[("blocks", "forward"), IN_STEPS] == STEPS and set(table[OF_STEPS]) == {STEPS}
    # Launches are means over all steps, also of what a step leaves out.
    whole, part = (table.loc[(f"blocks.{number}", "forward"), "launches"] for number in (0, 1))
    assert part / whole == pytest.approx((STEPS - 1) / STEPS)


def test_ncus_own_launches_tell_what_was_counted() -> None:
    launches = as_nsys([routed_step(own) for own in ([3, 4, 0, 5], [3, 6, 2, 5], [0, 4, 2, 5])])
    census = launches[launches["step"] == 0]
    (row,) = repetition.summarise_steps(launches, lay_steps(launches), "nsys", census).to_dict("records")
    same = launches.set_index(CONFIGURATION).index.isin(census.set_index(CONFIGURATION).index)
    ns = launches["ns"]
    assert row["census_launches"] == len(census) and row["census_time"] == pytest.approx(ns[same].sum() / ns.sum())
    kernels = set(census["mangled"])
    like = launches["mangled"].isin(kernels) & ~same
    assert row["census_kernel_time"] == pytest.approx(ns[like].sum() / ns.sum())
    assert f"the {len(census)} launches that ncu saw" in row["says"] and "nothing was counted of" in row["says"]
    assert np.isnan(repetition.summarise_steps(launches, lay_steps(launches), "nsys")["census_time"].iloc[0])


LENGTH = 100


def traced(folder: Path, *steps: list[int], process: int = ONE) -> Path:
    """An export of steps that launch the kernel with these grids, one after the other."""
    kernels, calls, ranges = rows_of(process, *steps)
    return export(folder / "a.sqlite", kernels, calls, ranges)


def rows_of(process: int, *steps: list[int]) -> tuple[list[tuple], list[tuple], list[tuple]]:
    kernels, calls, ranges = [], [], []
    for number, grids in enumerate(steps):
        begin = number * LENGTH
        ranges.append((begin, begin + LENGTH, process, "step"))
        for place, grid in enumerate(grids):
            start, correlation = begin + 5 * place + 1, 1 + len(kernels)
            calls.append((start, correlation, process))
            kernels.append(kernel(start + 2, start + 2 + grid, correlation, process, grid=(grid, 1, 1)))
    return kernels, calls, ranges


def step_counts(path: Path) -> dict[int, tuple[int, int]]:
    table = nsys_tables.summarise(path)
    return {row.grid_x: (row.in_steps, row.of_steps) for row in table.itertuples()}


def test_rows_say_in_how_many_steps_they_were_launched(tmp_path: Path) -> None:
    assert step_counts(traced(tmp_path, [1, 2], [1], [2, 1, 3])) == {1: (3, 3), 2: (2, 3), 3: (1, 3)}
    # Another number of the same launches is a difference too.
    (tmp_path / "number").mkdir()
    assert step_counts(traced(tmp_path / "number", [1, 1], [1])) == {1: (2, 2)}


@pytest.mark.parametrize("steps", [([1, 2], [1, 2]), ([1, 2], [2, 1]), ([1, 2],)])
def test_equal_steps_have_no_such_columns(tmp_path: Path, steps: tuple[list[int], ...]) -> None:
    assert list(nsys_tables.summarise(traced(tmp_path, *steps)).columns) == nsys_tables.COLUMNS


def test_processes_that_differ_from_each_other_are_no_steps_that_differ(tmp_path: Path) -> None:
    (kernels, calls, ranges), others = rows_of(ONE, [1, 2], [1, 2]), rows_of(TWO, [3], [3])
    path = export(tmp_path / "a.sqlite", kernels + others[0], calls + others[1], ranges + others[2])
    assert IN_STEPS not in nsys_tables.summarise(path)


def test_the_cells_tables_have_them_too(tmp_path: Path) -> None:
    path = traced(tmp_path, [1, 2], [1], [2, 1, 3])
    nsys = nsys_tables.summarise(path)
    file = tmp_path / "unet" / "train.kernels.csv"
    file.parent.mkdir()
    kernel_table.join(nsys, 3, [], {}).assign(**{"class": "other"}).to_csv(file, index=False)
    read = reading.read(file, kernel_table.TABLE)
    assert read.set_index("grid_x")[IN_STEPS].to_dict() == {1: 3, 2: 2, 3: 1}
    assert read.set_index("grid_x")["launches"].to_dict() == {1: 1, 2: 2 / 3, 3: 1 / 3}
    across = cell_tables.kernels(cell_tables.read([str(file)], kernel_table.TABLE))
    assert across[OF_STEPS].tolist() == [3, 3, 3]
    assert IN_STEPS not in cell_tables.kernels([({}, read.drop(columns=[IN_STEPS, OF_STEPS]))])


def laid_over(folder: Path, *steps: list[int]) -> tuple[pd.DataFrame, pd.DataFrame]:
    path, sidecar = traced(folder, *steps), folder / "a.json"
    with closing(sqlite3.connect(path)) as database:
        for column in ("streamId", "deviceId", "contextId"):
            if column not in {row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}:
                database.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN {column} DEFAULT 7")
        database.commit()
    sidecar.write_text(json.dumps({"cell": {"window": len(steps)}}))
    made = [str(folder / name) for name in ("summary.csv", "launches.csv")]
    repetition.main("", Others(nsys=str(path), sidecar=str(sidecar)), *made)
    return reading.read(made[0], repetition.TABLE), reading.read(made[1], repetition.LAUNCHES_TABLE)


def test_a_trace_is_laid_over_itself_step_by_step(tmp_path: Path) -> None:
    """Of kernels of one name, the second step lacks the last, and the third has it in another shape."""
    (tmp_path / "equal").mkdir()
    assert all(frame.empty for frame in laid_over(tmp_path / "equal", [1, 2], [2, 1]))
    (row,), places = (frame.to_dict("records") for frame in laid_over(tmp_path, [1, 2], [1], [1, 3]))
    assert (row["tool"], row["steps"], row["kinds"]) == ("nsys", 3, 3)
    assert (row["least_launches"], row["most_launches"], row["least_ns"], row["most_ns"]) == (1, 2, 1, 4)
    assert row["shared_launches"] == row["same_launches"] == 3 / 5 and row["shared_time"] == 3 / 8
    assert [(place[IN_STEPS], place["configurations"]) for place in places] == [(3, 1), (2, 2)]
    assert [(place["mean_ns"], place["min_ns"], place["max_ns"]) for place in places] == [(1, 1, 1), (2.5, 2, 3)]
