"""Make the table of trials, a row per cell and settings: expected gain, measured gain, hit or miss."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from profzoo.cell import settings
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.sidecar_files import read_facts
from profzoo.compare import numeric_columns, numeric_dictionary, numeric_sides, numerics
from profzoo.experiments import trial_runner, trial_search
from profzoo.experiments.trial_runner import TOGETHER, change_words
from profzoo.io import column_types
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.statistics import process_repeats, sequential, speedup
from profzoo.tables.cell_tables import cell_of
from profzoo.tools.sample import clock_readings
from profzoo.tools.time.tables import REPEATED
from profzoo.trials import dictionary

if TYPE_CHECKING:
    from profzoo.cell.job_types import ProcessFacts, Sidecar
    from profzoo.trials.candidate_settings import ExpectedGain

NUMBER = column_types.or_missing(column_types.NUMBER)
COLUMNS = {
    **dict.fromkeys(["model", "phase", "settings", "words", "advised_by"], column_types.TEXT),
    **dict.fromkeys(["expected", "expected_low", "expected_high"], NUMBER),
    **dict.fromkeys(["base_ns", "ns", "gain", "gain_low", "gain_high"], NUMBER),
    "processes": column_types.COUNT,
    **dict.fromkeys(["verdict", "outcome"], column_types.TEXT),
    **dict.fromkeys(["advised", "chosen"], column_types.FLAG),
    **dict.fromkeys(["loss_difference", "output_difference"], NUMBER),
    **numeric_dictionary.COLUMNS,
    "why": column_types.TEXT,
}
# A column that is there only where any setting's clock differed from that of the unchanged cell.
CLOCKS = "clocks"
TRIALS_TABLE = reading.Table(
    columns=COLUMNS, optional={CLOCKS: column_types.TEXT}, key=["model", "phase", "settings"], about=dictionary.TRIALS
)
FAILED, REFUSED, LEFT_OUT = "failed", "refused", "not tried"
HIT, MISS, SLOWED = "hit", "miss", "slowed down"
# An expected gain is a hit within this relative distance of the measured gain, or within the interval of that.
NEAR = 0.2
NEEDS: fact.Needs = {
    "trials": {"candidates": {}, "refused": {}},
    "processes": fact.PROCESSES,
    "failed": {},
    "tried": fact.TEXTS,
    "chosen": fact.TEXT,
    "ended": fact.TEXT,
}
Cell = tuple[Mapping[str, str], pd.DataFrame, "Sidecar"]


@dataclass(frozen=True)
class _Trial:
    """Settings that were tried on a cell, or not; times in ns per data sample; what was not measured is NaN.

    verdict: FAILED, REFUSED or LEFT_OUT of settings that were not measured, or what rounds decided; ratio: the
    comparison from two pairs on, if it is judged together with all others; numbers: the columns that say whether the
    settings leave what is computed as it is. clocks: how the GPU's clock differed from that of the unchanged cell.
    """

    settings: str
    words: str
    why: str = ""
    processes: int = 0
    chosen: bool = False
    base_ns: float = np.nan
    ns: float = np.nan
    gain: float = np.nan
    gain_low: float = np.nan
    gain_high: float = np.nan
    loss_difference: float = np.nan
    output_difference: float = np.nan
    verdict: str = speedup.UNDECIDED
    ratio: speedup.Ratio | None = None
    numbers: Mapping[str, Any] = field(default_factory=lambda: numeric_dictionary.UNKNOWN)
    clocks: str = ""


@dataclass(frozen=True)
class _Row:
    """A trial of a cell beside what was expected of it."""

    cell: Mapping[str, str]
    trial: _Trial
    expected: "ExpectedGain"

    def columns(self, outcomes: Iterator[str]) -> dict[str, Any]:
        """Return the row of the table; outcomes: of the comparisons, in their order, of which this takes its own."""
        own = {field.name: getattr(self.trial, field.name) for field in fields(self.trial)}
        return {
            **self.cell,
            **own,
            **self.trial.numbers,
            "expected": self.expected["gain"],
            "expected_low": self.expected["low"],
            "expected_high": self.expected["high"],
            "advised": self.expected["advised"],
            "advised_by": self.expected["verdict"],
            "verdict": numeric_columns.temper_outcome(
                next(outcomes) if self.trial.ratio else self.trial.verdict, self.trial.numbers["numerics"]
            ),
        }


def tabulate_trials(
    cells: Iterable[Cell], expected: "Mapping[str, Mapping[str, ExpectedGain]]", margin: float
) -> pd.DataFrame:
    """Return the table (COLUMNS): each cell's settings from the largest gain on, then failed and untried ones.

    Args:
        cells: for each cell, the cell, steps of all processes, and their sidecar.
        expected: expected gains by cell and name of the settings.
        margin: largest relative difference that counts as equivalent.

    `gain` is the time per data sample of the unchanged cell over the time with the settings, from pairs of processes of
    the same round, with its 95 % confidence interval. `verdict` is the outcome as in a comparison. `outcome` compares
    the gain with the expected one, even if no verdict advises the settings (`advised`). `loss_difference` and
    `output_difference` are the differences of the last loss and of the last outputs, relative to the unchanged cell's.
    """
    rows: list[_Row] = []
    for cell, steps, facts in cells:
        own = _measured_rows(steps, facts, margin)
        known = expected.get(f"{cell['model']} {cell['phase']}", {})
        for row in [*own, *_unmeasured_rows(facts, own)]:
            rows.append(_Row(cell, row, _expected_of(row, known)))
    said = iter(speedup.decide_outcomes([row.trial.ratio for row in rows if row.trial.ratio]))
    names = [*COLUMNS, *([CLOCKS] if any(row.trial.clocks for row in rows) else [])]
    frame = pd.DataFrame([row.columns(said) for row in rows], columns=names)
    ends = ["expected", "expected_low", "expected_high"]
    frame[ends] = frame[ends].astype("float64")
    frame["outcome"] = [_outcome(row) for row in frame.to_dict("records")]
    return frame


def _measured_rows(steps: pd.DataFrame, facts: "Sidecar", margin: float) -> list[_Trial]:
    processes = facts["processes"]
    medians = [float(np.median(times)) for times in process_repeats.processes(steps)]
    batches = [own["batch"] for own in processes]
    base = {own["round"]: place
            for place, (own, _) in enumerate(zip(processes, medians, strict=True)) if not own["side"]}  # fmt: skip
    base_side = _numeric_side(processes, "", facts)
    (plain, *_) = [own for own in processes if not own["side"]]
    found = []
    for side in dict.fromkeys(own["side"] for own in processes if own["side"]):
        mine = [place for place, own in enumerate(processes) if own["side"] == side]
        # A sample's time, as a batch may have another number of them.
        factor = batches[0] / batches[mine[0]]
        pairs = [(base[processes[place]["round"]], place) for place in mine if processes[place]["round"] in base]
        before, after = [medians[first] for first, _ in pairs], [medians[place] * factor for _, place in pairs]
        places = ([first for first, _ in pairs], [place for _, place in pairs])
        said: dict[str, Any] = {}
        if len(pairs) < 2:
            ratio = None
        elif facts["trials"].get("repeats", 0) is None:
            ratio, said = _decide(before, after, margin, facts.get("round_s", np.nan))
        else:
            ratio = speedup.estimate_ratio(before, after, places, margin=margin)
            said = {"ratio": ratio}
        compared = numeric_columns.compare_sides(base_side, _numeric_side(processes, side, facts))
        gain = 1 / ratio.ratio if ratio else float(np.median(before) / np.median(after)) if pairs else np.nan
        found.append(
            _Trial(
                settings=side,
                words=_words(side, facts),
                base_ns=float(np.median(before)) if pairs else np.nan,
                ns=float(np.median([medians[place] for place in mine])),
                gain=gain,
                gain_low=1 / ratio.high if ratio else np.nan,
                gain_high=1 / ratio.low if ratio else np.nan,
                processes=len(mine),
                chosen=side == facts["chosen"] and compared["numerics"] != numerics.DIFFERENT,
                loss_difference=_output_distance(_compare_losses(plain), _compare_losses(processes[mine[0]])),
                output_difference=_output_distance(plain.get("outputs"), processes[mine[0]].get("outputs")),
                numbers=compared,
                clocks=_compare_clocks(processes, side),
                **said
                | ({"why": f"failed in a later round: {facts['failed'][side]}"} if side in facts["failed"] else {}),
            )
        )
    return sorted(found, key=lambda row: -row.gain)


def _decide(
    before: Sequence[float], after: Sequence[float], margin: float, round_s: float
) -> tuple[speedup.Ratio | None, dict[str, str]]:
    """Return the ratio of rounds that were repeated until they decide, with the outcome, and what a decision lacks.

    round_s: seconds of a process with the settings and one of the unchanged cell.
    """
    decision = sequential.decide(np.log(np.array(after) / np.array(before)).tolist(), margin)
    lacks = ""
    if decision.missing:
        time = f" ({decision.missing * round_s:.3g} s)" if round_s > 0 else ""
        lacks = f"about {decision.missing} more rounds{time} would decide: raise trials.budget"
    elif decision.outcome == speedup.UNDECIDED and decision.rounds >= sequential.FORECAST_FROM:
        lacks = f"{sequential.LOOKS[-1]} rounds would not decide: stop other programs, or time more steps"
    return decision.found, {"verdict": decision.outcome, "why": lacks}


def _compare_clocks(processes: "Sequence[ProcessFacts]", side: str) -> str:
    """Return how the clock differed between processes of the unchanged cell and of settings; empty if it did not."""
    sides = [[own for own in processes if own["side"] == name] for name in ("", side)]
    one, other = (cast("Sidecar", {"processes": mine}) for mine in sides)
    return "".join(clock_readings.describe_clock_difference(one, other))


def _numeric_side(processes: "Sequence[ProcessFacts]", side: str, facts: "Sidecar") -> numeric_sides.NumericSide:
    """Return what the processes with these settings computed; their sidecar has the unchanged cell."""
    mine = [process for process in processes if process["side"] == side]
    changed = settings.parse_words(_words(side, facts).split())
    cell = cast(CellSettings, {**facts.get("cell", {}), **changed})
    return numeric_sides.read_side(cast("Sidecar", {**facts, **mine[0]}), cell, mine)


def _unmeasured_rows(facts: "Sidecar", measured: Sequence[_Trial]) -> list[_Trial]:
    """Yield rows of settings that failed at once, cannot be tried, or were left out because trials ended."""
    ran = {row.settings for row in measured}
    done = ran | set(facts["failed"])
    why = "the budget had ended: raise trials.budget"
    if facts["ended"] == trial_runner.FAILED:
        why = f"the unchanged cell had failed: {facts['failed']['']}"
    left = dict.fromkeys((name for name in facts["tried"] if name not in done), why)
    beyond = [name for name in facts["trials"]["candidates"] if name not in {*facts["tried"], *done}]
    left |= dict.fromkeys(beyond, "others are expected to help more: raise trials.max_settings")
    failed = {name: why for name, why in facts["failed"].items() if name not in ran}
    groups = ((FAILED, failed), (REFUSED, facts["trials"]["refused"]), (LEFT_OUT, left))
    return [
        _Trial(settings=name, words=_words(name, facts), why=why, verdict=verdict)
        for verdict, given in groups
        for name, why in given.items()
        if name
    ]


def _words(side: str, facts: "Sidecar") -> str:
    known = {**facts["trials"]["candidates"], **facts.get("planned", {})}
    return " ".join(change_words([], [known.get(name, []) for name in side.split(TOGETHER)]))


def _compare_losses(facts: "ProcessFacts") -> list[float]:
    return [] if (loss := facts.get("loss")) is None else [loss]


def _output_distance(given: Sequence[float] | None, others: Sequence[float] | None) -> float:
    """Return the largest difference relative to the largest value; nan if values are missing or do not correspond."""
    one, other = np.array(given or [], dtype=float), np.array(others or [], dtype=float)
    if not len(one) or one.shape != other.shape or not np.abs(one).max():
        return float("nan")
    return float(np.abs(other - one).max() / np.abs(one).max())


def _expected_of(row: _Trial, known: "Mapping[str, ExpectedGain]") -> "ExpectedGain":
    """Return the expected gain of a trial's settings, whatever order they were combined in."""
    mine = {frozenset(row.settings.split(TOGETHER)), frozenset(row.words.split())}
    found = (one for name, one in known.items() if mine & {frozenset(name.split(TOGETHER)), frozenset(name.split())})
    nothing: ExpectedGain = {"gain": None, "low": None, "high": None, "verdict": "", "advised": False}
    return {**nothing, **next(found, nothing)}


def _outcome(row: reading.Row) -> str:
    """Return whether a gain was as expected, or advice slowed the cell down.

    It is empty without both gains, and for settings with which the cell computes something else.
    """
    if not row["expected"] > 0 or not row["gain"] > 0 or row["numerics"] == numerics.DIFFERENT:
        return ""
    # Certain or not, because slower settings are not repeated often enough to be certain.
    if row["advised"] and row["gain"] < 1 - trial_search.WORTH:
        return SLOWED
    near = abs(row["expected"] / row["gain"] - 1) <= NEAR
    # For the same reason, the interval of so few processes contains almost any gain.
    within = row["processes"] > trial_search.ROUNDS and row["gain_low"] <= row["expected"] <= row["gain_high"]
    return HIT if near or within else MISS


def main(paths: Sequence[str], expected: str | None, margin: float, csv: str) -> None:
    """Read the cells' trials and the expected gains, and write the table."""
    known = read_json(expected, {"cells": {}})["cells"] if expected else {}
    cells = [(cell_of(path), reading.read(path, REPEATED), read_facts(f"{path}.json", NEEDS)) for path in paths]
    write_csv(tabulate_trials(cells, known, margin), csv)
