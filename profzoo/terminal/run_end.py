"""Summarizes a finished run: first failure, new results, the report's place, and the largest expected gains."""

import csv
import json
import os
import re
import shlex
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import formatting, tools
from profzoo.cell import rerun_commands, schema, settings
from profzoo.cell.config_types import Config
from profzoo.collect import failures, version_changes
from profzoo.errors import ConfigError
from profzoo.formatting import format_count, format_seconds, join_first_names, list_names
from profzoo.plans import recipes
from profzoo.plans.plan import ADVISABLE, HELPS, NO_BOTTLENECKS
from profzoo.range_names import IMPORTED
from profzoo.records import derived_outputs, record
from profzoo.records.record import DamagedRecordError
from profzoo.terminal.run_plan import Progress, Task, cell_folder
from profzoo.verdicts import AMDAHL, ONLY_ITSELF, SIMULATED

# Reads rows of result tables for the last lines of a run, without pandas, whose import would delay them.


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table; empty if the file is missing or cannot be read."""
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, csv.Error):
        return []


def read_cell_verdicts(path: Path) -> list[dict[str, str]]:
    """Return profzoo's own verdicts on whole cells; path: the table of verdicts, which may be missing."""
    return [row for row in read_rows(path) if row.get("level") == "cell" and row.get("by", "profzoo") == "profzoo"]


# Lists the first verdict of each cell, for runs after which no gain is expected: what limits the cell, if known.

SHOWN = 3
UNDECIDED = "undecided"


def list_cell_verdicts(verdicts: Path) -> list[str]:
    """Return one sentence for each of the first SHOWN cells in a table of verdicts, whose file may be missing."""
    found: dict[tuple[str, str], str] = {}
    for row in read_cell_verdicts(verdicts):
        found.setdefault((row["model"], row["phase"]), _describe(row))
    return [f"{model} {phase}: {says}" for (model, phase), says in list(found.items())[:SHOWN]]


def _describe(row: dict[str, str]) -> str:
    """Describe a verdict with its next step; that of an undecided one begins with what could not be decided."""
    if row["verdict"] == UNDECIDED:
        return row["next_step"] or UNDECIDED
    return f"{row['verdict']}; {row['next_step']}" if row["next_step"] else row["verdict"]


# Lists the cells whose steps launch differently, with what that leaves unknown.

# So many cells are named, and the others counted.
DIFFERING_STEPS_SHOWN = 3


def list_differing_cells(path: Path) -> list[str]:
    """Return a sentence per cell whose steps differ; path: the table of repetition, which may be missing."""
    rows = read_rows(path)
    says = [f"{row['model']} {row['phase']}: {row['says']}" for row in rows[:DIFFERING_STEPS_SHOWN]]
    more = len(rows) - DIFFERING_STEPS_SHOWN
    rest = f"and {more} more cells, in {path}" if more > 1 else f"and another cell, in {path}"
    return [*says, *([rest] if more > 0 else [])]


# Lists the cells with the most time to gain: of each its best plan, or the verdict that saves more.

LARGEST_GAINS_SHOWN = 3
IN_OWN_CODE = "in your own code: "
# The most verdicts that are named as bottlenecks of a cell.
MOST = 3
CELLS, TRIALS = "cells.csv", "trials.csv"
# Verdict on settings that a trial found to be faster.
FASTER = "faster"
Cell = tuple[str, str]


@dataclass(frozen=True)
class LargestGain:
    """What a cell may gain, in words, and the command to type (empty without one); saved_ns: time per step.

    recipe: what its settings are in a program of the user's own, where the words name the settings. rows: the same as
    `profzoo advise` tells it, as names and what they say.
    """

    says: str
    command: str
    saved_ns: float
    unsteady: str
    recipe: str = ""
    rows: Sequence[tuple[str, str]] = ()


