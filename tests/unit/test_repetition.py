"""Programs whose steps launch differently, recorded on the CPU: what all steps repeat is known of each."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from profzoo.harness import module_ranges
from profzoo.io import csv_tables as reading
from profzoo.io.common_columns import IN_STEPS, OF_STEPS
from profzoo.io.scripts import write_csv, write_json
from profzoo.launches.step_alignment import lay_steps
from profzoo.range_names import DOMAIN
from profzoo.tables import layer_sums, layers, repetition, schemas
from profzoo.tables.layer_sums import Others
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from tests import owned
from tests.differing import as_nsys, routed_step

WIDTH, STEPS = 6, 6
# Steps of the window, which begins after one of warm-up, that have what only some have.
EVERY_SECOND, EVERY_THIRD = [1, 3, 5], [2, 5]


class Blocks(nn.Module):
    """Blocks of which a step may leave some out, and experts that each take the rows for which they are chosen."""

    def __init__(self) -> None:
        """With random weights."""
        super().__init__()
        self.stem, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3))
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.dropped: set[int] = set()
        self.chosen: Tensor | None = None

    def forward(self, rows: Tensor) -> Tensor:
        """From (batch, WIDTH) to the same."""
        rows = self.stem(rows)
        for number, block in enumerate(self.blocks):
            rows = rows if number in self.dropped else block(rows)
        for number, expert in enumerate(self.experts if self.chosen is not None else ()):
            mine = (self.chosen == number).nonzero().squeeze(1)
            if len(mine):
                rows = rows.index_add(0, mine, expert(rows[mine]))
        return self.head(rows)


def one_step(network: Blocks, optimizer: torch.optim.Optimizer, batch: int = 4, update: bool = True) -> None:
    owned.passes(network, torch.ones(batch, WIDTH))
    if update:
        with record_function(f"{DOMAIN}:optimizer"):
            optimizer.step()


def recorded(
    folder: Path, change: Callable[[Blocks, int], dict], after: Callable[[Blocks, int], None] | None = None
) -> Path:
    """Record STEPS steps; change: sets the network for a step, by its number, and returns arguments of one_step."""
    torch.manual_seed(0)
    network = Blocks()
    module_ranges.mark_modules(network, module_ranges.torch_range)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    number = iter(range(-1, STEPS))

    def step() -> None:
        mine = max(next(number), 0)
        with record_function(f"{DOMAIN}:step"):
            one_step(network, optimizer, **change(network, mine))
            if after:
                after(network, mine)

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


def route(network: Blocks, step: int) -> dict:
    network.chosen = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]][step % 2])
    return {}


def evaluate(network: Blocks, step: int) -> None:
    if step in EVERY_THIRD:
        with torch.no_grad():
            nn.functional.l1_loss(network(torch.ones(9, WIDTH)), torch.zeros(9, WIDTH))


PROGRAMS: dict[str, tuple] = {
    "gradients accumulated": (lambda network, step: {"update": step in EVERY_SECOND},),
    "blocks dropped": (drop({0: {1}, 3: {1}, 4: {1, 2}}),),
    "experts by nonzero": (route,),
    "evaluation": (lambda network, step: {}, evaluate),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_that_only_some_steps_have_are_told_apart(name: str, tmp_path: Path) -> None:
    found, places = compared(recorded(tmp_path, *PROGRAMS[name]))
    (summary,) = found.to_dict("records")
    table = reading.read(tmp_path / "launches.csv", owners.TABLE)
    sizes = table.groupby("step").size()
    assert summary["kind"] == "operator" and summary["steps"] == STEPS
    assert (summary["least_launches"], summary["most_launches"]) == (sizes.min(), sizes.max())
    # Whatever the alignment is, no kind of operator is in all steps more often than in the step with the fewest of it.
    counts = table.groupby(["range", "name", "step"], observed=True).size().unstack(fill_value=0).min(axis=1).sum()
    assert 0.9 * counts <= summary["shared_launches"] * len(table) / STEPS <= counts < sizes.mean()
    assert places[IN_STEPS].sum() == len(table) and set(places[OF_STEPS]) == {STEPS}
    assert places["mean_ns"].mul(places[IN_STEPS]).sum() == pytest.approx(table["ns"].sum())


def test_what_is_launched_every_second_step_is_in_half_of_them(tmp_path: Path) -> None:
    (summary,) = compared(recorded(tmp_path, *PROGRAMS["gradients accumulated"]))[0].to_dict("records")
    _, places = compared(tmp_path)
    assert summary["kinds"] == 2 and summary["ranges"].startswith("optimizer")
    of_optimizer = places[places["range"] == "optimizer"]
    assert len(of_optimizer) and set(of_optimizer[IN_STEPS]) == {len(EVERY_SECOND)}
    assert set(places.loc[places["range"] == "forward", IN_STEPS]) == {STEPS}


def test_batches_of_other_sizes_differ_in_shape_alone(tmp_path: Path) -> None:
    (summary,) = compared(recorded(tmp_path, lambda _, step: {"batch": 4 + step % 3}))[0].to_dict("records")
    assert summary["shared_launches"] == 1 and summary["same_launches"] < 1 and summary["kinds"] == 3
    assert "all of them have the same ones" in summary["says"]


def test_equal_steps_have_no_row(tmp_path: Path) -> None:
    summary, places = compared(recorded(tmp_path, lambda *_: {}))
    assert summary.empty and places.empty


def test_layers_say_in_how_many_steps_they_ran(tmp_path: Path) -> None:
    recorded(tmp_path, drop({0: {1}, 3: {2}}))
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("layers", "operators", "kernels", "coverage")}
    given = [str(tmp_path / name) for name in ("launches.csv", "modules.csv", "s.json")]
    layer_sums.main(*given, Others(), outputs)
    table = reading.read(tmp_path / "layers.csv", layers.TABLE).set_index(["module", "direction"])
    counted = {f"blocks.{number}": table.loc[(f"blocks.{number}", "forward"), IN_STEPS] for number in range(3)}
    assert counted == {"blocks.0": STEPS, "blocks.1": STEPS - 1, "blocks.2": STEPS - 1}
    assert table.loc[("blocks", "forward"), IN_STEPS] == STEPS and set(table[OF_STEPS]) == {STEPS}
    # Launches are means over all steps, also of what a step leaves out.
    whole, part = (table.loc[(f"blocks.{number}", "forward"), "launches"] for number in (0, 1))
    assert part / whole == pytest.approx((STEPS - 1) / STEPS)
    across = schemas.TABLES["layers"]
    assert {IN_STEPS, OF_STEPS} <= set(across.optional)


def test_layers_of_equal_steps_have_no_such_columns(tmp_path: Path) -> None:
    recorded(tmp_path, lambda *_: {})
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("layers", "operators", "kernels", "coverage")}
    layer_sums.main(*[str(tmp_path / name) for name in ("launches.csv", "modules.csv", "s.json")], Others(), outputs)
    for name in ("layers", "operators", "kernels"):
        assert IN_STEPS not in (tmp_path / f"{name}.csv").read_text().splitlines()[0]


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
