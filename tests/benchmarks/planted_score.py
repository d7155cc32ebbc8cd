"""Prints how right the first verdicts on planted cases are, and how near expected gains are to measured ones.

python -m tests.benchmarks.planted_score FOLDER [--half development]

after `python -m tests.planted.derive --half development --results FOLDER`. The half that is held out is printed only
when it is asked for by name: whoever develops rules may not look at it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tests.planted import scoring
from tests.planted.cases import DEVELOPMENT, HALVES, find_cases

COLUMNS = (
    "case",
    "kind",
    "first verdict",
    "right",
    "causes",
    "impossible graph",
    "expected",
    "measured",
    "error",
    "in it",
)


def describe(one: scoring.Scored) -> str:
    """A line of the table about a case."""
    measured = one.measured
    expected = f"{one.expected:.2f} [{one.low:.2f}, {one.high:.2f}]" if one.expected == one.expected else ""
    words = (
        one.case.name,
        one.case.kind,
        one.verdict or "none",
        "yes" if one.right else "no",
        ", ".join(one.case.first_cause),
        "yes" if one.impossible else "",
        expected,
        f"{measured.gain:.2f} [{measured.low:.2f}, {measured.high:.2f}]",
        f"{one.error:.0%}" if expected else "",
        ("yes" if one.holds else "no") if expected else "",
    )
    return f"| {' | '.join(words)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a half, and its summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.planted_score")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--half", choices=HALVES, default=DEVELOPMENT)
    options = parser.parse_args(arguments)
    results = options.folder / "results"
    verdicts = pd.read_csv(results / "tables" / "verdicts.csv")
    mapping, cases = scoring.read_mapping(), find_cases(options.half)
    each = [scoring.score_case(case, verdicts, mapping, results) for case in cases]
    scored = [one for one in each if one is not None]
    print(f"{options.half}: {len(scored)} of {len(cases)} cases were measured\n")
    print(f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", *map(describe, scored), sep="\n")
    print("", *scoring.summarise(scored), sep="\n")


if __name__ == "__main__":
    main()
