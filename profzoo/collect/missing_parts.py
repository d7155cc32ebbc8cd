"""Describes what a report lacks because of a failed job: a tool's measurement, or an optional file."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from profzoo.collect.failure_summary import Failure

# Name parts (between dots) of files that a report's jobs add to a cell; the tools' own tables do not need them.
ADDED = {"coverage", "kernels", "layers", "operators", "layer-kernels", "owners", "ranks", "replay", "host"}
ADDED |= {"program", "timeline", "fusion", "fusion-kernels", "repetition", "step-launches"}
ADDED |= {"nsys-threads", "nsys-off-cpu", "nsys-samples", "nsys-idle", "nsys-streams", "nsys-copies"}
ADDED |= {"nsys-metrics", "nsys-metrics-steps", "nsys-memory", "ncu-source", "ncu-instances", "ncu-timeline"}
ADDED |= {"torch-collectives", "torch-skew", "torch-memory", "torch-snapshot", "tensorboard"}
# Such files by their whole name after the phase, as a section set may have the same name.
BY_WHOLE_NAME = {"ranges.csv", "occupancy.csv", "memory-chart.csv", "pipes.csv", "warp-states.csv"}
BY_WHOLE_NAME |= {"torch.streams.csv", "torch.cycles.csv", "torch.cycle-differences.csv", "nsys.trace.json.gz"}
# Folders of results besides the models' folders, each with a word for one of its files.
ACROSS = {"tables": "table", "figures": "figure", "peaks": "peaks of", "logs": "log", "benchmarks": "benchmark"}
CELL_FILE = re.compile(r"(?P<model>[^/\s'\"]+)/(?P<phase>train|inference|imported)\.(?P<rest>[\w.+-]*\w)")
# Snakemake's message about a job whose inputs no rule makes; each list ends at the next key.
UNMADE_INPUTS = re.compile(
    r"^Missing input files for rule \w+:\n\s+output: (?P<outputs>.+)\n(?:.*\n)*?\s+affected files:\n\s+(?P<input>\S+)",
    re.MULTILINE,
)


def named_file(why: str, results: str) -> str:
    """First file of a cell that a reason names; empty if it names none.

    >>> named_file("results/lstm@bf16/train.torch.csv: line 3 has 2 fields", "results")
    'results/lstm@bf16/train.torch.csv'
    >>> named_file("results/tables/cells.csv is empty", "results")
    ''
    """
    for place in re.finditer(rf"(?<![\w./-]){re.escape(results)}/", why):
        found = CELL_FILE.match(why, place.end())
        if found and found["model"] not in ACROSS:
            return f"{results}/{found[0]}"
    return ""


def blamed_files(failure: Failure, why: str, results: str) -> list[str]:
    """Files that a failure is reported for: the job's outputs or, for jobs over all cells, the faulty file."""
    at_fault = "" if "model" in failure.wildcards else named_file(why, results)
    return [at_fault] if at_fault else list(failure.outputs)


def is_dispensable(path: str) -> bool:
    """Whether a report can do without the file and still show all measurements.

    >>> is_dispensable("results/unet/train.kernels.csv"), is_dispensable("results/unet/train.nsys.csv")
    (True, False)
    >>> is_dispensable("results/unet/train.ranges.csv"), is_dispensable("results/unet/train.ncu.ranges.csv")
    (True, False)
    >>> is_dispensable("results/figures/steps.svg"), is_dispensable("results/peaks/here.csv")
    (True, True)
    """
    place = Path(path)
    _, _, rest = place.name.partition(".")
    return place.parent.name in ACROSS or rest in BY_WHOLE_NAME or bool(set(rest.split(".")) & ADDED)


def read_missing(noted: str | None) -> dict[str, str]:
    """Read, by path, why files are unavailable; noted: file that `completeness.write_failures` wrote, if any."""
    return json.loads(Path(noted).read_text())["lost"] if noted else {}


def parse_missing_inputs(printed: str) -> dict[str, str]:
    """Parse from Snakemake's output which files lack an input, and why.

    >>> printed = "Missing input files for rule a:\\n    output: x.csv, y.csv\\n    affected files:\\n        z.csv"
    >>> parse_missing_inputs(printed)
    {'x.csv': 'z.csv is missing', 'y.csv': 'z.csv is missing'}
    """
    return {
        path: f"{found['input']} is missing"
        for found in UNMADE_INPUTS.finditer(printed)
        for path in found["outputs"].split(", ")
    }


def missing_rows(files: Mapping[str, str]) -> list[dict[str, str]]:
    """Group missing files by reason: one row per reason, for a page and a terminal.

    >>> missing_rows({"results/figures/steps.svg": "no room", "results/figures/steps.png": "no room"})
    [{'part': 'figure steps', 'why': 'no room'}]
    """
    rows = {(_named(Path(path)), why) for path, why in files.items()}
    return [{"part": part, "why": why} for part, why in sorted(rows)]


def _named(path: Path) -> str:
    folder = path.parent.name
    if folder in ACROSS:
        return f"{ACROSS[folder]} {path.name.split('.')[0]}"
    phase, _, rest = path.name.partition(".")
    return f"{rest.split('.')[0] if not rest.endswith('coverage.csv') else 'coverage'} of {folder} {phase}"
