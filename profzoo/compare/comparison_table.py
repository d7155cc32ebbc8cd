"""Makes the table of a comparison, one row per cell and candidate, from processes that alternated or ran separately."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from profzoo.cell import process_count
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.sidecar_files import read_facts
from profzoo.compare import dictionary, differences, energy, numeric_columns, numeric_dictionary, numeric_sides
from profzoo.errors import DataError
from profzoo.io import column_types
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.scripts import write_csv
from profzoo.statistics import process_repeats, sequential, speedup
from profzoo.tables import baseline_steps
from profzoo.tables.cell_tables import cell_of
from profzoo.tools.time.tables import REPEATED

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

NUMBER = column_types.or_missing(column_types.NUMBER)
COLUMNS = {
    **dict.fromkeys(["model", "phase", "baseline", "candidate"], column_types.TEXT),
    **dict.fromkeys(["baseline_ns", "candidate_ns"], column_types.AMOUNT),
    **dict.fromkeys(["ratio", "ratio_low", "ratio_high"], NUMBER),
    "verdict": column_types.TEXT,
    **dict.fromkeys(["p_different", "p_equivalent"], NUMBER),
    **dict.fromkeys(["processes", "steps"], column_types.COUNT),
    # What a decision lacks, where rounds were repeated until they decide.
    **dict.fromkeys(["missing_rounds", "missing_ns"], NUMBER),
    "between_share": NUMBER,
    "alternating": column_types.FLAG,
    # What a time refers to: a step, or a data sample if steps of the sides have different numbers of samples.
    "per": column_types.TEXT,
    **dict.fromkeys(["baseline_items", "candidate_items"], column_types.AMOUNT),
    **dict.fromkeys(["unsteady", "differs"], column_types.TEXT),
    **numeric_dictionary.COLUMNS,
    # Margin of equivalence, and where and when both sides were measured.
    "margin": NUMBER,
    # Joules per data sample, if NVML was sampled for both sides.
    **dict.fromkeys(energy.COLUMNS, NUMBER),
    **dict.fromkeys(["device", "date"], column_types.TEXT),
}
COMPARISON_TABLE = reading.Table(
    columns=COLUMNS,
    key=["model", "phase", "baseline", "candidate"],
    ranges={"energy_ratio": ("energy_low", "energy_high")},
    about=dictionary.COMPARED,
    formerly={"in_turn": "alternating"},
)
STEP, SAMPLE = "step", "sample"
# Keys that the sidecar of processes that ran in turn has for all of them.
SHARED_FACTS = ("host", "commit", "driver", "started", "most_rounds", "round_s")
# Keys of the sidecar of processes that ran in turn.
ALTERNATING_FACTS: fact.Needs = {"sides": {}, "processes": fact.PROCESSES, "steps": fact.SEVERAL}


@dataclass(frozen=True)
class MeasuredSide:
    """The measurements of a cell on one side: steps in steady state in ns, one array per process; sidecar; energies.

    items: data samples per step, over all GPUs. places: positions of the processes among all that ran in turn. rounds:
    round of each process, if the processes of a round alternated within it.
    """

    processes: Sequence[np.ndarray]
    facts: "Sidecar"
    energies: energy.Energies = field(default_factory=dict)
    items: float = 1.0
    places: Sequence[int] = ()
    rounds: Sequence[int] = ()


# Model and phase; name of the side; what was measured.
MeasuredSides = Mapping[str, MeasuredSide]
ComparedCell = tuple[Mapping[str, str], MeasuredSides, bool]


def read_interleaved(path: str | Path, sidecar: str | Path, sides: Sequence[str]) -> MeasuredSides:
    """Read the measurements of alternating processes, by side.

    sides: names of the sides, the reference side first; any of them may have been the first to run.
    """
    steps, facts = reading.read(path, REPEATED), read_facts(sidecar, ALTERNATING_FACTS)
    if len(steps) != facts["steps"]:
        raise DataError(f"{path} has {len(steps)} steps, but its sidecar says {facts['steps']}: {reading.AGAIN}")
    found = {}
    for side in sides:
        rows = steps[steps["side"] == side]
        mine = [process for process in facts["processes"] if process["side"] == side]
        shared: dict[str, Any] = {key: value for key, value in facts.items() if key in SHARED_FACTS}
        known = cast("Sidecar", {**shared, **mine[0], "cell": facts["sides"][side], "processes": mine})
        places = sorted(rows["process"].unique())
        turns = [process["round"] for process in mine if process.get("shifts", 1) > 1]
        shifted = turns if len(turns) == len(mine) else []
        found[side] = MeasuredSide(
            process_repeats.processes(rows), known, {}, _items_per_step(rows, known), places, shifted
        )
    return found


def _items_per_step(steps: pd.DataFrame, facts: "Sidecar") -> float:
    """Return data samples per step over all of a cell's GPUs, each of which has its own batch."""
    cell = cast(CellSettings, {"gpus": 1, "nodes": 1, **facts.get("cell", {})})
    return float(steps["items"].median()) * process_count.process_count(cell)


