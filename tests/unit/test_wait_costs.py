"""Waits cost what they cost: first cause and gain on simulated steps whose twins without the waits are simulated too."""

import re
from pathlib import Path
from typing import Any

import pytest

from profzoo.tables.step_shares import PARTS, step_shares
from profzoo.verdicts import wait_costs
from profzoo.verdicts.gain_models import CellSimulation
from tests import simulated_waits, slow
from tests.simulated import Act
from tests.simulated_waits import item, operator

SYNCHRONISATION, LAUNCH = "synchronisation-bound", "launch-bound"
# A step that keeps the GPU busy, norms of 60 parameters, and these norms with each of them read.
BUSY = [operator(1.2e4) for _ in range(150)]
NORMS = [operator(2e3) for _ in range(60)]
READ = [one for norm in NORMS for one in (norm, *item())]
LINE = {"file": "train.py", "line": 84, "function": "log", "text": "norm.item()", "operation": ".item()"}


def line(**changed: Any) -> dict[str, Any]:
    return {**LINE, "range": "forward", "calls": 60} | changed


@pytest.mark.parametrize(
    ("waiting", "mended"),
    slow.first(
        [
            ([*BUSY, *READ], [*BUSY, *NORMS]),
            ([one for place in range(50) for one in (*BUSY[:3], *READ[:3])], [*BUSY, *NORMS[:50]]),
            ([one for place in range(50) for one in (*BUSY[:3], *item()[1:])], BUSY),
        ]
    ),
    ids=["norms read at the end", "a value read now and then", "synchronised now and then"],
)
def test_many_small_waits_are_synchronisation_and_gain_what_they_cost(
    waiting: list, mended: list, tmp_path: Path
) -> None:
    measured = simulated_waits.step_ns(waiting) / simulated_waits.step_ns(mended)
    told = simulated_waits.told(waiting, tmp_path)
    first = told.of_cell.iloc[0]
    assert measured > 1.1
    assert first["verdict"] == SYNCHRONISATION and first["method"] == "replay"
    assert 1 - 1 / first["gain"] == pytest.approx(1 - 1 / measured, rel=0.2)
    assert "graph=true" not in told.settings and not (told.verdicts["verdict"].str.contains(r"launch-bound \+")).any()


def test_waits_of_a_step_that_launches_too_much_come_first_and_launches_after_them(tmp_path: Path) -> None:
    """Without the waits the CPU still takes longer than the GPU: then a graph, which these waits prevent, would help."""
    small = [operator(2e3) for _ in range(120)]
    waiting, mended = [*small, *READ], [*small, *NORMS]
    told = simulated_waits.told(waiting, tmp_path, lines=[line()])
    first, second = told.of_cell.iloc[0], told.of_cell.iloc[1]
    assert (first["verdict"], second["verdict"]) == (SYNCHRONISATION, LAUNCH)
    assert first["gain"] == pytest.approx(simulated_waits.step_ns(waiting) / simulated_waits.step_ns(mended), rel=0.15)
    assert first["next_step"].startswith(".item() at train.py:84, 60 times per step: avoid waiting for the GPU")
    also = re.search(r"; then a CUDA graph of the step \(graph: true\) becomes possible \((.*)\)$", first["next_step"])
    assert also
    then = float(re.findall(r"[\d.]+", also[1])[0])
    # A graph keeps the GPU busy, but for one launch and the gaps between nodes: 180 kernels, and copies that nobody awaits.
    alone = simulated_waits.step_ns([operator(2e3, host_ns=1.0) for _ in range(180)])
    assert first["gain"] < then and then == pytest.approx(simulated_waits.step_ns(waiting) / alone, rel=0.35)
    assert second["next_step"].startswith(
        "a CUDA graph (graph: true) is not possible, as the step waits for the GPU 60 times per step (.item() at train.py:84, 60 times "
        "per step): mend that first; until then reduce launches"
    )
    assert "graph=true" not in told.settings


