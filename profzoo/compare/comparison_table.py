"""Makes the table of a comparison, one row per cell and candidate, from processes that alternated or ran separately."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from profzoo.cell import settings
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.sidecar_files import read_facts
from profzoo.compare import numeric_checks, numerics
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.columns import (
    AMOUNT,
    COUNT,
    CPU,
    FLAG,
    GPU,
    NINETEEN_OF_TWENTY,
    NUMBER,
    TEXT,
    Column,
    select,
    with_interval,
)
from profzoo.io.common_columns import COMPARED_CELL, shared
from profzoo.io.scripts import write_csv
from profzoo.statistics import process_repeats, sequential, speedup
from profzoo.tables import cell_tables, latency
from profzoo.tables.cell_tables import cell_of
from profzoo.tools.sample import activity, gpu_state, tables
from profzoo.tools.time.tables import REPEATED

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Lists differences of two runs besides their times: GPU, software, settings, clocks. Comparisons begin with them.

# Of sidecars, in the order in which they matter, with the words for them.
FACTS = {
    "device": "device",
    "host": "host",
    "driver": "driver",
    "torch": "torch",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "python": "Python",
    "threads": "CPU threads",
    "batch": "batch",
    "parameters": "parameters",
    "commit": "commit",
}
# Parts of sidecars with facts by name: versions of packages, and environment variables by value or digest.
NAMED = ("packages", "variables")
# Settings of a cell that follow from others, or say which it is.
DERIVED = ("model", "module", "steps", "samples", "window", "fit")


def describe_sidecar_differences(baseline: "Sidecar", candidate: "Sidecar") -> list[str]:
    """Return each difference of two sidecars of one cell in words, such as `torch 2.10 -> 2.11`.

    >>> before = {"torch": "2.10", "cell": {"precision": "fp32"}}
    >>> describe_sidecar_differences(before, {"torch": "2.11", "cell": {"precision": "bf16"}})
    ['torch 2.10 -> 2.11', 'precision fp32 -> bf16']
    """
    said = [
        f"{word} {_format_difference(baseline.get(key))} -> {_format_difference(candidate.get(key))}"
        for key, word in FACTS.items()
        if baseline.get(key) != candidate.get(key)
    ]
    for part in NAMED:
        old: Mapping[str, Any] = cast("Mapping[str, Any]", baseline).get(part) or {}
        new: Mapping[str, Any] = cast("Mapping[str, Any]", candidate).get(part) or {}
        # Sidecars of earlier versions have no packages.
        both = bool(old and new) or part == "variables"
        names = [name for name in sorted({*old, *new}) if both and name not in FACTS and old.get(name) != new.get(name)]
        said += [f"{name} {_format_difference(old.get(name))} -> {_format_difference(new.get(name))}" for name in names]
    one, other = (settings.flatten(side.get("cell", {})) for side in (baseline, candidate))
    # The batch that ran is among the facts.
    keys = [key for key in sorted({*one, *other}) if key not in DERIVED and key != "batch"]
    said += [f"{key} {_format_difference(one.get(key))} -> {_format_difference(other.get(key))}" for key in keys
             if one.get(key) != other.get(key)]  # fmt: skip
    return said + gpu_state.describe_clock_difference(baseline, candidate)


def _format_difference(value: Any) -> str:
    if value is None:
        return "none"
    # Commits and digests in the length that git shows.
    if isinstance(value, str) and (len(value) == 40 or value.startswith("sha256:")):
        return value.removeprefix("sha256:")[:10]
    return str(value)


# Compare the energy per data sample of two sides, in joules, where NVML was sampled for both.

# Methods to measure energy, the preferred one first.
ENERGY_METHODS = ("item_energy_counter_j", "item_energy_power_j")
Energies = Mapping[str, Sequence[float]]
ENERGY_COLUMNS = ("baseline_item_j", "candidate_item_j", "energy_ratio", "energy_low", "energy_high")


def energy_per_sample(csv: str, sidecar: str) -> Energies:
    """Return joules per data sample of each process, by method; only methods that all processes have."""
    table, facts = reading.read(csv, activity.TABLE), read_facts(sidecar, activity.FACTS)
    each = [] if facts["gaps"] else tables.summarise_processes(table, facts)
    return {way: [one[way] for one in each] for way in ENERGY_METHODS if each and all(way in one for one in each)}


def compare_energies(baseline: Energies, candidate: Energies) -> dict[str, float]:
    """Return COLUMNS of the comparison table, as medians over processes; NaN if the sides share no method.

    The interval is over processes, which ran separately; it needs at least two processes per side.
    """
    found = dict.fromkeys(ENERGY_COLUMNS, float("nan"))
    way = next((way for way in ENERGY_METHODS if way in baseline and way in candidate), None)
    if way is None:
        return found
    one, other = baseline[way], candidate[way]
    found |= {"baseline_item_j": float(np.median(one)), "candidate_item_j": float(np.median(other))}
    found["energy_ratio"] = found["candidate_item_j"] / found["baseline_item_j"]
    if min(len(one), len(other)) > 1:
        ratio = speedup.estimate_ratio(one, other, None)
        found |= {"energy_ratio": ratio.ratio, "energy_low": ratio.low, "energy_high": ratio.high}
    return found


COMPARISON_TABLE = reading.Table(
    columns={
        **COMPARED_CELL,
        "baseline_ns": Column(
            AMOUNT, "Median time of the reference side: per step, or per sample where the sides have batches of "
            "different sizes (see `per`).", "ns", "time", GPU),
        "candidate_ns": Column(AMOUNT, "The same of the candidate.", "ns", "time", GPU),
        **with_interval("ratio", Column(
            NUMBER.or_missing, "Time of the candidate over that of the reference side: below 1 the candidate is "
            "faster.", "ratio", "time", GPU, NINETEEN_OF_TWENTY)),
        "verdict": Column(
            TEXT, "`faster`, `slower`, `equivalent` (within `margin`) or `undecided`; `different` if it is faster "
            "and computes something else."),
        "p_different": Column(
            NUMBER.or_missing, "p-value of a ratio as far from 1, if there is no difference.", "fraction"),
        "p_equivalent": Column(
            NUMBER.or_missing, "p-value of a ratio as near to 1, if the difference is as large as `margin` (two "
            "one-sided tests).", "fraction"),
        "processes": Column(COUNT, "Processes per side; of unlike numbers the smaller one.", "count"),
        "steps": Column(COUNT, "Settled steps of both sides together.", "count", "time"),
        "missing_rounds": Column(
            NUMBER.or_missing, "Estimate of further rounds of processes that a decision takes, where rounds go on "
            "until they decide; 0 if decided, empty if unknown or more than 126.", "count"),
        "missing_ns": Column(NUMBER.or_missing, "Estimate of the time that these rounds take.", "ns", "time", CPU),
        **shared("between_share"),
        "alternating": Column(FLAG, "Whether processes of the sides ran in alternation."),
        "per": Column(TEXT, "What times are of: a `step`, or a `sample` of the data."),
        "baseline_items": Column(AMOUNT.or_missing, "Samples of the data in a step of the reference side.", "count"),
        "candidate_items": Column(AMOUNT.or_missing, "The same of the candidate.", "count"),
        **shared("unsteady"),
        "differs": Column(TEXT, "Versions, settings and SM clocks in which the sides differ."),
        **select(
            numerics.COLUMNS, "numerics", "numerics_by", "numerics_difference", "numerics_tolerance",
            "numerics_why", "seed_spread", "work"),
        "margin": Column(NUMBER.or_missing, "Relative difference that counts as none.", "fraction"),
        "baseline_item_j": Column(
            NUMBER.or_missing, "Energy per sample of the data of the reference side.", "J", "sample"),
        "candidate_item_j": Column(NUMBER.or_missing, "The same of the candidate.", "J", "sample"),
        "energy_ratio": Column(
            NUMBER.or_missing, "Energy of the candidate over that of the reference side.", "ratio", "sample"),
        "energy_low": Column(NUMBER.or_missing, "Lower end of the 95 % interval of `energy_ratio`.", "ratio", "sample"),
        "energy_high": Column(
            NUMBER.or_missing, "Upper end of the 95 % interval of `energy_ratio`.", "ratio", "sample"),
        **shared("device", "date"),
    },
    key=["model", "phase", "baseline", "candidate"],
    ranges={"energy_ratio": ("energy_low", "energy_high")},
)  # fmt: skip
COLUMNS = [*COMPARISON_TABLE.columns]
STEP, SAMPLE = "step", "sample"
OTHERWISE = "they were repeated with other settings or code than the times were measured with"
# Keys that the sidecar of processes that ran in turn has for all of them.
SHARED_FACTS = ("host", "commit", "driver", "started", "most_rounds", "round_s")
# Keys of the sidecar of processes that ran in turn.
ALTERNATING_FACTS: fact.Needs = {"sides": {}, "processes": fact.PROCESSES, "steps": fact.SEVERAL}


@dataclass(frozen=True)
class MeasuredSide:
    """The measurements of a cell on one side: steps in steady state in ns, one array per process; sidecar; energies.

    numbers: facts of a process that repeated its steps, if that ran apart. items: data samples per step, over all GPUs.
    places: positions of the processes among all that ran in turn. rounds: round of each process, if the processes of a
    round ran at once or alternated within it.
    """

    processes: Sequence[np.ndarray]
    facts: "Sidecar"
    energies: Energies = field(default_factory=dict)
    numbers: "Sidecar | None" = None
    items: float = 1.0
    places: Sequence[int] = ()
    rounds: Sequence[int] = ()


# Model and phase; name of the side; what was measured.
MeasuredSides = Mapping[str, MeasuredSide]
ComparedCell = tuple[Mapping[str, str], MeasuredSides, bool]


def read_interleaved(path: str | Path, sidecar: str | Path, sides: Sequence[str]) -> MeasuredSides:
    """Read the measurements of alternating processes, by side.

    sides: names of the sides, the reference side first; any of them may have been the first to run.

    Raises:
        DataError: the files do not belong together, or a process ran with other settings than those of its side.
    """
    steps, facts = reading.read(path, REPEATED), read_facts(sidecar, ALTERNATING_FACTS)
    if len(steps) != facts["steps"]:
        raise DataError(f"{path} has {len(steps)} steps, but its sidecar says {facts['steps']}: {reading.AGAIN}")
    found = {}
    for side in sides:
        rows = steps[steps["side"] == side]
        mine = [process for process in facts["processes"] if process["side"] == side]
        for own in (one for one in mine if "ran_with" in one):
            asked = settings.setting_words(facts["sides"][side])
            if wrong := settings.describe_other_settings(asked, own["ran_with"]):
                raise DataError(f"{path}: a process of {side} ran with {wrong}: {reading.AGAIN}")
        shared: dict[str, Any] = {key: value for key, value in facts.items() if key in SHARED_FACTS}
        known = cast("Sidecar", {**shared, **mine[0], "cell": facts["sides"][side], "processes": mine})
        places = sorted(rows["process"].unique())
        turns = [process["round"] for process in mine if process.get("beside", process.get("shifts", 1)) > 1]
        shifted = turns if len(turns) == len(mine) else []
        found[side] = MeasuredSide(
            process_repeats.processes(rows), known, {}, None, _items_per_step(rows), places, shifted
        )
    return found


def _items_per_step(steps: pd.DataFrame) -> float:
    """Return data samples per step, NaN if unknown; the harness counts those of all of a cell's GPUs."""
    return float(steps["items"].astype("float64").median())


