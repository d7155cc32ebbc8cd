"""Executes the advice for the planted cases of a half: `snakemake trials` times each cell with what its plans advise.

python -m tests.planted.try_advice --half development --results FOLDER --plans TABLE --minutes 4 [--cases a,b]

TABLE is `tables/plans.csv` of derived results; the machine needs a GPU, and no profiler. The next call goes on.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.plans.plan import ADVISABLE
from profzoo.trials.trial_table import LEFT_OUT
from tests.planted import configuration, running
from tests.planted.cases import GROUPS, Case
from tests.planted.collect import choose_cases

# Settings that are tried on a case, the best expected, and processes of each.
SETTINGS, PROCESSES = 1, 2
# The longest time of a case: one that compiles for longer has no row.
BUDGET = "75s"
# Cases whose programs start up beside each other; one program at a time has the GPU.
SIDE_BY_SIDE = 4


def describe_trials(cases: Sequence[Case], results: Path, plans: Path, tiny: bool) -> dict[str, Any]:
    """Configuration of trials of the plans alone, without twins and profilers; tiny: of the size for a CPU."""
    given = configuration.given(cases, tiny)
    names = [case.name for case in cases]
    return given | {
        "models": names,
        "settings": {name: given["settings"][name] for name in names},
        "tool": ["time"],
        "trials": {"panel": [], "repeats": PROCESSES, "max_settings": SETTINGS, "budget": BUDGET, "plans": str(plans)},
        "pathvars": {"results": str(results)},
    }


def begin_trials(
    cases: Sequence[Case], folder: Path, plans: Path, tiny: bool, words: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Start the snakemake that tries the advice for these cases; what it says goes to `trials.log` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "trials.yaml"
    # JSON is YAML.
    file.write_text(json.dumps(describe_trials(cases, folder / "results", plans, tiny)))
    command = [sys.executable, "-m", "snakemake", "--nolock", *words, "--configfile", str(file)]
    with (folder / "trials.log").open("ab") as log:
        return subprocess.Popen(command, cwd=running.PROJECT, stdout=log, stderr=log, start_new_session=True)


def match_plans(trials: pd.DataFrame, plans: pd.DataFrame) -> pd.DataFrame:
    """Rows of trials that tried what a plan advises, with the plan's rank.

    trials, plans: tables/trials.csv and tables/plans.csv. A trial belongs to the plan of its cell with the same words.
    """
    advised = plans[plans["outlook"].isin(ADVISABLE)].assign(
        key=lambda table: [frozenset(str(words).split()) for words in table["settings"]]
    )
    tried = trials[trials["verdict"] != LEFT_OUT]
    tried = tried.assign(key=[frozenset(str(words).split()) for words in tried["words"]])
    return tried.merge(advised[["model", "phase", "key", "rank", "outlook"]], on=["model", "phase", "key"])


def summarise_advice(matched: pd.DataFrame) -> list[str]:
    """Sentences on what came of the advice; matched: as `match_plans` returns it."""
    ran = matched[matched["gain"].notna()]
    lines = [f"advised settings that were executed: {len(matched)}, of {matched['model'].nunique()} cases"]
    lines.append(f"that ran: {len(ran)}")
    lines += [f"  failed: {row.model} {row.words}: {row.why}" for row in matched[matched["gain"].isna()].itertuples()]
    if ran.empty:
        return lines
    errors = (ran["expected"] / ran["gain"] - 1).abs()
    # Of wide intervals there is only the upper end.
    inside = (~(ran["gain"] < ran["expected_low"]) & (ran["gain"] <= ran["expected_high"])).sum()
    lines.append(f"slower by more than 2 %: {(ran['gain'] < 0.98).sum()}")
    lines.append(
        f"median error of the expected gain: {np.median(errors):.0%}; within the interval: {inside} of {len(ran)}"
    )
    best = ran[ran["rank"] == ran.groupby("model")["rank"].transform("min")]
    middle = float(np.exp(np.log(best["gain"]).mean()))
    lines.append(f"geometric mean of the gains of the best plans: {middle:.2f} times, of {len(best)} cases")
    hopeful = float(np.exp(np.log(best["expected"] / best["gain"]).mean()))
    lines.append(f"geometric mean of expected over measured gains of the best plans: {hopeful:.2f}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted.try_advice")
    parser.add_argument("--half", choices=GROUPS, required=True)
    parser.add_argument("--results", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--plans", type=Path, required=True, metavar="TABLE")
    parser.add_argument("--minutes", type=float, default=5.0, help="when to end, counted from the start")
    parser.add_argument("--cases", default="", help="names, separated by commas; all of the half by default")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 60 * options.minutes - running.ENDING_S
    cases, folder = choose_cases(options.half, options.cases), options.results.absolute()
    words = ["--keep-going", f"-j{SIDE_BY_SIDE}", "--resources", f"gpu={SIDE_BY_SIDE}"]
    files = [f"{folder}/results/{case.name}/{case.phase}.trials.csv" for case in cases]
    plans, table = options.plans.absolute(), folder / "results/tables/trials.csv"
    code = running.wait_for(begin_trials(cases, folder, plans, options.tiny, [str(table), *words]), until)
    complete = [case for case, file in zip(cases, files, strict=True) if Path(file).is_file()]
    print(f"{len(complete)} of {len(cases)} cases were tried; exit code {code}")
    if complete:
        if running.wait_for(
            begin_trials(complete, folder, plans, options.tiny, [str(table), "-j1"]), until + 3 * running.ENDING_S
        ):
            raise SystemExit(running.last_lines(folder, "trials"))
        print("\n".join(summarise_advice(match_plans(pd.read_csv(table), pd.read_csv(plans)))))


if __name__ == "__main__":
    main()