def list_largest_gains(verdicts: Path, plans: Path | None) -> list[LargestGain]:
    """Return what the SHOWN cells with the most time per step to gain can gain; cells with unsteady times come last.

    As on the page, what a program would have to change comes before a plan where it saves more by simulation. An upper
    limit comes before a plan that may not help. Of the verdicts on a cell, the first is told, which may explain others.

    verdicts, plans: paths of these tables, beside the table of cells; without plans, verdicts stand for them.
    """
    cells = {(row["model"], row["phase"]): row for row in read_rows(verdicts.with_name(CELLS))}
    steps = {cell: step for cell, row in cells.items() if (step := _number(row.get("step_ns")))}
    of_cells = read_cell_verdicts(verdicts)
    found, doubtful = dict[Cell, LargestGain](), set[Cell]()
    planning = list(read_rows(plans)) if plans else []
    for row in planning:
        cell, gain = (row["model"], row["phase"]), _number(row.get("gain"))
        # The first that may be advised is the best one.
        if cell in steps and cell not in found and gain and gain > 1 and row["outlook"] in ADVISABLE:
            mine = (one for one in of_cells if (one["model"], one["phase"]) == cell)
            bottlenecks = [one for one in mine if one["verdict"] not in NO_BOTTLENECKS]
            found[cell] = _of_plan(row, steps[cell], gain, bottlenecks, cells[cell].get("unsteady") or "")
            doubtful |= {cell} if row["outlook"] != HELPS else set()
    planned, first = dict(found), dict[Cell, LargestGain]()
    by_hand = {(row["model"], row["phase"]): row for row in planning if is_by_hand(row)}
    for row in of_cells:
        cell, gain = (row["model"], row["phase"]), _number(row.get("gain"))
        likely = cell in doubtful or row.get("method") == SIMULATED
        counts = cell not in planned or (likely and not row.get("settings"))
        if cell in steps and counts and gain and gain > 1:
            one = _of_verdict(row, steps[cell], gain, cells[cell].get("unsteady") or "", by_hand.get(cell))
            first.setdefault(cell, one)
            if cell not in planned or one.saved_ns > planned[cell].saved_ns:
                found[cell] = first[cell]
    return sorted(found.values(), key=lambda one: (bool(one.unsteady), -one.saved_ns))[:LARGEST_GAINS_SHOWN]


def _of_plan(
    row: dict[str, str], step: float, gain: float, bottlenecks: list[dict[str, str]], unsteady: str
) -> LargestGain:
    saved = step * (1 - 1 / gain)
    up_to = " up to" if row["method"] == AMDAHL else ""
    fast = f"{_how_fast(row, gain, bool(up_to))}, which saves{up_to} {formatting.part_of(saved, step)} per step"
    outlook = f"; {row['outlook']}" if row["outlook"] != HELPS else ""
    names = "; bottlenecks: " + ", ".join(one["verdict"] for one in bottlenecks[:MOST]) if bottlenecks else ""
    says = f"{row['model']} {row['phase']}: {_what(row)}, {fast}{names}{outlook}"
    recipe = "" if _leads_with_recipe(row) else row.get("recipe", "")
    rows = [*_change_rows(row), ("gain", _with_doubt(f"{fast}{outlook}", unsteady))]
    rows += [("why", describe_reason(one)) for one in bottlenecks[:1]]
    return LargestGain(_with_doubt(says, unsteady), row["command"], saved, unsteady, recipe, rows)


def _change_rows(row: dict[str, str]) -> list[tuple[str, str]]:
    """Return a row per line of PyTorch to write; without one, what settings change."""
    written = [part for part in (row.get("recipe") or "").split(recipes.BETWEEN) if part]
    return [("" if place else "change", what) for place, what in enumerate(written or [row.get("changes") or ""])]


def _leads_with_recipe(row: dict[str, str]) -> bool:
    """Whether a plan is told by the lines to write, as of a script, whose user knows no settings of profzoo."""
    return bool(row.get("recipe")) and rerun_commands.runs_script(row["command"])