def read_baseline(path: str | Path, sidecar: str | Path) -> MeasuredSide:
    """Read the unprofiled baseline of a cell, in one or several processes."""
    ((_, steps, facts),) = cell_tables.read_baseline_steps([str(path)], [str(sidecar)])
    return MeasuredSide(process_repeats.processes(steps), facts, {}, None, _items_per_step(steps))


def read_numbers(path: str | Path, timed: "Sidecar") -> "Sidecar":
    """Read what a cell computed in repeated steps; timed: sidecar of its unprofiled run.

    Where the run had other settings or sources, there is only the reason why nothing was repeated of it.
    """
    facts = read_facts(path)
    sources, of_timed = facts.get("sources", {}), timed.get("sources", {})
    alike = all(of_timed.get(name, digest) == digest for name, digest in sources.items())
    if alike and facts.get("cell") == timed.get("cell"):
        return facts
    return cast("Sidecar", {"first_steps": facts.get("first_steps"), "double_precision": {"why": OTHERWISE}})


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
    said = [numerics.temper_outcome(outcome, row["numerics"]) for outcome, row in zip(outcomes, rows, strict=True)]
    frame = pd.DataFrame(rows, columns=[name for name in COLUMNS if name != "verdict"])
    return frame.assign(verdict=pd.Series(said, dtype="str"))[list(COLUMNS)]


