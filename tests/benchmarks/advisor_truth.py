"""Writes what `profzoo score` holds claims against, and what profzoo itself claimed: profzoo/referee/truth.yaml.

python -m tests.benchmarks.advisor_truth [--write | --page FILE | --ncu FOLDER]

It is made from the tables of trials in tests/data/trials, from what planted programs and their twins took
(tests/data/planted), and from what is planted in them (tests/planted). Without `--write` it says whether the file is up
to date. `--page` writes docs/measured/advisors.md from it. `--ncu` prints NVIDIA's own example reports in a folder by the
ncu on PATH (tests/tools/install-ncu.sh sets both up), and writes what its rules say to tests/data/ncu/examples.csv.
"""

import argparse
import io
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.cli import score as cli
from profzoo.plans.plan import ADVISABLE
from profzoo.referee import score
from profzoo.referee.score import TRIALS, Advice, Score, Truth
from profzoo.tables.schemas import CELL
from profzoo.trials.trial_table import FAILED, REFUSED
from profzoo.verdicts import advice_scores
from tests.benchmarks import advice_scoring, policy_scores, verdict_score
from tests.planted import scoring
from tests.planted.cases import CAUSES, all_cases

DATA = Path(__file__).parents[1] / "data"
PLANTED, RULES = DATA / "planted/h100.csv", DATA / "ncu/examples.csv"
COMMAND = "python -m tests.benchmarks.advisor_truth --write"
HEADER = f"""# What `profzoo score` holds claims against. `{COMMAND}` makes it from recordings; do not edit it.
#
#   causes    what can be planted in a program, by name
#   verdicts  causes that each verdict of profzoo names
#   cells     one of trials has its settings with the measured gain and its ends, or null if they failed; a planted one
#             has the causes that are right, and how many times as fast its twin without the fault is, if it was timed
#   advice    what profzoo said: cell, change, expected gain, its ends, and rank; a change without a rank is no advice
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


def _digits(number: float) -> float | None:
    return float(f"{number:.{DIGITS}g}") if np.isfinite(number) else None


def write_truth(tables: Sequence[Path], planted: Path) -> str:
    """Return the text of the file.

    tables: of trials. planted: table of planted programs that were timed.
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
    }
    lines = [HEADER.rstrip()]
    for name, part in content.items():
        lines.append(f"{name}:")
        if isinstance(part, Mapping):
            lines += [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in part.items()]
        else:
            lines += [f"  - {json.dumps(one)}" for one in part]
    return "\n".join(lines) + "\n"


# The page docs/measured/advisors.md.

