"""Times cells in several processes, one after the other, in the order given: `python -m profzoo.harness.rounds`.

What is compared runs in turn, so that what drifts on the machine falls on all sides alike. Each process is a command
that leaves its steps and facts where it is told to, and gets the words that are not known here; this joins them: a row
a step, and the facts of each process.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo.machine import entry

COLUMNS = ("side", "process")
# Of a shell, for a program that a signal ended.
SIGNALLED = 128


def joined(given: Sequence[tuple[str, Path]], to: Path) -> int:
    """Join the steps of processes, each of a side, into one CSV; how many there are."""
    count = 0
    with to.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for process, (side, path) in enumerate(given):
            with path.open(newline="") as steps:
                heading, *rows = csv.reader(steps)
            if not process:
                writer.writerow([*COLUMNS, *heading])
            writer.writerows([side, process, *row] for row in rows)
            count += len(rows)
    return count


def summary(sides: Sequence[str], facts: Sequence[Mapping[str, Any]], steps: int) -> dict[str, Any]:
    """What the sidecar says of all processes: the facts of the first, `steps` of all, `processes`: those of each."""
    each = [{"side": side, **own} for side, own in zip(sides, facts, strict=True)]
    return {**facts[0], "steps": steps, "items": sum(own.get("items", 0) for own in facts), "processes": each}


def unlike(sides: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> str | None:
    """What differs between processes of one side, of which all were told the same; None where nothing does."""
    first: dict[str, Mapping[str, Any]] = {}
    for side, own in zip(sides, facts, strict=True):
        before = first.setdefault(side, own)
        for key in ("batch", "device", "torch", "parameters"):
            if own.get(key) != before.get(key):
                return f"processes of one side differ in {key}: {before.get(key)} and {own.get(key)}"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, that of the first process that fails."""
    entry.begin()
    parser = argparse.ArgumentParser(prog="python -m profzoo.harness.rounds", description=__doc__)
    parser.add_argument(
        "--rounds", type=json.loads, required=True, help="JSON: pairs of a side and its command's words"
    )
    parser.add_argument("--steps", type=Path, required=True, help="where the steps of all go")
    parser.add_argument("--memory", type=Path, help="where the first process says what it holds in memory")
    parser.add_argument("--facts", type=Path, required=True, help="where the facts of all go")
    # What it does not know itself is for each process.
    options, more = parser.parse_known_args(arguments)
    sides, steps, facts = [side for side, _ in options.rounds], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, (side, words) in enumerate(options.rounds):
            own = Path(folder) / f"{number}.csv"
            told = own.with_suffix(".json")
            stock = ["--memory", str(options.memory)] if options.memory and not number else []
            code = subprocess.run(
                [*words, *more, "--steps", str(own), *stock, "--facts", str(told)], check=False
            ).returncode
            if code:
                print(f"process {number + 1} of {len(sides)}, of {side or 'the cell'}, failed", file=sys.stderr)
                return code if code > 0 else SIGNALLED - code
            steps.append((side, own))
            facts.append(json.loads(told.read_text()))
        if why := unlike(sides, facts):
            print(f"profzoo: {why}", file=sys.stderr)
            return 2
        found = summary(sides, facts, joined(steps, options.steps))
    options.facts.write_text(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
