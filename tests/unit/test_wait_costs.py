"""Waits cost what they cost: first cause and gain on simulated steps whose twins without the waits are simulated too."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from profzoo.tables.cell_tables import PARTS, step_shares
from profzoo.verdicts.gain_models import CellSimulation
from profzoo.verdicts.rules import rule_evaluation, step_quality
from profzoo.verdicts.rules.feasibility import POSSIBLE
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.predicted_gains import Gain
from tests import simulated_waits, slow
from tests.simulated_waits import item, operator
from tests.unit.test_verdicts import UNTRIED

SYNCHRONISATION, LAUNCH = "synchronisation-bound", "launch-bound"
# A step that keeps the GPU busy, norms of some parameters, and these norms with each of them read.
BUSY = [operator(1.2e4) for _ in range(60)]
NORMS = [operator(2e3) for _ in range(24)]
READ = [one for norm in NORMS for one in (norm, *item())]
SMALL = [operator(2e3) for _ in range(48)]
LINE = {"file": "train.py", "line": 84, "function": "log", "text": "norm.item()", "operation": ".item()"}


def line(**changed: Any) -> dict[str, Any]:
    return {**LINE, "range": "forward", "calls": 60} | changed


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_waits, "STEPS", 4)


def launch_row(told: simulated_waits.Told) -> pd.Series:
    return told.of_cell[told.of_cell["verdict"] == LAUNCH].iloc[0]


@pytest.mark.parametrize(
    ("waiting", "mended"),
    slow.first(
        [
            ([*BUSY, *READ], [*BUSY, *NORMS]),
            ([one for place in range(20) for one in (*BUSY[:3], *READ[:3])], [*BUSY, *NORMS[:20]]),
            ([one for place in range(20) for one in (*BUSY[:3], *item()[1:])], BUSY),
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
    # Shares still add up to the step.
    shares = step_shares(told.row.to_frame().T.infer_objects()).iloc[0].to_dict()
    charged = step_quality.charge_waits(shares, CellSimulation(told.program), told.row)
    assert sum(charged[name] for name in PARTS) == pytest.approx(1) and min(charged.values()) >= 0
    more = charged["idle_synchronisation"] - shares["idle_synchronisation"]
    assert more > 0.1 if waiting[-1] == READ[-1] and waiting[: len(BUSY)] == BUSY else more >= 0


def test_waits_of_a_step_that_launches_too_much_come_first_and_launches_after_them(tmp_path: Path) -> None:
    """Without the waits the CPU still takes longer than the GPU: then a graph, which these waits prevent, would help."""
    waiting, mended = [*SMALL, *READ], [*SMALL, *NORMS]
    told = simulated_waits.told(waiting, tmp_path, lines=[line()])
    first, second = told.of_cell.iloc[0], told.of_cell.iloc[1]
    assert (first["verdict"], second["verdict"]) == (SYNCHRONISATION, LAUNCH)
    assert first["gain"] == pytest.approx(simulated_waits.step_ns(waiting) / simulated_waits.step_ns(mended), rel=0.15)
    assert first["next_step"].startswith(".item() at train.py:84, 60 times per step: avoid waiting for the GPU")
    also = re.search(r"; then a CUDA graph of the step \(graph: true\) becomes possible \((.*)\)$", first["next_step"])
    assert also
    then = float(re.findall(r"[\d.]+", also[1])[0])
    # A graph keeps the GPU busy, but for one launch and the gaps between nodes: 72 kernels, and copies that nobody awaits.
    alone = simulated_waits.step_ns([operator(2e3, host_ns=1.0) for _ in mended])
    assert first["gain"] < then and then == pytest.approx(simulated_waits.step_ns(waiting) / alone, rel=0.35)
    assert second["next_step"].startswith(
        "a CUDA graph (graph: true) is not possible, as the step waits for the GPU 24 times per step (.item() at train.py:84, 60 times "
        "per step): mend that first; until then reduce launches"
    )
    assert "graph=true" not in told.settings


def test_a_step_without_waits_keeps_its_shares_and_its_advice(tmp_path: Path) -> None:
    told = simulated_waits.told(SMALL, tmp_path, lines=[])
    shares = step_shares(told.row.to_frame().T.infer_objects()).iloc[0].to_dict()
    assert step_quality.charge_waits(shares, CellSimulation(told.program), told.row) == shares
    launch = launch_row(told)
    assert launch["settings"] == "graph=true" and launch["gain"] > 1.3
    assert SYNCHRONISATION not in set(told.of_cell["verdict"])


def test_launches_that_differ_forbid_the_graph_alone(tmp_path: Path) -> None:
    told = simulated_waits.told(lambda step: [operator(2e3, group=step % 5 + one % 3) for one in range(48)], tmp_path)
    assert "its launches differ between steps" in launch_row(told)["next_step"] and "graph=true" not in told.settings


def test_waits_that_cost_little_but_prevent_the_graph_are_the_first_advice(tmp_path: Path) -> None:
    """Two in a step of many small launches: as they are read and written on, the launches are the larger cost."""
    told = simulated_waits.told([*SMALL, *SMALL, *item()] * 2, tmp_path, lines=[line(calls=2)])
    first, second = told.of_cell.iloc[0], told.of_cell.iloc[1]
    assert (first["verdict"], second["verdict"]) == (SYNCHRONISATION, LAUNCH) and first["share"] < 0.1
    assert (first["metric"], first["value"]) == ("waits per step, which prevent a CUDA graph", 2)
    assert first["next_step"].startswith(".item() at train.py:84, 2 times per step: ") and first["gain"] < 1.1
    assert "graph=true" not in told.settings


class Together:
    """A simulation in which both changes together make the step 1.5 times as fast, or of which nothing is known."""

    def __init__(self, known: bool) -> None:
        self.known = known

    def gain_together(self, asked: list[Any], step: Any, error: Any) -> Any:
        assert [one.change for one in asked] == [step_quality.WITHOUT_WAITS, rule_evaluation.GRAPH]
        assert error.error == UNTRIED.unscored_error
        return Gain(3.0, 2.0, 1.5, 1.25, 1.75, error.whole) if self.known else None


@pytest.mark.parametrize(
    ("next_step", "simulation", "said"),
    [
        (f"mend that{POSSIBLE}", Together(True), " (expected with both: 1.50 times as fast (1.25 to 1.75))"),
        (f"mend that{POSSIBLE}", Together(False), ""),
        (f"mend that{POSSIBLE}", None, ""),
        ("mend that", Together(True), ""),
        (f"{POSSIBLE} later", Together(True), ""),
    ],
)
def test_what_a_graph_gains_besides_is_said_where_it_becomes_possible(
    next_step: str, simulation: Any, said: str
) -> None:
    row = Verdict("cell", SYNCHRONISATION, "waits", 3.0, "steps.csv", next_step)
    found = rule_evaluation.add_graph_gain(row, simulation, pd.Series(), UNTRIED)
    assert found.next_step == f"{next_step}{said}" and found.verdict == SYNCHRONISATION


@pytest.mark.parametrize(
    ("waits", "pauses", "right"),
    [
        # Of 0.2 that the step waits, 0.5 goes without waits: 0.3 more are theirs; without pauses 0.1 besides.
        (0.5, 0.6, {"idle_synchronisation": 0.5, "idle_unknown": 0.15, "launching": 0.0}),
        (0.3, 0.4, {"idle_synchronisation": 0.3, "idle_unknown": 0.15, "launching": 0.2}),
        (0.3, 0.3, {"idle_synchronisation": 0.3, "idle_unknown": 0.05, "launching": 0.3}),
        # Waits that gain less than they take leave the shares, and no more can move than launching has.
        (0.1, 0.2, {"idle_synchronisation": 0.2, "idle_unknown": 0.05, "launching": 0.4}),
        (0.1, 0.3, {"idle_synchronisation": 0.2, "idle_unknown": 0.15, "launching": 0.3}),
        (0.9, 0.95, {"idle_synchronisation": 0.6, "idle_unknown": 0.05, "launching": 0.0}),
    ],
)
def test_idle_time_moves_from_launching_to_what_causes_it(
    waits: float, pauses: float, right: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = {step_quality.WITHOUT_WAITS: waits, step_quality.WITHOUT_PAUSES: pauses}
    monkeypatch.setattr(step_quality, "saved_share", lambda replayed, change, step: saved[change])
    shares = dict.fromkeys(PARTS, 0.0) | {"idle_synchronisation": 0.2, "idle_unknown": 0.05}
    first, *others = step_quality.LAUNCHING
    shares |= {first: 0.3, **dict.fromkeys(others, 0.1 / max(len(others), 1))}
    launching = sum(shares[name] for name in step_quality.LAUNCHING)
    found = step_quality.charge_waits(shares, CellSimulation.__new__(CellSimulation), pd.Series())
    moved = {name: found[name] for name in ("idle_synchronisation", "idle_unknown")}
    moved["launching"] = sum(found[name] for name in step_quality.LAUNCHING)
    assert launching == pytest.approx(0.4) and moved == pytest.approx(right)
    # Each part of launching keeps its share of it.
    assert found[first] * 0.1 == pytest.approx(0.3 * (moved["launching"] - found[first]))


@pytest.mark.parametrize(("gain", "share"), [(2.0, 0.5), (1.0, 0.0), (0.5, 0.0), (None, 0.0)])
def test_a_gain_saves_that_share_of_the_step(gain: float | None, share: float) -> None:
    simulated = SimpleNamespace(gain=lambda asked, step, error: gain and SimpleNamespace(gain=gain))
    assert step_quality.saved_share(simulated, step_quality.WITHOUT_WAITS, pd.Series()) == share  # type: ignore[arg-type]