def _what(row: dict[str, str]) -> str:
    return row["recipe"] if _leads_with_recipe(row) else row["settings"]


def _how_fast(row: dict[str, str], gain: float, at_most: bool) -> str:
    low, high = _number(row.get("gain_low")), _number(row.get("gain_high"))
    told, ends = formatting.gain_with_interval(gain, low, high)
    # An upper limit with any gain below it says all that its interval does.
    ends = "" if at_most and not (low and low > 1) else ends
    return f"{'at most' if at_most else 'expected to run'} {told} times as fast{f' ({ends})' if ends else ''}"


def is_by_hand(plan: dict[str, str]) -> bool:
    """Whether a plan that profzoo cannot apply from outside can be written into the script, which then makes it."""
    return plan.get("not_possible") == ONLY_ITSELF and bool(plan.get("recipe"))


def _of_verdict(
    row: dict[str, str], step: float, gain: float, unsteady: str, by_hand: dict[str, str] | None
) -> LargestGain:
    """by_hand: the plan of a script that only the script itself can make, which stands for a verdict that names it."""
    saved = step * (1 - 1 / gain)
    # Of what ran elsewhere, no setting is profzoo's.
    settings = row.get("settings") if row["phase"] != IMPORTED else ""
    advice = settings or row.get("next_step", "").partition(";")[0]
    up_to = "" if row.get("method") == SIMULATED else " up to"
    saves = f"saves{up_to} {formatting.part_of(saved, step)} per step"
    saves += f" {clock}" if (clock := formatting.describe_clock(row.get("timed_under") or "")) else ""
    says = f"{row['model']} {row['phase']}: {row['verdict']}, {saves}"
    recipe, what = recipes.find_verdict_recipe(row["verdict"]), name_next_step(row)
    # Without lines to write, the next step is what to change.
    change, why = (what or row["verdict"], row["verdict"])
    if recipe:
        change, why = f"{recipes.find_own_line(row['next_step'])}{recipe.short}", describe_reason(row)
    changes = [("change", change)]
    if by_hand and ONLY_ITSELF in row["next_step"]:
        # What comes after the reason is what to do without it.
        instead = what.partition("; ")[2]
        changes, why = _change_rows(by_hand), f"{row['verdict']}{instead and f'; instead: {instead}'}"
    gains = _with_doubt(f"{_how_fast(row, gain, bool(up_to))}, which {saves}", unsteady)
    rows = [*changes, ("gain", gains), ("why", why)]
    return LargestGain(_with_doubt(f"{says}: {advice}" if advice else says, unsteady), "", saved, unsteady, rows=rows)


def _with_doubt(says: str, unsteady: str) -> str:
    return f"{says} (unsteady times: {unsteady})" if unsteady else says


def _number(value: str | None) -> float | None:
    try:
        return float(value) if value else None
    except ValueError:
        return None


# Tells the first plan of a cell while counters are still to come, which may change it.

FIRST_PLANS = ".first-plan.csv"
MAY_CHANGE = "counters may change it"


def format_first_plan(progress: Progress, number: int, width: int, unable: Collection[str] = ()) -> list[str]:
    """Return lines with the best plan of a cell, of the finished job that made its first plans.

    There is no line if the job made none, if no plan is expected to help, or if no counters of the cell are to come in
    this run: then the end of the run tells as much. Where ncu has failed, no counters are to come.

    progress: the jobs of the run. number: the finished job's. unable: tools that cannot run here.
    """
    task = progress.tasks[number]
    paths = [Path(path) for path in task.outputs if path.endswith(FIRST_PLANS)]
    if not paths or not _awaits_counters(task.cell, progress, unable):
        return []
    for row in read_rows(paths[0]):
        gain = _number(row.get("gain"))
        if gain and gain > 1 and row["outlook"] in ADVISABLE:
            doubt = f"; {row['outlook']}" if row["outlook"] != HELPS else ""
            fast = _how_fast(row, gain, row["method"] == AMDAHL)
            says = f"{task.cell}: {_what(row)}, {fast}{doubt}; {MAY_CHANGE}"
            return formatting.format_rows([("early", says)], width)
    return []