def test_a_step_without_waits_keeps_its_shares_and_its_advice(tmp_path: Path) -> None:
    small = [operator(2e3) for _ in range(120)]
    told = simulated_waits.told(small, tmp_path, lines=[])
    shares = step_shares(told.row.to_frame().T.infer_objects()).iloc[0].to_dict()
    assert wait_costs.charge_waits(shares, CellSimulation(told.program), told.row) == shares
    launch = told.of_cell[told.of_cell["verdict"] == LAUNCH].iloc[0]
    assert launch["settings"] == "graph=true" and launch["gain"] > 1.3
    assert SYNCHRONISATION not in set(told.of_cell["verdict"])


def test_shares_still_add_up_to_the_step(tmp_path: Path) -> None:
    told = simulated_waits.told([*BUSY, *READ], tmp_path)
    shares = step_shares(told.row.to_frame().T.infer_objects()).iloc[0].to_dict()
    charged = wait_costs.charge_waits(shares, CellSimulation(told.program), told.row)
    assert sum(charged[name] for name in PARTS) == pytest.approx(1)
    assert charged["idle_synchronisation"] > shares["idle_synchronisation"] + 0.1
    assert min(charged.values()) >= 0


def test_memory_given_back_is_the_allocators_and_comes_before_the_launches(tmp_path: Path) -> None:
    """Between blocks the cache is emptied: two frees, and later two allocations of 80 us each."""
    stalls = [Act("free", 0, "forward", 2e3, 6e4)] * 2 + [Act("allocate", 0, "forward", 2e3, 8e4)] * 2
    small = [operator(2e3) for _ in range(120)]
    waiting = [one for place in range(4) for one in (*small[:30], *stalls)]
    told = simulated_waits.told(waiting, tmp_path)
    first, second = told.of_cell.iloc[0], told.of_cell.iloc[1]
    measured = simulated_waits.step_ns(waiting) / simulated_waits.step_ns(small)
    assert (first["verdict"], second["verdict"]) == ("allocator stalls", LAUNCH)
    assert first["gain"] == pytest.approx(measured, rel=0.15)
    # Such a step can be captured.
    assert second["settings"] == "graph=true" and SYNCHRONISATION not in set(told.of_cell["verdict"])


def test_launches_that_differ_forbid_the_graph_alone(tmp_path: Path) -> None:
    told = simulated_waits.told(lambda step: [operator(2e3, group=step % 5 + one % 3) for one in range(120)], tmp_path)
    launch = told.of_cell[told.of_cell["verdict"] == LAUNCH].iloc[0]
    assert "its launches differ between steps" in launch["next_step"] and "graph=true" not in told.settings


def test_waits_that_cost_little_but_prevent_the_graph_are_the_first_advice(tmp_path: Path) -> None:
    """Two in a step of 240 small launches: as they are read and written on, the launches are the larger cost."""
    waiting = [*[operator(2e3) for _ in range(120)], *item()] * 2
    told = simulated_waits.told(waiting, tmp_path, lines=[line(calls=2)])
    first, second = told.of_cell.iloc[0], told.of_cell.iloc[1]
    assert (first["verdict"], second["verdict"]) == (SYNCHRONISATION, LAUNCH) and first["share"] < 0.1
    assert (first["metric"], first["value"]) == ("waits per step, which prevent a CUDA graph", 2)
    assert first["next_step"].startswith(".item() at train.py:84, 2 times per step: ") and first["gain"] < 1.1
    assert "graph=true" not in told.settings


def test_a_script_is_not_told_to_use_a_setting_that_it_does_not_take(tmp_path: Path) -> None:
    told = simulated_waits.told([operator(2e3) for _ in range(120)], tmp_path, command="python train.py")
    launch = told.of_cell[told.of_cell["verdict"] == LAUNCH].iloc[0]
    assert launch["next_step"].startswith(
        "a CUDA graph (graph: true) is not possible, as only a script itself can capture its step"
    )
    assert "graph=true" not in told.settings
