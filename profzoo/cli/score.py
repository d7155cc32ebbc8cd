"""Prints how right an advisor is: claims of a CSV file against measured gains and planted faults."""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from profzoo.errors import say
from profzoo.formatting import align
from profzoo.referee import envelope, score
from profzoo.referee.score import PLANTED, TRIALS, Estimate, Score, Truth

OWN = "profzoo"
TITLES = {
    (TRIALS, "held_out"): "trials of models to which no rule of profzoo was fitted",
    (TRIALS, "fitted"): "trials of models that profzoo's rules were fitted to",
    (PLANTED, "sealed"): "planted programs that were sealed",
    (PLANTED, "held_out"): "planted programs that were held out",
    (PLANTED, "development"): "planted programs that profzoo's rules were developed on",
}
# Columns of a table, by the measures of a score, and what they mean; planted programs have no measured gain of other
# changes.
MEASURES = {
    "hits": (
        "first is right",
        "share of cells whose first advice is the setting that gained most, or names what is planted; `nothing` counts "
        "where no setting gained",
    ),
    "near": ("first or second", "the same of the first two"),
    "error": ("error", "median of \\|log(expected / measured)\\|: 0.1 is 10 %, in either direction"),
    "inside": ("inside", "share of intervals that hold the measured gain, or whose one end does"),
    "alarms": (
        "false alarms",
        f"share of the changes whose measured gain is certainly below {score.NO_GAIN:g} of which a gain of as much is "
        "promised, and whose interval, if there is one, excludes 1",
    ),
    "gain": ("gain", "geometric mean of the measured gains of the first advice; a cell without advice counts as 1"),
}
# Notes that are printed at most.
MOST = 5
COMMAND = "profzoo score"