def _awaits_counters(cell: str, progress: Progress, unable: Collection[str]) -> bool:
    counting, over = set(tools.that(tools.COUNT)).difference(unable), progress.took.keys() | progress.lost()
    return any(
        task.measures and task.cell == cell and task.what.split()[0] in counting and number not in over
        for number, task in progress.tasks.items()
    )


# Summarizes a finished measurement in a few words: time per step, GPU utilisation, rate.

WORK = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
# Larger traces are not read, because that takes too long for a summary.
LARGEST_BYTES = 200 << 20


def summarise_measurement(task: Task, took_s: float) -> list[str]:
    """Return the words that summarise a measurement, without unknown values; took_s: duration of the job in seconds."""
    sidecar = _read(Path(task.sidecar))
    tool = task.what.split()[0]
    found = []
    step = sidecar.get("step_ns")
    # A tool that counts runs launches alone, so its step takes many times as long.
    counting = tools.that(tools.COUNT)
    if tool in tools.names() and tool not in counting and isinstance(step, int | float) and step > 0:
        # A profiler lengthens steps, so that the same cell has another time without one.
        profiled = "" if tool in tools.that(tools.TIME) else " profiled"
        found.append(f"{formatting.format_ns(step)}/step{profiled}")
        trace = cell_folder(task) / f"{task.cell.split()[-1]}.{tool}.sqlite"
        if tool in tools.that(tools.TRACE) and (busy := _busy(trace)) is not None:
            found.append(f"{busy:.0%} busy".replace("%", " %"))
        elif tool in tools.that(tools.TIME) and sidecar.get("steps") and sidecar.get("items"):
            rate = sidecar["items"] / sidecar["steps"] / step * 1e9
            found.append(f"{rate:,.0f} samples/s" if rate >= 100 else f"{rate:.3g} samples/s")
    elif tool in counting and isinstance(launches := (sidecar.get("plan") or {}).get("launches"), int):
        found.append(f"{launches:,} launches")
    return found or [f"in {format_seconds(took_s)}"]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _busy(trace: Path) -> float | None:
    """Return the share of time in which the GPU works, between its first and last work in an nsys trace, 0 to 1."""
    try:
        if trace.stat().st_size > LARGEST_BYTES:
            return None
        database = sqlite3.connect(f"{trace.absolute().as_uri()}?mode=ro", uri=True)
    except (OSError, sqlite3.Error):
        return None
    try:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        parts = [f"SELECT start, end FROM {name}" for name in WORK if name in tables]
        spans = database.execute(f"{' UNION ALL '.join(parts)} ORDER BY start") if parts else iter(())
        return _covered(spans)
    except (sqlite3.Error, TypeError):
        # The file is not a database, or lacks times.
        return None
    finally:
        database.close()


def _covered(spans: Any) -> float | None:
    first = reached = None
    busy = 0
    for start, end in spans:
        if reached is None:
            first = reached = start
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    return busy / (reached - first) if reached is not None and reached > first else None


# Lists results of the selected cells that are missing or of other settings when nothing more is collected.

# Most cells to name of those that lack the same results, and most differences of settings to name.
LISTED, MOST_DIFFERENCES = 3, 3
TAKEN = "as collect=false takes results as they are"


def list_missing(missing: Iterable[Mapping[str, str]]) -> list[str]:
    """Return one line per tool and reason.

    missing: `model`, `phase`, `tool` and `why` of each missing result, from collect.completeness.

    >>> list_missing([{"model": "lstm", "phase": "train", "tool": "ncu", "why": "not measured yet"}])
    ['no results of ncu in 1 cell (lstm train): not measured yet']
    """
    found: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        of_tool = f"no results of {one['tool']}" if one["tool"] else "no results"
        found.setdefault((of_tool, one["why"]), []).append(f"{one['model']} {one['phase']}")
    return [
        f"{nothing} in {format_count(len(cells), 'cell')} ({join_first_names(cells, LISTED)}): {why}"
        for (nothing, why), cells in found.items()
    ]


