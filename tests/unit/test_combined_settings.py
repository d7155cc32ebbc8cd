"""Combined settings against a simulated device: what is predicted of them together is what happens where all are made.

The simulation (tests/simulated.py) shares neither code nor constants with profzoo.what_if. The product of single gains is
held against the same truth, to show what a simulation of the combined change is worth.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.nsys.events.export_columns import PAGEABLE
from profzoo.verdicts.gain_models import CellSimulation, RequestedChange
from profzoo.what_if.program import Program
from profzoo.what_if.tables import read_programs
from tests import simulated
from tests.simulated import Act
from tests.unit.test_gain_models import kernels
from tests.unit.test_host_pauses import name_memory
from tests.unit.test_replay_predictions import applies, faster, graphed, ready, removed

PROGRAMS = 120
WITHIN, OF_ALL = 0.03, 0.9
STEP = pd.Series({"process": 1})
Made = Callable[[Sequence[Act]], list[Act]]


def of_groups(program: Program, groups: Sequence[int], change: str, saved: float) -> RequestedChange:
    """A change to the kernels of these groups, whose grids are larger by one."""
    rows = kernels(program)
    mine = rows[(rows["grid_x"] - 1).isin(groups)]
    return RequestedChange(change, mine, pd.Series(saved, mine.index))


def supplied(acts: Sequence[Act]) -> list[Act]:
    """Batches that any number of workers load, and that are copied from pinned memory, in a call like others."""
    pinned = {"kind": "copy", "call": 7e3}
    return [replace(act, **pinned) if act.part == "transfer" else act for act in ready(acts)]  # type: ignore[arg-type]


ENDLESS = RequestedChange("input_ready", workers=10**6, pinned=True)
# What is made to the acts of the CPU, and what is asked of the simulation, by name.
SINGLE: dict[str, tuple[Made, Callable[[Program], RequestedChange]]] = {
    "graph": (graphed, lambda program: RequestedChange("graph")),
    "kernels faster": (faster, lambda program: of_groups(program, (1, 2), "faster", 2 / 3)),
    "kernels removed": (removed, lambda program: of_groups(program, (3,), "fused", 1.0)),
    "workers": (supplied, lambda program: ENDLESS),
}
TOGETHER = (
    ("kernels faster", "graph"), ("workers", "graph"), ("kernels faster", "workers"),
    ("kernels removed", "kernels faster"), ("kernels removed", "kernels faster", "graph"),
    ("workers", "kernels faster", "graph"), ("kernels removed", "workers", "kernels faster", "graph"),
)  # fmt: skip


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], np.ndarray]:
    """By combination, the relative errors of its predicted gain and of the product of its single gains: (programs, 2)."""
    folder, found = tmp_path_factory.mktemp("traces"), {names: [] for names in TOGETHER}
    for seed in range(PROGRAMS):
        acts = [act for act in simulated.program(seed) if act.group >= 0]
        if not applies("graph", acts) or any(act.nodes for act in acts):
            continue
        made = simulated.simulate(acts)
        name_memory(trace := simulated.record(made, folder / f"{seed}.sqlite"), PAGEABLE)
        (program,) = read_programs(trace)
        replayed = CellSimulation(program)
        single = {name: replayed.gain(ask(program), STEP, 0.0) for name, (_, ask) in SINGLE.items()}
        for names in TOGETHER:
            gain = replayed.gain_together([SINGLE[name][1](program) for name in names], STEP, 0.0)
            if gain is None or any(single[name] is None for name in names):
                continue
            changed: Sequence[Act] = acts
            for name in names:
                changed = SINGLE[name][0](changed)
            true = made.step_ns() / simulated.simulate(changed).step_ns()
            product = np.prod([single[name].gain for name in names])  # type: ignore[union-attr]
            found[names].append((gain.gain / true - 1, product / true - 1))
    return {names: np.array(values) for names, values in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("names", TOGETHER, ids=" + ".join)
def test_a_combined_change_is_as_predicted(names: tuple[str, ...], errors: dict[tuple[str, ...], np.ndarray]) -> None:
    own = np.abs(errors[names][:, 0])
    assert len(own) >= 15
    assert np.mean(own <= WITHIN) >= OF_ALL, (
        f"{np.mean(own <= WITHIN):.0%} of {len(own)}, the worst off by {own.max():.1%}"
    )


@pytest.mark.slow
def test_the_product_of_single_gains_is_no_prediction(errors: dict[tuple[str, ...], np.ndarray]) -> None:
    """Where neither the CPU nor the GPU is the limit alone, faster kernels gain most of what a graph would have left."""
    own, product = np.abs(np.concatenate([errors[names] for names in TOGETHER if "graph" in names])).T
    # 37 % of the products are off by more than a tenth, and 0.7 % of the simulations.
    assert np.mean(product > 0.1) > 0.3 and np.mean(own > 0.1) < 0.01


def test_the_order_in_which_changes_are_named_does_not_matter(tmp_path: Path) -> None:
    acts = [replace(act, step=step) for step in range(4)
            for act in (Act("begin", 0), *[Act("kernel", 0, "forward", 3e3, 4e3, ns=2e4, group=place % 3) for place in range(30)],
                        Act("end", 0, before=1e3))]  # fmt: skip
    (program,) = read_programs(simulated.record(simulated.simulate(acts), tmp_path / "t.sqlite"))
    replayed = CellSimulation(program)
    asked = [RequestedChange("graph"), of_groups(program, (1,), "faster", 0.5), of_groups(program, (2,), "fused", 1.0)]
    gains = {replayed.gain_together(order, STEP, 0.0).gain for order in (asked, asked[::-1], asked[1:] + asked[:1])}  # type: ignore[union-attr]
    assert len({round(gain, 9) for gain in gains}) == 1
    # Ten kernels of 20 us and ten of 10, with 1 us between them, after a graph's launch.
    assert gains.pop() == pytest.approx(30 * 21e3 / (20 * 1e3 + 10 * 2e4 + 10 * 1e4), rel=0.05)
    # Launches that the trace lacks have no gain, and neither has any combination with them.
    lacking = kernels(program).assign(mangled="none")
    unknown = RequestedChange("faster", lacking, pd.Series(0.5, lacking.index))
    assert replayed.gain_together([RequestedChange("graph"), unknown], STEP, 0.0) is None
