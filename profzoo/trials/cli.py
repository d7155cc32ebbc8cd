"""Print trials: `python -m profzoo.trials.cli TABLE`, each cell's best settings and all settings tried."""

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from profzoo.cell import rerun_commands
from profzoo.compare import numerics
from profzoo.errors import DataError
from profzoo.formatting import ENDLESS, format_ns, format_rows, gain_with_interval, gains
from profzoo.io import csv_tables as reading
from profzoo.plans import recipes
from profzoo.statistics import speedup
from profzoo.tables.schemas import CELL
from profzoo.trials import trial_table
from profzoo.trials.trial_table import best_row

# How rows of the table ask for a larger budget.
MORE_TIME = "raise trials.budget"
# What became of an expected gain, by the outcome in the table.
OUTCOMES = {trial_table.HIT: "confirmed", trial_table.MISS: "not confirmed", trial_table.SLOWED: "slower instead"}


def format_trials(table: pd.DataFrame) -> list[str]:
    """Return lines: each cell with its fastest settings, and below it all settings that were tried."""
    said = []
    for (model, phase), rows in table.groupby(CELL, sort=False):
        if row := best_row(rows):
            gain, low, high = gains(row["gain"], row["gain_low"], row["gain_high"])
            settled = speedup.is_settled(row["gain_low"], row["gain_high"])
            unsettled = "" if settled else f", {speedup.NOT_SETTLED}"
            steps = f"{format_ns(row['base_ns'])} -> {format_ns(row['ns'])} per step, measured"
            said.append(
                f"{model} {phase} runs {gain} times as fast ({low} to {high}{unsettled}) with `{row['words']}`: {steps}"
            )
            said += [f"  in your own code: {row[trial_table.RECIPE]}"] if row.get(trial_table.RECIPE) else []
        else:
            said.append(f"{model} {phase}: no setting is clearly faster")
        said += _format_rows(rows.to_dict("records"))
    known = table[table["outcome"] != ""]
    if len(known):
        counts = (f"{count} {OUTCOMES[name]}" for name, count in known["outcome"].value_counts().items())
        said.append(f"expected gains ({len(known)}): {', '.join(counts)}")
    return said


def format_advice(table: pd.DataFrame, width: int) -> list[str]:
    """Return lines on the changes that `profzoo advise` tried on a script, whose user knows no settings of profzoo.

    table: of the script's trials. width: characters that a line may have.
    """
    rows, best = table.to_dict("records"), best_row(table)
    found = [] if best else [("change", "nothing: no change that was tried is clearly faster")]
    if best:
        parts = best[trial_table.RECIPE].split(recipes.BETWEEN)
        steps = f"{format_ns(best['base_ns'])} to {format_ns(best['ns'])} per step"
        found += [("" if place else "change", part) for place, part in enumerate(parts)]
        found.append(("gain", f"measured: {_describe_gain(best)}, {steps}; {numerics.describe_numerics(best)}"))
    measured = [row for row in rows if pd.notna(row["gain"]) and row["settings"] != (best or {}).get("settings")]
    found += [("" if place else "others", _describe_other(row)) for place, row in enumerate(measured)]
    failed = [row for row in rows if row["verdict"] == trial_table.FAILED]
    found += [("failed", f"{_name(row)}: {row['why']}") for row in failed]
    if left := [row["settings"] for row in rows if row["verdict"] == trial_table.LEFT_OUT]:
        found.append(("left", f"no time was left for {', '.join(left)}: give {rerun_commands.TRY} more"))
    return format_rows(found, width)


def _describe_other(row: dict) -> str:
    outcome = speedup.describe_outcome(row["verdict"], row["gain_low"], row["gain_high"])
    why = row["why"].replace(MORE_TIME, f"give {rerun_commands.TRY} more")
    parts = [f"{_name(row)}: {_describe_gain(row)}, {outcome}", why, numerics.describe_numerics(row)]
    return "; ".join(filter(None, parts))


def _describe_gain(row: Mapping[str, Any]) -> str:
    ends = (None if pd.isna(row[name]) else row[name] for name in ("gain_low", "gain_high"))
    told, between = gain_with_interval(row["gain"], *ends)
    return f"{told} times as fast{between and f' ({between})'}"


def _name(row: dict) -> str:
    """Return the lines of PyTorch for settings; their name where they have none."""
    return row[trial_table.RECIPE] or row["settings"]


def _format_rows(rows: Iterable[dict]) -> Iterator[str]:
    """Yield a line per setting that was measured, and one for all that have no gain for the same reason."""
    for unmeasured, same in itertools.groupby(rows, _describe_unmeasured):
        several = list(same)
        if unmeasured:
            yield f"  {', '.join(row['settings'] for row in several):<24} {unmeasured}"
        else:
            yield from (f"  {_format_trial(row)}" for row in several)


def _describe_unmeasured(row: dict) -> str:
    """Say why settings have no gain; empty if they have one."""
    if pd.notna(row["gain"]):
        return ""
    # What ran may have had nothing beside it.
    alone = "no gain, because the unchanged cell failed in every round with it" if row["processes"] else ""
    return ": ".join(filter(None, [row["verdict"], row["why"] or alone]))


def _format_trial(row: dict) -> str:
    ends = [row["gain_low"], row["gain_high"]] if pd.notna(row["gain_low"]) else []
    gain, *between = gains(row["gain"], *ends)
    interval = f" [{', '.join(between)}]" if between else ""
    expected = f", expected {gains(row['expected'])[0]}: {OUTCOMES[row['outcome']]}" if row["outcome"] else ""
    later = f", {row['why']}" if row["why"] else ""
    numbers = numerics.describe_numerics(row)
    outcome = speedup.describe_outcome(row["verdict"], row["gain_low"], row["gain_high"])
    said = f"{row['settings']:<24} {gain} times as fast{interval}  {outcome}{expected}{later}"
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
    # Not on a terminal itself, as its output goes to a log as well.
    width = int(os.environ.get("COLUMNS", ENDLESS))
    lines = format_advice(table, width) if rerun_commands.ADVISED in os.environ else format_trials(table)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