def main(words: Sequence[str] | None = None) -> int:
    """Print the scores of a file of claims, or of profzoo's own advice; returns the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("claims", nargs="?", type=Path, metavar="CLAIMS.csv", help="by default, profzoo's own advice")
    parser.add_argument("--json", action="store_true", help="print one JSON document (profzoo/referee/envelope.yaml)")
    options = parser.parse_args(words)
    truth = score.load_truth()
    question = ("score", *([str(options.claims)] if options.claims else []))
    name, claims = OWN, list(truth.advice)
    notes: list[str] = []
    if options.claims:
        name = options.claims.name
        try:
            text = options.claims.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return _fail(question, [f"cannot be read: {error}"], options)
        claims, faults, notes = score.read_claims(text, truth)
        if faults:
            return _fail(question, faults, options)
    advisors = {name: claims, OWN: truth.advice}
    scored = {part: score.score_all(advisors, truth, *part) for part in list_parts(claims, truth)}
    answer = make_envelope(question, name, scored, notes)
    if options.json:
        print(envelope.format_json(answer))
        return answer.exit_code
    for (source, half), rows in scored.items():
        print(f"{TITLES[source, half]}: {rows[0].cells} cells, of which {rows[0].silent} have no advice of {name}\n")
        print("\n".join([*align(tabulate(rows)), *compare_alike(name, claims, truth, source, half), ""]))
    for note in [*notes[:MOST], *([f"{len(notes) - MOST} more claims cannot be scored"] if notes[MOST:] else [])]:
        say(note)
    return answer.exit_code


def _fail(question: Sequence[str], faults: Sequence[str], options: argparse.Namespace) -> int:
    """Print what is wrong with a file of claims, a line each."""
    where = str(options.claims)
    if options.json:
        problem = envelope.Problem(faults[0], where, "correct the file: docs/measured/advisors.md has an example")
        print(envelope.format_json(envelope.Envelope(question, error=problem, notes=faults[1:])))
    else:
        for fault in faults:
            say(f"error: {envelope.quote(f'{where}: {fault}', 10 * envelope.LONGEST)}")
    return envelope.EXIT_CODES[envelope.ERROR]


def list_parts(claims: Sequence[score.Advice], truth: Truth) -> list[tuple[str, str]]:
    """Return the parts that claims are about."""
    said = {claim.cell.replace(f"{score.TWIN} ", " ") for claim in claims}
    return [part for part in score.PARTS if any(cell.name in said for cell in truth.part(*part))]


def tabulate(rows: Sequence[Score]) -> list[list[str]]:
    """Return the heading and the rows of a table of scores, with the measures that any of them has."""
    shown = [name for name in MEASURES if any(getattr(one, name).count for one in rows)]
    table = [["settings chosen by" if rows[0].source == TRIALS else "advisor", *(MEASURES[name][0] for name in shown)]]
    return table + [
        [one.advisor, *(format_estimate(getattr(one, name), name, one.cells) for name in shown)] for one in rows
    ]


def format_estimate(one: Estimate, measure: str, cells: int) -> str:
    """Say a number with its interval, and of how many cells it is where these are not all.

    >>> format_estimate(Estimate(0.8, 0.65, 0.95, 20, 10), "hits", 20)
    '80% [65%, 95%]'
    >>> format_estimate(Estimate(3.25, 2.8, 4.1, 10, 10), "gain", 20)
    '3.25 [2.80, 4.10] of 10'
    """
    if not one.count:
        return ""
    form = "{:.2f}".format if measure in ("gain", "error") else "{:.0%}".format
    ends = "" if math.isnan(one.low) else f" [{form(one.low)}, {form(one.high)}]"
    few = measure == "alarms" or (measure == "gain" and one.count < cells)
    return f"{form(one.value)}{ends}{f' of {one.count}' if few else ''}"


def compare_alike(name: str, claims: Sequence[score.Advice], truth: Truth, source: str, half: str) -> Iterator[str]:
    """Yield a sentence for each policy whose settings were not tried on all cells, about those where they were."""
    policies = score.name_policies(truth, source, half) if source == TRIALS else {}
    for other, said in policies.items():
        own, found = score.compare_gains(claims, said, truth, source, half)
        if 1 < found.count < len(truth.part(source, half)):
            gains = " and ".join(format_estimate(one, "gain", 0) for one in (own, found))
            yield f"On the {found.count} cells where both were tried, {name} and {other} gain {gains}."


def make_envelope(
    question: Sequence[str], name: str, scored: dict[tuple[str, str], list[Score]], notes: Sequence[str]
) -> envelope.Envelope:
    """Return the scores of the first advisor as an answer for programs."""
    claims = [claim for rows in scored.values() for claim in _list_claims(rows)]
    silent = [
        envelope.Abstention(f"{source} {half}", f"{name} says nothing about any of these cells")
        for source, half in score.PARTS
        if (source, half) not in scored
    ]
    return envelope.Envelope(question, claims, silent, notes=tuple(notes))


def _list_claims(rows: Sequence[Score]) -> Iterator[envelope.Claim]:
    own, *others = rows
    for measure, (title, _) in MEASURES.items():
        one: Estimate = getattr(own, measure)
        if not one.count:
            continue
        beside = [
            f"{other.advisor} {format_estimate(found, measure, other.cells)}"
            for other in others
            if (found := getattr(other, measure)).count
        ]
        told = not math.isnan(one.low)
        yield envelope.Claim(
            id=f"score.{own.source}.{own.half}.{measure}",
            kind="comparison",
            subject=f"{own.source} {own.half}",
            outcome=title,
            says=f"{own.advisor}: {title} {format_estimate(one, measure, own.cells)}; beside it {'; '.join(beside)}",
            value=one.value,
            low=one.low,
            high=one.high,
            unit="times" if measure == "gain" else "log ratio" if measure == "error" else "share",
            confidence=(score.ENDS[1] - score.ENDS[0]) / 100 if told else None,
            evidence=(envelope.Evidence(f"profzoo/referee/{score.TRUTH.name}", command=COMMAND),),
        )