def _compare_sides(
    baseline: MeasuredSide, candidate: MeasuredSide, turn: bool, margin: float, confidence: float
) -> tuple[dict[str, Any], speedup.Ratio | None]:
    per = SAMPLE if abs(baseline.items - candidate.items) > 0 else STEP
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
    if turn and "most_rounds" in baseline.facts:
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
        "differs": "; ".join(describe_sidecar_differences(baseline.facts, candidate.facts)),
        **numerics.compare_sides(_numeric_side(baseline), _numeric_side(candidate)),
        "margin": margin,
        **compare_energies(baseline.energies, candidate.energies),
        "device": _join_facts(baseline, candidate, "device"),
        "date": _join_facts(baseline, candidate, "started", 10),
    }, found


def _numeric_side(side: MeasuredSide) -> numeric_checks.NumericSide:
    """Return what a side computed; its sidecar may be of one process."""
    processes = [*(side.facts.get("processes") or [side.facts]), *([side.numbers] if side.numbers else [])]
    return numeric_checks.read_side(side.facts, cast(CellSettings, side.facts.get("cell", {})), processes)


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
    numbers: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Read the measurements and write the table.

    Args:
        sides: names of the sides, the reference side first.
        turns: CSV of sides that ran in turn, with their sidecars beside.
        alone: CSV of sides that ran separately, by side.
        sampled: CSV of NVML's samples of each cell, by side, if there are any.
        margin: largest relative difference that counts as equivalent.
        csv: where to write the table.
        numbers: what cells computed in repeated steps, by side, if sides ran separately.
    """
    repeated = {
        (side, *_cell_without_variant(path).values()): path for side, paths in (numbers or {}).items() for path in paths
    }
    energies = {
        (side, *_cell_without_variant(path).values()): energy_per_sample(path, f"{path}.json")
        for side in sampled
        for path in sampled[side]
    }
    known = [
        (
            cell,
            {
                side: replace(
                    one,
                    energies=energies.get(key := (side, *cell.values()), {}),
                    numbers=read_numbers(repeated[key], one.facts) if key in repeated else None,
                )
                for side, one in each.items()
            },
            turn,
        )
        for cell, each, turn in read_compared(sides, turns, alone)
    ]
    write_csv(tabulate_comparison(known, margin), csv)


def _cell_without_variant(path: str) -> dict[str, str]:
    """Return the cell of a file, without its variant."""
    cell = cell_of(path)
    return {**cell, "model": cell["model"].partition("@")[0]}


# Makes the table of percentiles of the step on each side of a comparison: whether the slowest steps got faster too.

SIDE = "side"
LATENCY_COLUMNS = [*latency.CELL, SIDE, *(name for name in latency.COLUMNS if name not in latency.CELL)]
LATENCY_TABLE = replace(
    latency.TABLE,
    columns={
        SIDE: Column(
            TEXT, "Name of the side, a variant or a folder of results; the reference side comes first."),
        **latency.TABLE.columns,
    },
    key=[SIDE, *latency.KEY],
)  # fmt: skip


def tabulate_latency(compared: Iterable[ComparedCell]) -> pd.DataFrame:
    """Return the percentiles of the step of each cell and side; the reference side comes first.

    Steps of sides with batches of different sizes hold different work; their percentiles are of a step all the same.
    """
    tables = [
        latency.list_percentiles(side.processes).assign(**cell, **{SIDE: name})
        for cell, sides, _ in compared
        for name, side in sides.items()
    ]
    return pd.concat(tables, ignore_index=True)[LATENCY_COLUMNS] if tables else LATENCY_TABLE.empty()[LATENCY_COLUMNS]


def write_latency_table(
    sides: Sequence[str], turns: Sequence[str], alone: Mapping[str, Sequence[str]], csv: str
) -> None:
    """Read the measurements of a comparison and write the table; the arguments are those of comparison_table.main."""
    write_csv(tabulate_latency(read_compared(sides, turns, alone)), csv)