# Ends of the bins of expected gains.
BINS = (0.0, 1.0, 1.2, 2.0, math.inf)
PAGE = """# How right advisors are

Here you find how often the first advice of profzoo and of simple rules is right, and how wrong expected gains are.

`make docs` writes this page from `profzoo/referee/truth.yaml`; do not edit it. `profzoo score` holds claims of your own
advisor against the same measurements:

```bash
profzoo score CLAIMS.csv
```

The CSV file has a row for each change of each cell:

| cell | change | expected_gain | low | high | rank |
|---|---|---|---|---|---|
| bert train | graph=true | 1.85 | 1.67 | 2.05 | 1 |
| bert train | precision=bf16 | 0.96 | | | |
| vit_heads train | looped heads | 3.18 | 2.23 | 4.53 | 1 |

A cell is a model and a phase. A change is settings that trials tried, the cause that is planted in a program, a verdict
of profzoo, or `nothing`. A gain is how many times as fast the step gets, and may be left out. `low` and `high` are the
ends of its interval. `rank` is 1 for what to do first, and empty for a gain that is expected of a change that is not
advised; without this column, what gains most is first. `vit_heads-mended train` is the program without its fault, in
which the same advice is a false alarm.

## What is measured

{columns}

In brackets are 95 % intervals: models are drawn anew {draws:,} times, because two cells of a model are alike. If a
share is 0 or 1 in all models, its interval is the exact one of so many models (Clopper and Pearson, 1934).

"The same gain for all" and "always" are fitted to the other half of the models. "Random" draws settings that were
tried, or causes. "Best that was tried" knows the measurements. A gain of fewer cells than the table has is of those
where the first advice was tried: trials tried combinations only where single settings helped.
"""
NCU = """## Nsight Compute's own rules

NVIDIA ships reports of three programs with a known fault, and of their twins without it. Held against these, the rule
that promises most names the fault in {hits}. A promise is the share of a kernel's time that a cure saves at most; {held}
of {count} hold what the twin saves. On twins, whose fault is gone, rules still promise up to {most:.0%}
(`python -m tests.benchmarks.advisor_truth --ncu FOLDER`, ncu 2024.1).

{table}

These are faults of single kernels, at which the rules aim. profzoo has no verdict of a report of ncu alone, without the
times of steps.

## Who has no score

- **Other advisors.** A search of public code and pages in November 2026 found no output of another advisor about these
  cells. `profzoo score` takes its claims.
"""
# NVIDIA's programs with a fault, their twins, what the fault is, and the rules that name it.
PAIRS: Sequence[tuple[str, str, str, Sequence[str]]] = (
    ("sobelDouble", "sobelFloat", "arithmetic in fp64", ("SOLFPRoofline", "HighPipeUtilization")),
    ("transposeCoalesced", "transposeNoBankConflicts", "bank conflicts",
     ("UncoalescedSharedAccess", "SharedMemoryConflicts")),
    ("addConstDouble3", "addConstDouble", "uncoalesced access", ("UncoalescedGlobalAccess", "MemoryCacheAccessPattern")),
)  # fmt: skip


def print_rules(folder: Path) -> pd.DataFrame:
    """Return what rules promise of whole kernels in NVIDIA's example reports, the largest promise first."""
    found = []
    for report in sorted(folder.rglob("*.ncu-rep")):
        page = subprocess.run(
            ["ncu", "-i", str(report), "--page", "details", "--csv"], capture_output=True, text=True, check=True
        )
        rows = pd.read_csv(io.StringIO(page.stdout))
        (took,) = rows.loc[rows["Metric Name"] == "Duration", ["Metric Value", "Metric Unit"]].to_numpy().tolist()
        said = rows[(rows["Rule Type"] == "OPT") & (rows["Estimated Speedup Type"] == "global")]
        own = pd.DataFrame(
            {"rule": said["Rule Name"], "saved": (said["Estimated Speedup"].astype(float) / 100).round(6)}
        )
        ns = float(str(took[0]).replace(",", "")) * {"usecond": 1e3, "msecond": 1e6}[took[1]]
        found.append(own.sort_values("saved", ascending=False).assign(report=report.stem, ns=ns))
    return pd.concat(found)[["report", "ns", "rule", "saved"]]


def describe_rules(rules: pd.DataFrame) -> str:
    """Return the section on Nsight Compute's rules; rules: of NVIDIA's reports."""
    first, took = rules.groupby("report").first(), rules.groupby("report")["ns"].first()
    table = [["program", "its fault", "first rule", "promises", "the twin saves", "first rule on the twin", "promises"]]
    hits, held = [], 0
    for name, twin, fault, naming in PAIRS:
        saved, (own, other) = 1 - took[twin] / took[name], (first.loc[one] for one in (name, twin))
        hits.append((name, own["rule"] in naming))
        held += own["saved"] >= saved
        promised = [f"{one['saved']:.1%}" for one in (own, other)]
        table.append([name, fault, own["rule"], promised[0], f"{saved:.1%}", other["rule"], promised[1]])
    share = cli.format_estimate(score.estimate(hits, share=True), "hits", 0)
    most = max(first.loc[twin, "saved"] for _, twin, _, _ in PAIRS)
    shown = "\n".join(_as_markdown(table))
    return NCU.format(hits=share, held=held, count=len(hits), most=most, table=shown)


