"""Prints how right the advice of verdicts was, by the trials of the zoo, and records it where verdicts look it up.

python -m tests.benchmarks.verdict_score [results/tables/trials.csv ...] [--write]

By default, the tables are those of tests/data/trials. Rules were fitted to the first half of the zoo, and the second is
what they are scored on (profzoo/verdicts/halves.yaml). `--write` makes both halves of profzoo/verdicts/scores.yaml anew.
Gains are expected again first where the cells of a table are recorded beside it (tests/benchmarks/recorded_cells.py).
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from profzoo.io import csv_tables as reading
from profzoo.tables.schemas import CELL
from profzoo.trials import trial_table
from profzoo.verdicts import advice_scores
from tests.benchmarks import advice_scoring, policy_scores, recorded_cells

TABLES = sorted((Path(__file__).parents[1] / "data/trials").glob("*.csv"), key=lambda path: path.stem)


def tabulate_cells(trials: pd.DataFrame) -> pd.DataFrame:
    """Return expected and measured gains of all cells by settings, those of the held-out half first."""
    known = trials[trials["outcome"] != ""]
    told = known["expected"].map("{:.2f}".format) + " / " + known["gain"].map("{:.2f}".format)
    told = told.mask(known["advised"], "**" + told + "**")
    half = known["model"].map(advice_scoring.find_half)
    table = known.assign(told=told, half=half).pivot_table("told", ["half", *CELL], "settings", aggfunc="first")
    return table.fillna("").sort_index(level=[0, 1, 2], ascending=[False, True, True])


def interval_lines(scored: pd.DataFrame, told: advice_scores.Scores) -> list[str]:
    """Lines of the intervals of each kind of settings on the held-out half; told: scores, which say what users are told."""
    names = "settings", "trials", "models", "inside", "width", "error", "one gain for all", "below the upper end"
    lines = [f"| {' | '.join((*names, 'told', 'on another GPU'))} |", "|---" * (len(names) + 2) + "|"]
    for row in scored[scored["half"] == advice_scoring.HELD_OUT].to_dict("records"):
        shares = f"{row['covered']:.0%} | {row['width']:.2f} | {row['median_error']:.0%} | {row['constant_error']:.0%}"
        ends = " | ".join(
            describe_bound(advice_scores.scores_on(gpu, told).bound(row["kind"])) for gpu in (told.gpus[0], "")
        )
        lines.append(f"| {row['kind']} | {row['trials']} | {row['models']} | {shares} | {row['below']:.0%} | {ends} |")
    untried = describe_bound(told.bound(""))
    return [*lines, f"| never tried{' |' * (len(names))} {untried} | {untried} |"]


def describe_bound(bound: advice_scores.ErrorBound) -> str:
    """Say by which factors an interval differs from an expected gain.

    >>> describe_bound(advice_scores.ErrorBound(0.1, 0.1)), describe_bound(advice_scores.ErrorBound(0.5, 0.2, whole=False))
    ('1 / 1.10 to 1.10', 'at most 1.20')
    """
    return f"1 / {1 + bound.error:.2f} to {1 + bound.above:.2f}" if bound.whole else f"at most {1 + bound.above:.2f}"


def read_trials(path: Path) -> pd.DataFrame:
    """Read a table of trials; gains are expected again where its cells are recorded beside it."""
    trials = reading.read(path, trial_table.TRIALS_TABLE)
    folder = path.with_suffix("")
    return recorded_cells.expect_again(trials, folder) if folder.is_dir() else trials


def list_origins(paths: Sequence[Path], trials: pd.DataFrame) -> Mapping[str, Any]:
    """Return what scores.yaml says of where its scores come from, and the hopefulness of the plans that are chosen."""
    picks = policy_scores.list_picks(trials)
    chosen = picks[
        picks["half"].eq(advice_scoring.HELD_OUT) & picks["kind"].str.contains(advice_scores.TOGETHER, regex=False)
    ]
    return {
        "picked": round(policy_scores.mean_ratio(chosen), 4),
        "gpus": sorted(trials["device"].dropna().unique()) if "device" in trials else [],
        "kept": [path.name for path in paths if not path.with_suffix("").is_dir()],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the score by half and verdict, and every miss; record the score, if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.verdict_score")
    parser.add_argument("tables", nargs="*", type=Path, default=TABLES, metavar="CSV")
    parser.add_argument("--write", action="store_true", help="record the score in profzoo/verdicts/scores.yaml")
    options = parser.parse_args(arguments)
    series = pd.concat([read_trials(path) for path in options.tables], ignore_index=True)
    trials = advice_scoring.add_intervals(series)
    scored = advice_scoring.score_advice(trials)
    print(f"{(trials['processes'] > 0).sum()} trials on {len(trials.groupby(['model', 'phase']))} cells")
    print(scored.round(2).to_string(index=False))
    text, origins = advice_scores.FILE.read_text(encoding="utf-8"), list_origins(options.tables, trials)
    text = advice_scoring.update_scores_text(scored, text, origins)
    told = advice_scores.check_scores(yaml.safe_load(text))
    print("\nintervals by the errors of other models of the held-out half\n", *interval_lines(scored, told), sep="\n")
    print(*policy_scores.describe_picks(trials), sep="\n")
    print("\nexpected / measured, bold where advised\n", tabulate_cells(trials).to_string(), sep="\n")
    print(
        "\nmisses, the largest first\n", advice_scoring.largest_misses(trials).round(2).to_string(index=False), sep="\n"
    )
    if options.write:
        advice_scores.FILE.write_text(text, encoding="utf-8")
        for name in origins["kept"]:
            print(f"{name}: its expected gains are those of earlier code, as no traced steps are recorded beside it")


if __name__ == "__main__":
    main()
