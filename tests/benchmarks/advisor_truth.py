"""Writes what `profzoo score` holds claims against, and what profzoo itself claimed: profzoo/referee/truth.yaml.

python -m tests.benchmarks.advisor_truth [--write]

It is made from the tables of trials in tests/data/trials, from what planted programs and their twins took
(tests/data/planted), and from what is planted in them (tests/planted). Without `--write` it says whether the file is up
to date.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.plans.plan import ADVISABLE
from profzoo.referee import score
from profzoo.tables.schemas import CELL
from profzoo.tools.ncu import raw_page
from profzoo.trials.trial_table import FAILED, REFUSED
from profzoo.verdicts import advice_scores
from tests.benchmarks import advice_scoring, policy_scores, verdict_score
from tests.planted import scoring
from tests.planted.cases import CAUSES, all_cases

DATA = Path(__file__).parents[1] / "data"
PLANTED, DETAILS = DATA / "planted/h100.csv", DATA / "ncu/launch.details.csv.gz"
COMMAND = "python -m tests.benchmarks.advisor_truth --write"
HEADER = f"""# What `profzoo score` holds claims against. `{COMMAND}` makes it from recordings; do not edit it.
#
#   causes    what can be planted in a program, by name
#   verdicts  causes that each verdict of profzoo names
#   cells     one of trials has its settings with the measured gain and its ends, or null if they failed; a planted one
#             has the causes that are right, and how many times as fast its twin without the fault is, if it was timed
#   advice    what profzoo said: cell, change, expected gain, its ends, and rank; a change without a rank is no advice
#   kernel_rules
#             advice of Nsight Compute's own rules that is recorded: its cell, rules, launches and rows, and how many of
#             its estimates are of the whole launch
"""
# Digits of gains that were measured: their intervals are far wider.
DIGITS = 4


def list_trial_cells(trials: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the cells of trials with the measured gain of each of their settings; trials: the table of trials."""
    for (model, phase), rows in trials.groupby(CELL, sort=True):
        tried: dict[str, list[float | None] | None] = {}
        for row in rows.to_dict("records"):
            failed = row["verdict"] in (FAILED, REFUSED)
            if row["words"] and (failed or row["gain"] > 0):
                gains = None if failed else [_digits(row[name]) for name in ("gain", "gain_low", "gain_high")]
                tried.setdefault(score.name_settings(row["words"]), gains)
        yield {"cell": f"{model} {phase}", "half": advice_scoring.find_half(model), "tried": tried}


def list_trial_advice(trials: pd.DataFrame, told: advice_scores.Scores) -> Iterator[list[Any]]:
    """Yield what profzoo expected of settings, with the ends that users are told; plans that it advises have a rank."""
    for (model, phase), rows in trials.groupby(CELL, sort=True):
        (cell,) = policy_scores.list_tried_cells(rows)
        plans = [plan for plan in policy_scores.rank_tried(cell) if plan.outlook in ADVISABLE]
        ranks = {" ".join(sorted(plan.words)): rank for rank, plan in enumerate(plans, 1)}
        for row in rows[rows["expected"].notna()].drop_duplicates("words").to_dict("records"):
            whole = told.bound(advice_scores.find_kind(row["words"])).whole
            low = row["expected_low"] if whole else np.nan
            high = row["expected_high"] if whole else row["expected"] * (1 + row["bound_above"])
            words = score.name_settings(row["words"])
            yield [f"{model} {phase}", words, *map(_digits, (row["expected"], low, high)), ranks.get(words)]


def list_planted_cells(measured: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the planted programs; measured: their table of recordings."""
    known = measured.set_index("case")
    for case in all_cases():
        own: dict[str, Any] = {"cell": f"{case.name} {case.phase}", "half": case.half, "causes": list(case.first_cause)}
        if case.name in known.index:
            own["gain"] = [float(known.loc[case.name, name]) for name in ("measured", "measured_low", "measured_high")]
        yield own


def list_planted_advice(measured: pd.DataFrame) -> Iterator[list[Any]]:
    """Yield the first verdict of each planted program, with its gain if later rules name the same verdict first."""
    phases = {case.name: case.phase for case in all_cases()}
    for row in measured.to_dict("records"):
        same = row["first_look"] == row["verdict"]
        gains = [row[name] if same else None for name in ("expected", "expected_low", "expected_high")]
        yield [f"{row['case']} {phases[row['case']]}", row["first_look"], *gains, 1]


def count_ncu_advice(page: Path) -> dict[str, Any]:
    """Return what the rules of Nsight Compute say on a recorded details page."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as unpacked:
        Path(unpacked.name).write_bytes(gzip.decompress(page.read_bytes()))
        details = raw_page.read_details(unpacked.name)
    said = details[details["Rule Type"] == "OPT"]
    return {
        "cell": "mobilenetv2 train",
        "rules": sorted(said["Rule Name"].unique()),
        "launches": int(said["ID"].nunique()),
        "rows": len(said),
        "global": int(said["Estimated Speedup Type"].eq("global").sum()),
    }


def _digits(number: float) -> float | None:
    return float(f"{number:.{DIGITS}g}") if np.isfinite(number) else None


def write_truth(tables: Sequence[Path], planted: Path, details: Path) -> str:
    """Return the text of the file.

    tables: of trials. planted: table of planted programs that were timed. details: details page of ncu.
    """
    trials = pd.concat([verdict_score.read_trials(path) for path in tables], ignore_index=True)
    trials = advice_scoring.add_intervals(trials)
    bounds = advice_scoring.find_errors(trials)["bound_above"].reindex(trials.index)
    told = advice_scores.scores_on(trials["device"].iloc[0])
    measured = pd.read_csv(planted)
    content: Mapping[str, Any] = {
        "causes": CAUSES,
        "verdicts": {name: list(causes) for name, causes in scoring.read_mapping().items()},
        "cells": [*list_trial_cells(trials), *list_planted_cells(measured)],
        "advice": [*list_trial_advice(trials.assign(bound_above=bounds), told), *list_planted_advice(measured)],
        "kernel_rules": count_ncu_advice(details),
    }
    lines = [HEADER.rstrip()]
    for name, part in content.items():
        lines.append(f"{name}:")
        if isinstance(part, Mapping):
            lines += [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in part.items()]
        else:
            lines += [f"  - {json.dumps(one)}" for one in part]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.advisor_truth")
    parser.add_argument("--write", action="store_true", help=f"write {score.TRUTH.name}")
    options = parser.parse_args(arguments)
    text = write_truth(verdict_score.TABLES, PLANTED, DETAILS)
    if options.write:
        score.TRUTH.write_text(text, encoding="utf-8")
    same = score.TRUTH.is_file() and score.TRUTH.read_text(encoding="utf-8") == text
    print(f"{score.TRUTH.name} is {'up to date' if same else f'out of date: {COMMAND}'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
