"""Prints how right the advice of verdicts was, by the trials of the zoo, and records it where verdicts look it up.

python -m tests.benchmarks.verdict_score [results/tables/trials.csv ...] [--write]

after `snakemake trials --config tool=nsys`. Rules were fitted to the first half of the zoo, and the second is what they are
scored on (profzoo/verdicts/halves.yaml). `--write` makes both halves of profzoo/verdicts/scores.yaml anew from all tables
that are given; as intervals of expected gains follow from these, make the verdicts and the trials' table again then, and
write once more.
"""

import argparse
from collections.abc import Sequence

import pandas as pd

from profzoo.io import csv_tables as reading
from profzoo.tables.schemas import CELL
from profzoo.trials import trial_table
from profzoo.verdicts import advice_scores
from tests.benchmarks import advice_scoring, past_gains, policy_scores

# Each share beside what it is worth by.
SHARES = ("median_error", "constant_error", "error", "covered")
OF_ADVICE = ("helped", "slowed_down", "undecided")


def by_cell(trials: pd.DataFrame) -> list[str]:
    """Lines of a table of all cells, those of the held-out half first: expected gain and measured one, by settings."""
    known = trials[trials["outcome"] != ""]
    told = known["expected"].map("{:.2f}".format) + " / " + known["gain"].map("{:.2f}".format)
    told = told.mask(known["advised"], "**" + told + "**")
    half = known["model"].map(advice_scoring.find_half)
    table = known.assign(told=told, half=half).pivot_table("told", ["half", *CELL], "settings", aggfunc="first")
    table = table.fillna("").sort_index(level=[0, 1, 2], ascending=[False, True, True])
    lines = [f"| cell | {' | '.join(table)} |", "|---|" + "---|" * len(table.columns)]
    return lines + [
        f"| {' '.join(cell[1:])} | {' | '.join(row)} |" for cell, row in zip(table.index, table.values, strict=True)
    ]


def policy_lines(each: Sequence[pd.DataFrame]) -> list[str]:
    """Lines of what policies gain that choose each cell's settings, by series of trials and half of the zoo."""
    halves = (advice_scoring.FITTED, advice_scoring.HELD_OUT)
    cells = {
        (place, half): policy_scores.list_tried_cells(one[one["model"].map(advice_scoring.find_half) == half])
        for place, one in enumerate(each, 1)
        for half in halves
    }
    fitted = [cell for (_, half), own in cells.items() if half == advice_scoring.FITTED for cell in own]
    names = [
        "series",
        "half",
        "settings of each cell chosen by",
        "gain",
        "cells",
        "not tried",
        "nothing chosen",
        "failed",
    ]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for (place, half), own in cells.items():
        for one in policy_scores.score_policies(own, fitted) if own else ():
            gain = f"{one.gain:.2f}" if one.cells else ""
            lines.append(
                f"| {place} | {half} | {one.policy} | {gain} | {one.cells} | {one.unmeasured} | {one.unchanged} | "
                f"{one.failed} |"
            )
    lines += ["", f"| {advice_scoring.FITTED}, each cell corrected by the others | gain |", "|---|---|"]
    return lines + [f"| {one.policy} | {one.gain:.3f} |" for one in past_gains.cross_validate(fitted)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the score by half and verdict, and every miss; record the score, if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.verdict_score")
    parser.add_argument("tables", nargs="*", default=["results/tables/trials.csv"], metavar="CSV")
    parser.add_argument("--write", action="store_true", help="record the score in profzoo/verdicts/scores.yaml")
    options = parser.parse_args(arguments)
    each = [reading.read(path, trial_table.TRIALS_TABLE) for path in options.tables]
    trials = pd.concat(each, ignore_index=True)
    scored = advice_scoring.score_verdicts(trials)
    print(f"{(trials['processes'] > 0).sum()} trials on {len(trials.groupby(['model', 'phase']))} cells")
    names = ["half", "verdict", "trials", "median error", "one gain for all", "nine of ten", "in the interval"]
    names += ["its width", "without 1", "hits", "advised", "helped", "slower", "undecided"]
    print(f"| {' | '.join(names)} |", "|---" * len(names) + "|", sep="\n")
    for row in scored.to_dict("records"):
        shares, own = (" | ".join(f"{row[name]:.0%}" for name in names) for names in (SHARES, OF_ADVICE))
        interval = f"{row['width']:.2f} times | {row['tells']:.0%} | {row['hits']:.0%}"
        print(
            f"| {row['half']} | {row['verdict']} | {row['trials']} | {shares} | {interval} | {row['advised']} | {own} |"
        )
    print("", *policy_lines(each), sep="\n")
    print("\nexpected / measured, bold where advised\n", *by_cell(trials), sep="\n")
    print("\n| cell | settings | verdict | expected | measured | outcome |\n|---|---|---|---|---|---|")
    for row in advice_scoring.largest_misses(trials).itertuples():
        gains = f"{row.expected:.2f} | {row.gain:.2f} ({row.gain_low:.2f} to {row.gain_high:.2f})"
        print(f"| {row.model} {row.phase} | {row.settings} | {row.advised_by} | {gains} | {row.outcome} |")
    if options.write:
        advice_scores.FILE.write_text(
            advice_scoring.update_scores_text(scored, advice_scores.FILE.read_text(encoding="utf-8")), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