def list_taken(
    cells: Iterable[tuple[str, str]], files: Mapping[str, Sequence[str]], results: Path, config: Config
) -> list[str]:
    """Return a line per difference between the settings that are asked for and those of the results that are taken.

    cells: measured cells. files: of each tool, patterns of its files for a cell.
    """
    found: dict[str, set[str]] = {}
    cells = list(cells)
    for model, phase in cells:
        for names in files.values():
            for path in (results / model / name.format(phase=phase) for name in names):
                if path.suffix != ".json" and path.is_file() and _lacks_record(path):
                    words = f"taken without knowing the settings, {TAKEN}: {path.name} has no record"
                    found.setdefault(words, set()).add(f"{model} {phase}")
    for one in version_changes.find_measured(results, {model for model, _ in cells}):
        if (one.model, one.phase) in cells and (told := list(_differences(one, config))):
            more = len(told) - MOST_DIFFERENCES
            words = "; ".join([*told[:MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])])
            found.setdefault(f"taken with other settings than asked for, {TAKEN}: {words}", set()).add(one.cell)
    order = [f"{model} {phase}" for model, phase in cells]
    return [
        f"{format_count(len(own), 'cell')} ({join_first_names(sorted(own, key=order.index), LISTED)}) "
        f"{'is' if len(own) == 1 else 'are'} {words}"
        for words, own in found.items()
    ]


def _lacks_record(path: Path) -> bool:
    try:
        return record.read_output_record(path) is None
    except (DamagedRecordError, OSError):
        # What reads the file reports this.
        return False


def _differences(one: version_changes.MeasuredFile, config: Config) -> Iterator[str]:
    """Yield how the settings of a measured file differ from those asked for; sides and trials have others anyway."""
    with suppress(OSError, ValueError, ConfigError):
        facts = json.loads(one.sidecar.read_text(encoding="utf-8"))
        if isinstance(facts.get("cell"), Mapping) and not {"sides", "trials"} & facts.keys():
            asked = settings.resolve_cell(one.model, one.phase, one.tool, config)
            yield from derived_outputs.compare_settings(facts["cell"], derived_outputs.normalize_json(asked))


# Files of each figure.
FORMATS = {"figures": 3}
# Table of how the launches of steps differ.
REPETITION = "repetition.csv"
# Rules that make the tables of the answer, and the page.
TABLES_RULE, VERDICTS_RULE, PLANS_RULE, PAGE_RULE = "tabulate", "tabulate_verdicts", "tabulate_plans", "write_report"
# The rule that prints trials.
TRIED_RULE = "trials"
ANSWERING = (TABLES_RULE, VERDICTS_RULE, PLANS_RULE, PAGE_RULE, TRIED_RULE)


def format_run_end(progress: Progress, seconds: float, answer: Sequence[str], width: int, ended: bool) -> list[str]:
    """Return the summary lines; empty if the run made nothing worth reporting.

    seconds: duration of the run; answer: lines of `format_answer`; width: characters that a line may have; ended:
    whether the user ended the run.
    """
    done = [progress.tasks[number] for number in progress.took]
    rows = [("failed", _first(progress))] if len(progress.failed) > 1 else []
    if new := _new(done):
        rows.append(("new", f"{new}; in {format_seconds(seconds)}"))
    folders = [path for task in done if task.rule == "convert_tables" for path in task.outputs]
    pages = [path for task in done if task.what == "pages" for path in task.outputs]
    told = "by you: finished results are kept, and the same command continues the run"
    ends = [("ended", told)] if ended else []
    # Paths and commands are not wrapped, so that they can be copied.
    found = [*(formatting.name_line("tables", f"{path}/") for path in folders), *name_pages(pages)]
    return [*formatting.format_rows(rows, width), *answer, *formatting.format_rows(ends, width), *found]


