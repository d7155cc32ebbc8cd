"""Compares a pull request with its base: one comment, and an exit code that fails on what is decided alone."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError, DataError, say
from profzoo.referee import envelope, gate, history
from profzoo.referee.gate import Change, Entry, Judged
from profzoo.referee.states import find_commit

COMMAND = "profzoo gate"


def main(words: Sequence[str] | None = None) -> int:
    """Judge what the base's configuration names, and print or write the comment; returns the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("base", nargs="?", metavar="BASE", help="commit into which the change is to be merged")
    parser.add_argument("head", nargs="?", metavar="HEAD", help="commit of the change")
    parser.add_argument("--claims", type=Path, metavar="FILE.json", help="stored judgements in place of new ones")
    parser.add_argument("--parts", type=Path, metavar="CSV", help="tables/compare_parts.csv, which says what changed")
    parser.add_argument("--budget", type=float, default=60.0, metavar="SECONDS", help="for each program (default: 60)")
    parser.add_argument("--comment", type=Path, metavar="FILE", help="where the comment goes; printed by default")
    parser.add_argument("--answer", type=Path, metavar="FILE", help="where the answer goes as JSON")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON in place of the comment")
    options = parser.parse_args(words)
    if not options.claims and not options.head:
        parser.error("BASE and HEAD are needed, or --claims FILE.json")
    question = ["gate", *(word for word in (options.base, options.head) if word)]
    try:
        judged, change, notes = find_judged(options)
    except (ConfigError, DataError, OSError) as error:
        say(f"error: {error}")
        if options.json:
            print(envelope.format_json(envelope.fail(question, error)))
        return envelope.EXIT_CODES[envelope.ERROR]
    comment = gate.write_comment(judged, change, notes)
    answer = gate.to_envelope(question, judged, notes)
    for path, text in ((options.comment, comment), (options.answer, envelope.format_json(answer) + "\n")):
        if path:
            path.write_text(text, encoding="utf-8")
    if options.json:
        print(envelope.format_json(answer))
    elif not options.comment:
        print(comment, end="")
    say(gate.describe_result(judged))
    return envelope.EXIT_FAILED if gate.count_outcomes(judged)[0] else 0


def find_judged(options: argparse.Namespace) -> tuple[list[Judged], Change, list[str]]:
    """Return the judgements, the change that they are of, and notes for the comment."""
    here = Path.cwd()
    change, entries = Change("", ""), None
    notes: list[str] = []
    if options.head:
        base, head = (find_commit(word, here) for word in (options.base, options.head))
        before, after = (gate.read_configuration(commit, here) for commit in (base, head))
        change = Change(base, head, reconfigured=before != after)
        if before is None:
            why = f"The base has no {gate.CONFIGURATION}, and only what the base names is run: nothing was judged."
            return [], change, [why]
        entries = gate.parse_configuration(before, f"{gate.CONFIGURATION} of {options.base}")
    if options.claims:
        judged, notes = _read_stored(options.claims, entries)
    else:
        judged = gate.judge_all(entries or [], change, options.budget)
    return _add_parts(judged, options.parts), change, notes


def _read_stored(path: Path, entries: Sequence[Entry] | None) -> tuple[list[Judged], list[str]]:
    """Return stored judgements, decided as the base's configuration says; entries: its programs, None without one."""
    judged = gate.read_stored(_read_json(path), str(path))
    if entries is None:
        return [replace(one, fails=gate.decide(one, gate.FAILING)) for one in judged], []
    known = {entry.name: entry for entry in entries}
    kept = [replace(one, fails=gate.decide(one, known[one.name].fail_on)) for one in judged if one.name in known]
    found = {one.name for one in judged}
    lacking = [
        Judged(name, gate.NOT_JUDGED, why=f"{path.name} has no judgement of it") for name in known if name not in found
    ]
    left = len(judged) - len(kept)
    told = f"{left} stored judgements are of programs that {gate.CONFIGURATION} of the base does not name: left out."
    return kept + lacking, [told] if left else []


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error