def tabulate_bins(claims: Sequence[Advice], truth: Truth, source: str, half: str) -> list[list[str]]:
    """Return the heading and the rows of a table of what came of expected gains, by their size."""
    table = [["expected gain", "claims", "measured over expected", "inside"]]
    pairs = list(score.pair_claims(score.by_cell(claims), truth.part(source, half), truth))
    for begin, end in itertools.pairwise(BINS):
        own = [pair for pair in pairs if begin <= pair[1].gain < end]
        ratio = score.estimate([(model, found.gain / claim.gain) for model, claim, found in own], median=True)
        inside = score.estimate([(model, score.holds_gain(claim, found)) for model, claim, found in own], share=True)
        size = f"{begin:g} to {end:g}" if end < math.inf else f"above {begin:g}"
        shown = cli.format_estimate(ratio, "gain", 0), cli.format_estimate(inside, "inside", 0)
        table.append([size, str(ratio.count), *shown])
    return table


def write_page(truth: Truth, rules: pd.DataFrame) -> str:
    """Return the page of advisors that are known, in Markdown; rules: what those of ncu say."""
    columns = _as_markdown([["column", "meaning"], *map(list, cli.MEASURES.values())])
    lines = [PAGE.format(draws=score.DRAWS, columns="\n".join(columns))]
    for part in cli.list_parts(truth.advice, truth):
        rows = score.score_all({cli.OWN: truth.advice}, truth, *part)
        if part[1] != "held_out":
            right = cli.format_estimate(rows[0].hits, "hits", 0)
            when = " by the rules that then met the other half" if rows[0].source == score.PLANTED else ""
            told = f"Of {rows[0].cells} {cli.TITLES[part]}, {right} have the right first advice{when}."
            lines += [f"{told} `profzoo score` prints their table.", ""]
            continue
        title = cli.TITLES[part]
        lines += [f"## {title[0].upper()}{title[1:]}", "", _explain(rows[0]), "", *_as_markdown(cli.tabulate(rows)), ""]
        alike = cli.compare_alike(cli.OWN, truth.advice, truth, *part)
        lines += [line for sentence in alike for line in (sentence, "")]
        if part == (TRIALS, "held_out"):
            bins = _as_markdown(tabulate_bins(truth.advice, truth, *part))
            lines += ["Of profzoo's expected gains, by their size:", "", *bins, ""]
    return "\n".join([*lines, describe_rules(rules)])


def _explain(own: Score) -> str:
    told = f"{own.cells} cells of {own.hits.models} models, on NVIDIA {'H200' if own.source == TRIALS else 'H100'}."
    if own.source == TRIALS:
        return f"{told} profzoo's intervals follow from the errors of other models."
    return (
        f"{told} profzoo's verdicts are those of the first look. Its gains are of later rules, where these name the\n"
        "same verdict. What was said of each sealed program was not recorded: [Planted\n"
        "bottlenecks](../guides/trials.md#planted-bottlenecks) has their score."
    )


def _as_markdown(table: Sequence[Sequence[str]]) -> list[str]:
    heading, *rows = (f"| {' | '.join(row)} |" for row in table)
    return [heading, "|---" * len(table[0]) + "|", *rows]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.advisor_truth")
    parser.add_argument("--write", action="store_true", help=f"write {score.TRUTH.name}")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page of advisors, and end")
    parser.add_argument(
        "--ncu", type=Path, metavar="FOLDER", help="note what ncu's rules say of the reports there, and end"
    )
    options = parser.parse_args(arguments)
    if options.page:
        options.page.write_text(write_page(score.load_truth(), pd.read_csv(RULES)), encoding="utf-8")
        return 0
    if options.ncu:
        print_rules(options.ncu).to_csv(RULES, index=False, lineterminator="\n")
        return 0
    text = write_truth(verdict_score.TABLES, PLANTED)
    if options.write:
        score.TRUTH.write_text(text, encoding="utf-8")
    same = score.TRUTH.is_file() and score.TRUTH.read_text(encoding="utf-8") == text
    print(f"{score.TRUTH.name} is {'up to date' if same else f'out of date: {COMMAND}'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
