"""Prints how right the advice of verdicts was, by the trials of the zoo.

python -m tests.benchmarks.verdict_score [results/tables/trials.csv]

after `snakemake trials --config tool=ncu,nsys 'ncu={set: roofline}'`. Rules were fitted to the first half of the zoo, and
the second is what they are scored on (profzoo/verdicts/halves.yaml).
"""

import sys

from profzoo.reading import tables as reading
from profzoo.trials import score, tabulate


def main(path: str = "results/tables/trials.csv") -> None:
    """Print the score by half and verdict, and every miss."""
    trials = reading.read(path, tabulate.TABLE)
    print(f"{(trials['processes'] > 0).sum()} trials on {len(trials.groupby(['model', 'phase']))} cells")
    print("| half | verdict | trials | median error | hits | slowed down |\n|---|---|---|---|---|---|")
    for row in score.score(trials).itertuples():
        shares = f"{row.median_error:.0%} | {row.hits:.0%} | {row.slowed_down:.0%}"
        print(f"| {row.half} | {row.verdict} | {row.trials} | {shares} |")
    print("\n| cell | settings | verdict | expected | measured | outcome |\n|---|---|---|---|---|---|")
    for row in score.misses(trials).itertuples():
        gains = f"{row.expected:.2f} | {row.gain:.2f} ({row.gain_low:.2f} to {row.gain_high:.2f})"
        print(f"| {row.model} {row.phase} | {row.settings} | {row.advised_by} | {gains} | {row.outcome} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
