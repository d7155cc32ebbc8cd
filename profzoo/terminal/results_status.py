"""Lists the measurements that exist: when each was made, by which versions, and whether a run would make it again."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from profzoo import formatting
from profzoo.collect import version_changes
from profzoo.errors import suggest_nearest
from profzoo.records import output_status
from profzoo.records.output_status import OutputState, OutputVerdict
from profzoo.tools import tool_versions
from profzoo.workflow import snakemake_internals, up_to_date

# The text that the rule `status` prints, beside what Snakemake itself keeps. A status holds for its moment, so that it
# is not a table of the results, which others would read later.
PRINTED = Path(".snakemake/profzoo/status.txt")
# Lines that a dry run prints.
ONLY_PRINTS = ("`status` only prints: run it without -n",)
HEADING = ("cell", "tool", "made", "age", tool_versions.TORCH, "profiler", "profzoo", "state")
# Digits of a commit that are shown; a sign after them says that files differed from it.
COMMIT_DIGITS, CHANGED = 7, "+"
UNKNOWN = "-"
# State of what no rule of this configuration makes, and of what a run knows only after a checkpoint.
FOREIGN, WAITING = "not in this configuration", "unknown before a run"
STATES = {
    OutputState.SAME: "up to date",
    OutputState.OTHER: "out of date",
    OutputState.DAMAGED: "damaged",
    OutputState.UNKNOWN: "without a record",
    OutputState.ABSENT: "incomplete",
}
# Says in words what a run would make of a measured file.
Judge = Callable[[Path], str]


@dataclass(frozen=True)
class Measurement:
    """A measured file. began: start in UTC; torch, profiler: versions; commit: code of profzoo; state: see Judge."""

    cell: str
    tool: str
    began: datetime
    torch: str
    profiler: str
    commit: str
    state: str


def list_measurements(results: Path, models: Sequence[str], judge: Judge) -> list[Measurement]:
    """List the measured files under results/ by cell; models: folders of models, all if there are none."""
    found = []
    for one in version_changes.find_measured(results, models or None):
        with suppress(OSError, ValueError, KeyError):
            facts = json.loads(one.sidecar.read_text(encoding="utf-8"))
            versions = tool_versions.versions_of(facts)
            changed = CHANGED if facts.get("commit_changed") else ""
            found.append(
                Measurement(
                    one.cell,
                    _name_tool(one.tool, facts),
                    datetime.fromisoformat(facts["started"]),
                    versions.get(tool_versions.TORCH, UNKNOWN),
                    versions.get(one.tool, UNKNOWN) if one.tool != tool_versions.TORCH else UNKNOWN,
                    f"{facts['commit'][:COMMIT_DIGITS]}{changed}" if facts.get("commit") else UNKNOWN,
                    judge(one.sidecar),
                )
            )
    return sorted(found, key=lambda row: (row.cell, row.began))


def _name_tool(tool: str, facts: Mapping[str, Any]) -> str:
    """Tool with its section set, or with what the cell was run for.

    >>> _name_tool("ncu", {"set": "roofline"}), _name_tool("time", {"sides": {}}), _name_tool("time", {"trials": {}})
    ('ncu roofline', 'time, comparison', 'time, trials')
    """
    if "trials" in facts or "sides" in facts:
        return f"{tool}, {'trials' if 'trials' in facts else 'comparison'}"
    return f"{tool} {facts['set']}" if facts.get("set") else tool


def describe_state(verdict: OutputVerdict) -> str:
    """State of a measurement in words, with the reason if a run would make it again.

    >>> describe_state(OutputVerdict(OutputState.OTHER, ("cell.batch was 4 and is 7",)))
    'out of date: cell.batch was 4 and is 7'
    """
    words = STATES[verdict.state]
    told = verdict.state in (OutputState.OTHER, OutputState.DAMAGED)
    return f"{words}: {up_to_date.describe_reason(verdict)}" if told else words


def format_age(seconds: float) -> str:
    """Format how long ago something was, in one unit.

    >>> [format_age(age) for age in (5, 90, 7300, 200_000, 5_000_000)]
    ['5 s', '2 min', '2 h', '2 days', '58 days']
    """
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {unit}" if unit != "day" else formatting.format_count(count, unit)
    return f"{max(0, round(seconds))} s"


def format_status(found: Sequence[Measurement], results: Path, now: datetime) -> list[str]:
    """Format the measurements as a table, and their number by state in a last line."""
    lines = formatting.align([HEADING, *(_cells_of(one, now) for one in found)])
    of_state = Counter(one.state.partition(":")[0] for one in found)
    cells = formatting.format_count(len({one.cell for one in found}), "cell")
    counts = ", ".join(f"{count} {state}" for state, count in of_state.most_common())
    total = sum(path.lstat().st_size for path in results.rglob("*") if path.is_file())
    measured = f"{formatting.format_count(len(found), 'measurement')} of {cells}"
    return [*lines, "", f"{measured}: {counts}; {results} takes {formatting.size(total)}"]


def _cells_of(one: Measurement, now: datetime) -> tuple[str, ...]:
    made = one.began.astimezone().strftime("%Y-%m-%d %H:%M")
    age = format_age((now - one.began).total_seconds())
    return (one.cell, one.tool, made, age, one.torch, one.profiler, one.commit, one.state)


def explain_nothing(results: Path, models: Sequence[str]) -> str:
    """Say in one line that nothing was measured, and what was instead."""
    if not models:
        return f"{results} has no measurement yet: `snakemake -n` lists what a run would measure"
    there = sorted({one.model for one in version_changes.find_measured(results)})
    instead = suggest_nearest(models[0], there) if there else "no model was measured"
    return f"{results} has no measurement of {', '.join(models)}; {instead}"


def judge_file(dag: Any, root: Path, sidecar: Path) -> str:
    """Judge a measurement as a run would; dag: Snakemake's graph of any run. root: folder of the workflow."""
    jobs = snakemake_internals.jobs_making(dag, str(sidecar))
    recorded = chain.from_iterable(map(up_to_date.planned, filter(up_to_date.leaves_record, jobs)))
    known = [output_status.judge_outputs(planned, root) for planned in recorded]
    if not known:
        return WAITING if jobs else FOREIGN
    # Several rules may make the same file: it is up to date if it is what one of them makes.
    return describe_state(next((one for one in known if one.state is OutputState.SAME), known[0]))


def write_status(results: Path, models: Sequence[str], judge: Judge) -> None:
    """Write the status to the file that the rule `status` prints; models: as for `list_measurements`."""
    chosen = list(_with_variants(results, models))
    found = list_measurements(results, chosen, judge) if chosen or not models else []
    lines = format_status(found, results, datetime.now(UTC)) if found else [explain_nothing(results, models)]
    PRINTED.parent.mkdir(parents=True, exist_ok=True)
    PRINTED.write_text("\n".join([*lines, ""]))


def _with_variants(results: Path, models: Sequence[str]) -> Iterator[str]:
    """Folders of these models; a name without a variant stands for all variants."""
    for path in sorted(results.glob("*/")) if models else ():
        if path.name in models or path.name.partition("@")[0] in models:
            yield path.name
