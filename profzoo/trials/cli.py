"""Print trials: `python -m profzoo.trials.cli TABLE`, each cell's best settings and all settings tried."""

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

from profzoo.compare import numerics
from profzoo.errors import DataError
from profzoo.formatting import duration, gains
from profzoo.io import csv_tables as reading
from profzoo.statistics import speedup
from profzoo.tables.schemas import CELL
from profzoo.trials import trial_table
from profzoo.trials.trial_table import best_row

# What became of an expected gain, by the outcome in the table.
OUTCOMES = {
    trial_table.HIT: "confirmed",
    trial_table.MISS: "not confirmed",
    trial_table.SLOWED: "slower instead",
}


def format_trials(table: pd.DataFrame) -> list[str]:
    """Return lines: each cell with its fastest settings, and below it all settings that were tried."""
    said = []
    for (model, phase), rows in table.groupby(CELL, sort=False):
        if row := best_row(rows):
            gain, low, high = gains(row["gain"], row["gain_low"], row["gain_high"])
            settled = speedup.is_settled(row["gain_low"], row["gain_high"])
            unsettled = "" if settled else f", {speedup.NOT_SETTLED}"
            steps = f"{duration(row['base_ns'])} -> {duration(row['ns'])} per step, measured"
            said.append(
                f"{model} {phase} runs {gain} times as fast ({low} to {high}{unsettled}) with `{row['words']}`: {steps}"
            )
        else:
            said.append(f"{model} {phase}: no setting is clearly faster")
        said += [f"  {_format_trial(row)}" for row in rows.to_dict("records")]
    known = table[table["outcome"] != ""]
    if len(known):
        counts = known["outcome"].value_counts()
        said.append(
            f"expected gains ({len(known)}): "
            + ", ".join(f"{count} {OUTCOMES[name]}" for name, count in counts.items())
        )
    return said


def _format_trial(row: dict) -> str:
    lead = f"{row['settings']:<24} "
    if pd.isna(row["gain"]):
        # What ran may have had nothing beside it.
        alone = "no gain, because the unchanged cell failed in every round with it" if row["processes"] else ""
        return lead + ": ".join(filter(None, [row["verdict"], row["why"] or alone]))
    ends = [row["gain_low"], row["gain_high"]] if pd.notna(row["gain_low"]) else []
    gain, *between = gains(row["gain"], *ends)
    interval = f" [{', '.join(between)}]" if between else ""
    expected = f", expected {gains(row['expected'])[0]}: {OUTCOMES[row['outcome']]}" if row["outcome"] else ""
    later = f", {row['why']}" if row["why"] else ""
    numbers = numerics.describe_numerics(row)
    outcome = speedup.describe_outcome(row["verdict"], row["gain_low"], row["gain_high"])
    said = f"{lead}{gain} times as fast{interval}  {outcome}{expected}{later}"
    return "; ".join(filter(None, [said, numbers, row.get(trial_table.CLOCKS, "")]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.trials.cli", description=__doc__)
    parser.add_argument("table", metavar="CSV", help="the table of trials")
    options = parser.parse_args(arguments)
    try:
        table = reading.read(options.table, trial_table.TRIALS_TABLE)
    except DataError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    print("\n".join(format_trials(table)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