def _add_parts(judged: Sequence[Judged], path: Path | None) -> list[Judged]:
    """Return the judgements with what changed, by the table of contributions of a comparison."""
    if not path:
        return list(judged)
    from profzoo.catalog import csv_files

    rows: list[dict[str, Any]] = csv_files.read_table("compare_parts", str(path)).to_dict("records")
    return [replace(one, parts=[*gate.list_parts(rows, one.name), *one.parts]) for one in judged]


# The history of the main branch.


def main_history(words: Sequence[str] | None = None) -> int:
    """Print the steps of the history of the main branch, draw it, or add to it; returns the exit code."""
    about = (
        "Prints where programs became slower or faster on the main branch, by machine, or adds what a gate measured."
    )
    parser = argparse.ArgumentParser(prog="profzoo history", description=about)
    parser.add_argument("action", nargs="?", choices=["add"], help="add the answer of a gate (default: print)")
    parser.add_argument("answer", nargs="?", type=Path, metavar="ANSWER.json", help="what profzoo gate --answer wrote")
    parser.add_argument("--file", type=Path, default=Path("profzoo-history.jsonl"), metavar="FILE.jsonl")
    parser.add_argument("--commit", default="HEAD", help="commit that was measured (default: HEAD)")
    parser.add_argument("--figure", type=Path, metavar="FILE.svg", help="draw the history")
    options = parser.parse_args(words)
    if (options.action == "add") != bool(options.answer):
        parser.error("write: profzoo history add ANSWER.json")
    try:
        return _add_to_history(options) if options.action else _print_history(options)
    except (ConfigError, DataError, OSError) as error:
        say(f"error: {error}")
        return envelope.EXIT_CODES[envelope.ERROR]


def _add_to_history(options: argparse.Namespace) -> int:
    document = _read_json(options.answer)
    gate.read_stored(document, str(options.answer))
    commit = find_commit(options.commit, Path.cwd())
    time = gate.read_commit_time(commit, Path.cwd())
    points = history.make_points(document["claims"], history.describe_machine(), commit, time)
    added = history.add_points(options.file, points)
    say(f"{options.file}: added {added} of {len(points)} measurements of {commit[: history.SHORT]}")
    return 0


def _print_history(options: argparse.Namespace) -> int:
    series = history.group_points(history.read_history(options.file))
    if not series:
        say(f"{options.file} has no measurement: profzoo history add ANSWER.json adds some")
    found = {key: history.find_steps([point.seconds for point in own]) for key, own in series.items()}
    for (machine, program), own in series.items():
        print(f"{envelope.quote(program)} on {machine} ({history.describe_facts(own[0].facts)}): {len(own)} points")
        print(*(f"  {line}" for line in history.describe_steps(own, found[machine, program]) or ["no step"]), sep="\n")
    if options.figure:
        _draw_history(series, found, options.figure)
    return 0


def _draw_history(
    series: Mapping[tuple[str, str], Sequence[history.Point]],
    found: Mapping[tuple[str, str], Sequence[history.Step]],
    path: Path,
) -> None:
    # Imported here, because nothing else needs matplotlib.
    import pandas as pd

    from profzoo.figures import history as figure
    from profzoo.figures import plots

    if path.suffix not in plots.VARYING:
        raise ConfigError(
            f"{path} is no picture that can be drawn: name a file that ends with {', '.join(plots.VARYING)}"
        )
    rows = [{"device": history.describe_facts(point.facts), **vars(point)} for own in series.values() for point in own]
    steps = [
        {"machine": machine, "program": program, **vars(step)}
        for (machine, program), own in found.items()
        for step in own
    ]
    names = ["machine", "program", "place", "first", "last", "ratio", "low", "high"]
    drawn = figure.draw(pd.DataFrame(rows), pd.DataFrame(steps, columns=names))
    plots.save_figure(drawn, [str(path)], "profzoo history")


if __name__ == "__main__":
    sys.exit(main())