def format_answer(made: Mapping[str, Sequence[str]], width: int) -> list[str]:
    """Return lines on the largest gains, or on what limits the cells, and on steps that differ; empty without tables.

    made: outputs by rule, of jobs of a run that have finished or that are up to date.
    """
    verdicts, plans = (Path(made[rule][0]) if made.get(rule) else None for rule in (VERDICTS_RULE, PLANS_RULE))
    if (typed := os.environ.get(rerun_commands.ADVISED)) is not None:
        return _format_advice(verdicts, plans, typed, width) if verdicts and TRIED_RULE not in made else []
    gains = list_largest_gains(verdicts, plans) if verdicts else []
    limits = list_cell_verdicts(verdicts) if verdicts and not gains else []
    differing = [says for path in made.get(TABLES_RULE, ()) if Path(path).name == REPETITION
                 for says in list_differing_cells(Path(path))]  # fmt: skip
    expected = [
        part
        for place, gain in enumerate(gains)
        for part in (
            *formatting.format_rows([("" if place else "gains", gain.says)], width),
            *formatting.format_rows([("", f"{IN_OWN_CODE}{gain.recipe}")] if gain.recipe else [], width),
            *([formatting.name_line("", gain.command)] if gain.command else []),
        )
    ]
    of_cells = [("" if place else "verdict", says) for place, says in enumerate(limits)]
    differ = [("" if place else "differ", says) for place, says in enumerate(differing)]
    return [*formatting.format_rows(of_cells, width), *expected, *formatting.format_rows(differ, width)]


# Says of a script, under `profzoo advise`, what to change in it: in PyTorch's language, as its user knows no settings.

# Options of `profzoo advise`: one that tries changes, and one that times so many steps that most times are decided.
TRY, MORE_STEPS = f"{rerun_commands.TRY} 3m", "--window 100"
# A part of an advice in brackets that says the same by a setting, such as `workers: 1 or more`.
BRACKETS = re.compile(r" \(([^()]*)\)")
# A setting within a sentence, such as `compile: true` or `precision: bf16`, and what PyTorch calls one that is on.
WITHIN, CALLED = re.compile(r"\b([a-z_]+): (true|[a-z]+\d+)\b"), {"compile": "torch.compile"}


def describe_reason(row: dict[str, str]) -> str:
    """Describe a verdict with its next step, without the settings that do the same in profzoo."""
    says = name_next_step(row)
    return says if row["verdict"] == UNDECIDED and says else f"{row['verdict']}{says and f': {says}'}"


def name_next_step(row: dict[str, str]) -> str:
    """Return the next step that a verdict names, without the settings that do the same in profzoo.

    >>> name_next_step({"next_step": "load in parallel (workers: 1 or more), or try compile: true (time.window)"})
    'load in parallel, or try torch.compile'
    """
    known = schema.cell_properties()

    def keep(match: re.Match[str]) -> str:
        parts = [part for part in match[1].split(", ") if part.partition(":")[0].rpartition(".")[2] not in known]
        return f" ({', '.join(parts)})" if parts else ""

    def rename(match: re.Match[str]) -> str:
        key, value = match.groups()
        return match[0] if key not in known else CALLED.get(key, key) if value == "true" else value

    return WITHIN.sub(rename, BRACKETS.sub(keep, row["next_step"]))


