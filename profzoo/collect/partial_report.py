"""Makes a report of the existing measurements after a failed or ended run, so that no outdated page remains."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict

from profzoo import tools
from profzoo.cell import settings
from profzoo.collect import failures
from profzoo.collect.failures import Failure

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config


# Describes what a report lacks because of a failed job: a tool's measurement, or an optional file.

# Name parts (between dots) of files that a report's jobs add to a cell; the tools' own tables do not need them.
ADDED = {"coverage", "kernels", "layers", "operators", "layer-kernels", "owners", "ranks", "replay", "host"}
ADDED |= {"program", "timeline", "fusion", "fusion-kernels", "repetition", "step-launches", "tokens"}
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


# Finds which measurements of the selected cells exist when nothing more is collected, and why others are missing.

Cell = tuple[str, str]
# Variable that names the file of a run's failures, for the run that makes the partial report.
COMPLETENESS_WITHOUT = "PROFZOO_WITHOUT"
UNMADE = "not measured yet"
SAID = "profzoo: "


class ToldFailure(TypedDict):
    """A failure as one run hands it to another; weights: whether the failed job trained weights for inference."""

    model: str
    phase: str
    tool: str
    why: str
    weights: bool


def available_tools(
    cells: Iterable[Cell],
    kept: Mapping[str, Sequence[str]],
    results: Path,
    logs: Path,
    config: "Config",
    without: str | None = None,
) -> tuple[dict[Cell, frozenset[str]], list[dict[str, str]]]:
    """Available tools by cell, and rows of missing measurements with the keys model, phase, tool and why.

    A cell without its unprofiled baseline is missing as a whole: it gets one row, with an empty tool.

    Args:
        kept: patterns of the files that each tool, or the baseline, makes for a cell, by tool.
        without: file of failures of an ended run, as `write_failures` writes it.
    """
    noted = json.loads(Path(without).read_text()) if without else {"unmade": [], "failures": []}
    unmade = set(noted["unmade"])
    there, missing = {}, []
    for model, phase in cells:
        trained = settings.weights_source(model, phase, config)
        mine = [
            one
            for one in noted["failures"]
            if (one["model"], one["phase"]) == (trained if one["weights"] else model, phase)
        ]
        paths = {tool: [results / model / name.format(phase=phase) for name in names] for tool, names in kept.items()}
        whole = {tool for tool in kept if all(path.exists() and str(path) not in unmade for path in paths[tool])}
        have = frozenset(whole - {one["tool"] for one in mine})
        there[model, phase] = have
        for tool in kept if tools.BASELINE in have else [tools.BASELINE]:
            if tool not in have:
                weights = [logs / trained / "weights.log"] if trained else []
                why = _told(mine, tool) or _logged(logs / model, weights, phase, tool, config) or _gone(paths[tool])
                named = "" if tool == tools.BASELINE else tool
                missing.append({"model": model, "phase": phase, "tool": named, "why": why})
    return there, missing


def write_failures(
    failed: Iterable[Failure],
    unmade: Iterable[str],
    config: "Config",
    path: Path,
    results: str,
    unfound: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the failures of a run to a file, for the run that makes the partial report.

    results: the results folder; unfound: files that no rule can make, with the reasons.
    """
    told: list[ToldFailure] = []
    gone = dict(unfound)
    for one in failed:
        why = one.why
        files = blamed_files(one, why, results)
        model, measures = one.wildcards.get("model"), bool(one.job)
        if (added := [file for file in files if is_dispensable(file)]) and not (model and measures):
            gone |= dict.fromkeys(added, why)
        elif model:
            phase, tool = _about(one, config)
            told.append({"model": model, "phase": phase, "tool": tool, "why": why, "weights": _trains(one)})
        elif files and files != list(one.outputs):
            at = Path(files[0])
            phase, tool = at.name.split(".")[0], _tool_of(at.name, config)
            told.append({"model": at.parent.name, "phase": phase, "tool": tool, "why": why, "weights": False})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"unmade": sorted(unmade), "failures": told, "lost": gone}))


def _about(failure: Failure, config: "Config") -> tuple[str, str]:
    """Phase and tool of a failed job; jobs for weights count as the baseline of inference."""
    job = failure.described
    if _trains(failure):
        return "inference", tools.BASELINE
    if "sides" in job or "trials" in job or not failure.outputs:
        return failure.phase, ""
    return failure.phase, job.get("tool") or _tool_of(Path(failure.outputs[0]).name, config)


def _trains(failure: Failure) -> bool:
    return failure.described.get("tool") == "train"


def _tool_of(name: str, config: "Config") -> str:
    """Tool that a cell's file or log belongs to; empty for none."""
    parts = set(name.split(".")[1:])
    return next(
        (tool for tool, one in tools.files().items() if parts & set(one.name_parts(tools.settings_of(config, tool)))),
        "",
    )


def _told(told: Sequence[ToldFailure], tool: str) -> str:
    """Reason why a tool's measurement of a cell failed, or why a measurement that it may need failed."""
    by_itself = [one for one in told if not one["why"].startswith(failures.NOT_RUN)] or told
    mine = [one for one in told if one["tool"] == tool and one in by_itself]
    if mine:
        return mine[0]["why"]
    return f"not run, because {by_itself[0]['tool']} failed: {by_itself[0]['why']}" if by_itself else ""


