"""Prints how right the first verdicts on planted cases are, and how near expected gains are to measured ones.

python -m tests.benchmarks.planted_score FOLDER [FOLDER ...] [--half development] [--csv FILE]

after `python -m tests.planted.derive --half development --results FOLDER`. Each folder is scored by itself, such as one
of a run with counters and one without. The half that is held out and the sealed cases are printed only when they are
asked for by name: whoever develops rules may not look at them.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tests.planted import plan_scoring, scoring
from tests.planted.cases import DEVELOPMENT, GROUPS, find_cases

Scored = tuple[scoring.Scored, plan_scoring.BestPlan]


def score_folder(results: Path, half: str) -> list[Scored]:
    """The scores of the cases of a half that were measured, and of their best plans."""
    tables = results / "tables"
    verdicts, mapping = pd.read_csv(tables / "verdicts.csv"), scoring.read_mapping()
    plans = pd.read_csv(tables / "plans.csv") if (tables / "plans.csv").is_file() else NO_PLANS
    each = [(case, scoring.score_case(case, verdicts, mapping, results)) for case in find_cases(half)]
    return [(one, plan_scoring.score_plan(case, plans, verdicts)) for case, one in each if one is not None]


NO_PLANS = pd.DataFrame(columns=["model", "phase", "rank", "settings", "gain", "gain_low", "gain_high", "outlook"])


def tabulate(scored: Sequence[Scored]) -> pd.DataFrame:
    """One row per case, with numbers that are not rounded."""
    rows = [
        {
            "case": one.case.name, "half": one.case.half, "kind": one.case.kind, "verdict": one.verdict,
            "right": one.right, "second": one.second, "among_two": one.among_two,
            "causes": ", ".join(one.case.first_cause), "impossible_graph": one.impossible,
            "expected": one.expected, "expected_low": one.low, "expected_high": one.high,
            "measured": one.measured.gain, "measured_low": one.measured.low, "measured_high": one.measured.high,
            "error": one.error, "holds": one.holds, "width": one.width,
            "setting": one.case.setting, "plan": plan.settings, "plan_gain": plan.gain,
            "plan_low": plan.low, "plan_high": plan.high, "plan_error": plan.error(one.measured),
        }
        for one, plan in scored
    ]  # fmt: skip
    return pd.DataFrame(rows)


def print_folder(folder: Path, half: str) -> pd.DataFrame:
    """Print the table of a half and its summary, and return the table."""
    results = folder / "results"
    scored = score_folder(results, half)
    counted = "with counters" if (results / "tables" / "roofline.csv").is_file() else "without counters"
    print(f"{half}, {counted}: {len(scored)} of {len(find_cases(half))} cases were measured\n")
    table = tabulate(scored)
    print(table.round(2).to_string(index=False))
    print("", *scoring.summarise([one for one, _ in scored]), sep="\n")
    print(*plan_scoring.summarise_plans([(one.measured, plan) for one, plan in scored]), sep="\n")
    return table.assign(folder=str(folder), counters=counted == "with counters")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.planted_score")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--half", choices=GROUPS, default=DEVELOPMENT)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="where the scores of all cases go")
    options = parser.parse_args(arguments)
    tables = [print_folder(folder, options.half) for folder in options.folders]
    if options.csv:
        pd.concat(tables, ignore_index=True).to_csv(options.csv, index=False)


if __name__ == "__main__":
    main()