def _format_advice(verdicts: Path, plans: Path | None, typed: str, width: int) -> list[str]:
    """Return lines on what to change in a script, why, and what to type; typed: the words behind `profzoo advise`."""
    gains = list_largest_gains(verdicts, plans)[:1]
    rows = list_measured_change(verdicts.with_name(TRIALS)) or [row for gain in gains for row in gain.rows]
    reasons = read_cell_verdicts(verdicts)[:1] if not rows else []
    rows += [("verdict", describe_reason(row)) for row in reasons]
    asks = MORE_STEPS.split()[0] not in shlex.split(typed) and any(
        row["verdict"] == UNDECIDED and _has_more_steps(verdicts.parents[1], row) for row in reasons
    )
    option = MORE_STEPS if asks else TRY
    # Not wrapped, so that it can be copied.
    return [*formatting.format_rows(rows, width), formatting.name_line("try", f"profzoo advise {option} {typed}")]


def _has_more_steps(results: Path, row: dict[str, str]) -> bool:
    """Whether a script may have more steps than were timed: the window of a short one is shorter than usual."""
    usual: int = schema.tool_schemas()[schema.BASELINE]["properties"]["window"]["default"]
    timed = _read(results / row["model"] / f"{row['phase']}.{schema.BASELINE}.csv.json").get("steps")
    return isinstance(timed, int) and timed >= usual


def list_measured_change(trials: Path) -> list[tuple[str, str]]:
    """Return rows on the fastest change that was tried; empty without one, or if the script was timed again since.

    trials: the table of trials, which may be missing.
    """
    rows = [row for row in read_rows(trials) if row["verdict"] == FASTER and not row["why"]]
    best = max(rows, key=lambda row: (row["chosen"] == "True", float(row["gain"])), default=None)
    if not best or not best.get("recipe"):
        return []
    timed = trials.parents[1] / best["model"] / f"{best['phase']}.{schema.BASELINE}.csv"
    if not timed.exists() or timed.stat().st_mtime > trials.stat().st_mtime:
        return []
    told, ends = formatting.gain_with_interval(*(float(best[name]) for name in ("gain", "gain_low", "gain_high")))
    times = f"{formatting.format_ns(float(best['base_ns']))} to {formatting.format_ns(float(best['ns']))} per step"
    return [*_change_rows(best), ("gain", f"measured: {told} times as fast ({ends}), {times}")]


def name_pages(pages: Iterable[str]) -> list[str]:
    """Return a line for each page.

    >>> name_pages(["results/report.html"])
    ['report  results/report.html']
    """
    return [formatting.name_line("report", str(_from_where_typed() / path)) for path in pages]


def _from_where_typed() -> Path:
    """Return the way to the working folder from the one above it in which the command was typed.

    Snakemake goes to the folder of --directory, and the shell's variable keeps the other.
    """
    with suppress(OSError, ValueError):
        return Path.cwd().relative_to(Path(os.environ.get("PWD") or os.curdir).resolve(strict=True))
    return Path()


def _first(progress: Progress) -> str:
    task = progress.tasks[progress.failed[0]]
    return f"first: {task.name}: {progress.said.get(progress.failed[0]) or failures.read_cause(task.logs)}"


def _new(done: Sequence[Task]) -> str:
    """Describe new results by tool and kind.

    >>> made = [Task("profile_nsys", "unet train", "nsys", True), Task("draw_figure", "", "figures", False, ("a",) * 3)]
    >>> _new(made)
    'unet train under nsys; 1 figure'
    """
    cells: dict[str, list[str]] = {}
    for task in done:
        if task.measures and task.what != "weights":
            cells.setdefault(task.what, []).append(task.cell)
    tools: dict[tuple[str, ...], list[str]] = {}
    for what, names in cells.items():
        tools.setdefault(tuple(sorted(names)), []).append(what)
    measured = [
        f"{names[0] if len(names) == 1 else format_count(len(names), 'cell')} under {list_names(under)}"
        for names, under in tools.items()
    ]
    parts = [", ".join(measured)] if measured else []
    for kind, thing in (("tables", "table"), ("figures", "figure")):
        number = sum(len(task.outputs) // FORMATS.get(kind, 1) for task in done if task.what == kind)
        parts += [format_count(number, thing)] if number else []
    return "; ".join(parts)