def read_baseline(path: str | Path, sidecar: str | Path) -> MeasuredSide:
    """Read the unprofiled baseline of a cell, in one or several processes."""
    ((_, steps, facts),) = baseline_steps.read([str(path)], [str(sidecar)])
    return MeasuredSide(process_repeats.processes(steps), facts, {}, _items_per_step(steps, facts))


def tabulate_comparison(compared: Iterable[ComparedCell], margin: float, confidence: float = 0.95) -> pd.DataFrame:
    """Return the table, a row per cell and candidate.

    If a cell has one process on a side, there is a ratio but no interval, and the outcome is `undecided`.

    Args:
        compared: for each cell, the cell, its sides with the reference side first, and whether they ran in turn.
        margin: largest relative difference that counts as equivalent.
        confidence: confidence of the intervals, 0 to 1.
    """
    rows, tested = [], []
    for cell, sides, turn in compared:
        (one, baseline), *candidates = sides.items()
        for other, candidate in candidates:
            row, ratio = _compare_sides(baseline, candidate, turn, margin, confidence)
            rows.append({**cell, "baseline": one, "candidate": other, **row})
            tested.append(ratio)
    verdicts = iter(speedup.decide_outcomes([ratio for ratio in tested if ratio]))
    outcomes = [next(verdicts) if ratio else speedup.UNDECIDED for ratio in tested]
    said = [
        numeric_columns.temper_outcome(outcome, row["numerics"]) for outcome, row in zip(outcomes, rows, strict=True)
    ]
    frame = pd.DataFrame(rows, columns=[name for name in COLUMNS if name != "verdict"])
    return frame.assign(verdict=pd.Series(said, dtype="str"))[list(COLUMNS)]