def _logged(folder: Path, weights: Sequence[Path], phase: str, tool: str, config: "Config") -> str:
    """Reason of the last failure, from the end of the failed job's log; weights: logs of the training it needs."""
    names = [path for path in sorted(folder.glob(f"{phase}.*.log")) if _tool_of(path.name, config) == tool]
    for path in [*names, *weights]:
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        if lines and lines[-1].startswith(SAID):
            return failures.read_cause([str(path)])
    return ""


def _gone(paths: Sequence[Path]) -> str:
    """Text that names the missing file among several, or says that all are missing."""
    gone = [path.name for path in paths if not path.exists()]
    return f"{gone[0]} is missing" if 0 < len(gone) < len(paths) else UNMADE


# Files beside Snakemake's own: the failures, and the configuration of the report.
NOTED = Path(".snakemake/profzoo/salvage")
WITHOUT = "without.json"
# File of the failed parts of the report itself; the report is made again without them, at most this many times.
AGAIN = "again.json"
ATTEMPTS = 8


def rest_command(files: Sequence[str], snakefile: str, cores: int) -> list[str]:
    """Command line of a run that makes files in this folder, even while it is locked."""
    here = ["--nolock", "--executor", "local", "--workflow-profile", "none", "--rerun-incomplete", "--keep-going"]
    words = [*files, "--snakefile", snakefile, "--cores", str(cores), *here]
    return [sys.executable, "-m", "snakemake", *words, "--configfile", str(NOTED / "config.json")]


def make_apart(files: Sequence[str], config: "Config", run: tuple[str, int], log: Path) -> list[Failure]:
    """Make tables of single cells, each by its own rule, and return what failed in it.

    Args:
        files: paths of the tables, for which nothing has to be measured.
        config: configuration of the run.
        run: the run's Snakefile, and its number of parallel jobs.
        log: path of the log of this step.
    """
    _begin(config, log)
    write_failures([], [], config, NOTED / WITHOUT, "")
    try:
        _ran(rest_command(files, *run), log)
    except KeyboardInterrupt:
        return []
    return _read_again()


def make_partial_report(
    page: str,
    failed: Sequence[Failure],
    unmade: Sequence[str],
    config: "Config",
    run: tuple[str, int],
    log: Path,
    later: str,
) -> tuple[str, bool]:
    """Make the report without failed parts; returns lines about the result, and whether there is a report.

    Args:
        page: path of the report's page.
        unmade: paths that the run should have made and did not.
        config: configuration of the run.
        run: the run's Snakefile, and its number of parallel jobs.
        log: path of the log of this step.
        later: command that makes a report at any time, without collecting.
    """
    _begin({**config, "collect": False}, log)
    known, unfound, told = _settled(failed), dict[str, str](), ""
    for _ in range(ATTEMPTS):
        write_failures(known, unmade, config, NOTED / WITHOUT, str(Path(page).parent), unfound)
        try:
            code = _ran(rest_command([page], *run), log)
        except KeyboardInterrupt:
            return f"report  none, because you ended it: `{later}` makes one from the results so far", False
        if not code:
            more = {path: why for path, why in read_missing(str(NOTED / WITHOUT)).items() if path not in _own(failed)}
            without = (f"without {one['part']}: {one['why']}" for one in missing_rows(more))
            return "\n".join([f"report  {page}, from the results that succeeded", *without]), True
        found = _read_again()
        gone = parse_missing_inputs(failures.read_excerpt(log))
        if all(one in known for one in found) and gone.keys() <= unfound.keys():
            break
        known, unfound = [*known, *found], unfound | gone
        told = next((one.why for one in found), told)
    stands = f"; {page} is the report of an earlier run" if Path(page).exists() else ""
    why = f": {told}" if told else ""
    return f"report  none could be made from the results that succeeded{stands}: see {log}{why}", False


def read_lost() -> list[str]:
    """Read which files the last partial report had to do without."""
    return list(read_missing(str(NOTED / WITHOUT)))


def note_failures(failed: Sequence[Failure]) -> None:
    """Record the failures of the report's own jobs, for the run that started them."""
    (NOTED / AGAIN).write_text(json.dumps([asdict(one) for one in failed]))


def _settled(failed: Sequence[Failure]) -> list[Failure]:
    """Fix the failures' reasons as they are now: the next attempt overwrites the logs."""
    return [replace(one, batch=one.why) for one in failed]


def _begin(config: Mapping[str, object], log: Path) -> None:
    """Make the folders of the notes and of the log, and write the configuration of a run."""
    for folder in (NOTED, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    (NOTED / "config.json").write_text(json.dumps(config))


def _read_again() -> list[Failure]:
    """Read the failures of a run's own jobs, if it had any."""
    again = NOTED / AGAIN
    return _settled([Failure(**one) for one in json.loads(again.read_text())]) if again.exists() else []


def _ran(words: Sequence[str], log: Path) -> int:
    (NOTED / AGAIN).unlink(missing_ok=True)
    # Without a profile, which might run the jobs on other machines.
    environment = {name: value for name, value in os.environ.items() if name != "SNAKEMAKE_PROFILE"}
    with log.open("w") as file:
        environment[COMPLETENESS_WITHOUT] = str(NOTED / WITHOUT)
        return subprocess.run(words, stdout=file, stderr=file, env=environment, check=False).returncode


def _own(failed: Sequence[Failure]) -> set[str]:
    """Files that the main run should have made; the main run reports their failures itself."""
    return {path for one in failed for path in one.outputs}