def _compare_sides(
    baseline: MeasuredSide, candidate: MeasuredSide, turn: bool, margin: float, confidence: float
) -> tuple[dict[str, Any], speedup.Ratio | None]:
    per = STEP if baseline.items == candidate.items else SAMPLE
    # Of as much work on both sides.
    each = [
        [steps / (side.items if per == SAMPLE else 1) for steps in side.processes] for side in (baseline, candidate)
    ]
    one, other = (
        process_repeats.summarise_processes(times, process_repeats.cpu_taken_shares(side.facts))
        for times, side in zip(each, (baseline, candidate), strict=True)
    )
    medians = [[float(np.median(times)) for times in side] for side in each]
    fewest = min(one.processes, other.processes)
    places = (baseline.places, candidate.places) if turn else None
    paired = bool(baseline.rounds) and baseline.rounds == candidate.rounds
    found, missing = None, None
    if fewest > 1 and turn and "most_rounds" in baseline.facts:
        decision = sequential.decide(np.log(np.divide(medians[1], medians[0])).tolist(), margin, 1 - confidence)
        found, missing = decision.found, decision.missing
    elif fewest > 1:
        found = speedup.estimate_ratio(medians[0], medians[1], places, confidence, margin, paired)
    middle = found.ratio if found else other.median_ns / one.median_ns
    said = [f"{name}: {why}" for name, why in (("reference side", one.unsteady), ("candidate", other.unsteady)) if why]
    return {
        "baseline_ns": one.median_ns,
        "candidate_ns": other.median_ns,
        "ratio": middle,
        "ratio_low": found.low if found else np.nan,
        "ratio_high": found.high if found else np.nan,
        "p_different": found.p_different if found else np.nan,
        "p_equivalent": found.p_equivalent if found else np.nan,
        "processes": fewest,
        "missing_rounds": np.nan if missing is None else missing,
        "missing_ns": np.nan if missing is None else missing * baseline.facts.get("round_s", np.nan) * 1e9,
        "steps": one.steps + other.steps,
        "between_share": max(one.between_share, other.between_share) if fewest > 1 else np.nan,
        "alternating": turn,
        "per": per,
        "baseline_items": baseline.items,
        "candidate_items": candidate.items,
        "unsteady": "; ".join(said),
        "differs": "; ".join(differences.describe_sidecar_differences(baseline.facts, candidate.facts)),
        **numeric_columns.compare_sides(_numeric_side(baseline), _numeric_side(candidate)),
        "margin": margin,
        **energy.compare_energies(baseline.energies, candidate.energies),
        "device": _join_facts(baseline, candidate, "device"),
        "date": _join_facts(baseline, candidate, "started", 10),
    }, found


def _numeric_side(side: MeasuredSide) -> numeric_sides.NumericSide:
    """Return what a side computed; its sidecar may be of one process."""
    processes = side.facts.get("processes") or [side.facts]
    return numeric_sides.read_side(side.facts, cast(CellSettings, side.facts.get("cell", {})), processes)


def _join_facts(baseline: MeasuredSide, candidate: MeasuredSide, key: str, length: int | None = None) -> str:
    """Return a fact of both sides, once if it is the same, each cut to `length` characters."""
    return " -> ".join(dict.fromkeys(str(side.facts.get(key, ""))[:length] for side in (baseline, candidate)))


def read_compared(sides: Sequence[str], turns: Sequence[str], alone: Mapping[str, Sequence[str]]) -> list[ComparedCell]:
    """Read the measurements of all cells, without energies; the arguments are those of `main`."""
    compared: list[ComparedCell] = [
        (cell_of(path), read_interleaved(path, f"{path}.json", sides), True) for path in turns
    ]
    for paths in zip(*(alone[side] for side in sides if side in alone), strict=True):
        found = {side: read_baseline(path, f"{path}.json") for side, path in zip(sides, paths, strict=True)}
        compared.append((_cell_without_variant(paths[0]), found, False))
    return compared


def main(
    sides: Sequence[str],
    turns: Sequence[str],
    alone: Mapping[str, Sequence[str]],
    sampled: Mapping[str, Sequence[str]],
    margin: float,
    csv: str,
) -> None:
    """Read the measurements and write the table.

    Args:
        sides: names of the sides, the reference side first.
        turns: CSV of sides that ran in turn, with their sidecars beside.
        alone: CSV of sides that ran separately, by side.
        sampled: CSV of NVML's samples of each cell, by side, if there are any.
        margin: largest relative difference that counts as equivalent.
        csv: where to write the table.
    """
    energies = {
        (side, *_cell_without_variant(path).values()): energy.energy_per_sample(path, f"{path}.json")
        for side in sampled
        for path in sampled[side]
    }
    known = [
        (
            cell,
            {side: replace(one, energies=energies.get((side, *cell.values()), {})) for side, one in each.items()},
            turn,
        )
        for cell, each, turn in read_compared(sides, turns, alone)
    ]
    write_csv(tabulate_comparison(known, margin), csv)


def _cell_without_variant(path: str) -> dict[str, str]:
    """Return the cell of a file, without its variant."""
    cell = cell_of(path)
    return {**cell, "model": cell["model"].partition("@")[0]}
