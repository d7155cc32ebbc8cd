"""Makes the tables of a recording in the folder beside the program, and says in PyTorch's words what to change."""

import html
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.catalog import csv_files
from profzoo.cli import new_folder
from profzoo.errors import CollectError, ConfigError
from profzoo.formatting import format_ns, gain_with_interval, part_of
from profzoo.json_types import TemplateVariables
from profzoo.plans.plan import HELPS
from profzoo.report import savings
from profzoo.script_harness import recorded_files

TABLES = ("cells", "verdicts", "plans")
# The most pieces of advice that are told.
MOST = 3
# Begins the line with the reason where a job of the workflow has failed.
WHY = "why "
COUNTERS = (
    "what threads wait for takes nsys, and counters of kernels take ncu; both have to start the program: "
    "python -m profzoo advise -- COMMAND"
)


@dataclass(frozen=True)
class Piece:
    """One thing to change; says: what it brings. parts: the lines to write (fields of a recipe). reasons: behind it."""

    says: str
    parts: Sequence[Mapping[str, str]]
    reasons: Sequence[str]


@dataclass(frozen=True)
class Advice:
    """What to change in a program that was recorded; print it, or let a notebook show it.

    title: what was recorded. pieces: what to change, the most time first. more: where there is more.
    """

    title: str
    pieces: Sequence[Piece]
    more: Sequence[str]

    def __str__(self) -> str:
        """Return the advice as lines of text."""
        lines = [self.title]
        for number, piece in enumerate(self.pieces, 1):
            lines += ["", f"{number}. {piece.says}"]
            for part in piece.parts:
                lines += [f"   {part['where']}:" if part["where"] else "   write:"]
                lines += [f"       {line}" for line in part["lines"].splitlines()]
                lines += [f"   {part['caveat']}"] if part["caveat"] else []
            lines += [f"   because: {reason}" for reason in piece.reasons]
        return "\n".join([*lines, "", *self.more])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the advice as a notebook shows it."""
        pieces = "".join(f"<li>{''.join(_piece_html(piece))}</li>" for piece in self.pieces)
        more = "".join(f"<p><small>{html.escape(line)}</small></p>" for line in self.more)
        return f"<p><b>{html.escape(self.title)}</b></p><ol>{pieces}</ol>{more}"


def _piece_html(piece: Piece) -> Iterator[str]:
    yield f"<p>{html.escape(piece.says)}</p>"
    for part in piece.parts:
        yield f"<p>{html.escape(part['where'])}</p>" if part["where"] else ""
        yield f"<pre>{html.escape(part['lines'])}</pre>"
        link = f' <a href="{html.escape(part["link"])}">PyTorch</a>' if part["link"] else ""
        yield f"<p><small>{html.escape(part['caveat'])}{link}</small></p>" if part["caveat"] or link else ""
    for reason in piece.reasons:
        yield f"<p><small>because: {html.escape(reason)}</small></p>"


def advise(folder: Path, name: str, lacks: str) -> Advice:
    """Make the tables of a recording, and return what they advise.

    folder: that which holds recordings. lacks: why there is no trace; empty if there is one.

    Raises:
        CollectError: the tables cannot be made.
    """
    facts = json.loads((recorded_files.place(name, folder) / recorded_files.FACTS).read_text())
    timed = facts.get("baseline", facts)
    rate = f", {facts['batch'] / timed['step_ns'] * 1e9:,.0f} samples/s" if facts["batch"] else ""
    title = f"{name}: {format_ns(timed['step_ns'])} per step{rate}, on {facts['device']}"
    if "baseline" not in facts:
        return Advice(title, [], [f"without a trace, nothing more is known: {lacks}"])
    configured = f"{recorded_files.RECORDED}/{name}/{recorded_files.CONFIGURED}"
    _run_workflow(folder, configured)
    files = {one: f"tables/{one}.csv" for one in TABLES}
    tables = {one: csv_files.read_file(folder / "results" / file, file)[0] for one, file in files.items()}
    known = savings.list_savings(tables)
    # First what settings do, of which there are lines to write.
    planned = [one for one in known if one.plan][:1]
    chosen = [*planned, *(one for one in savings.largest_savings(known, MOST) if one not in planned)][:MOST]
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    more = [f"page with tables and figures: cd {shown} && snakemake report --configfile {configured}"]
    more += [COUNTERS] if facts["device_type"] == "cuda" else []
    pieces = [_piece(one) for one in chosen]
    return Advice(title, pieces, [*([] if pieces else ["nothing was found that would save time"]), *more])


def _piece(one: savings.Saving) -> Piece:
    doubt = f" (unsteady times: {one.unsteady})" if one.unsteady else ""
    saved = part_of(one.saved_ns, one.step_ns)
    if plan := one.plan:
        told, ends = gain_with_interval(plan.gain, _known(plan.low), _known(plan.high))
        outlook = f"; {plan.outlook}" if plan.outlook != HELPS else ""
        says = f"{plan.changes}: {plan.how} {told} times as fast{f' ({ends})' if ends else ''}, saves {saved} per step"
        known: TemplateVariables = savings.recipe_context(plan.settings, plan.recipe, plan.typed)
        reasons = [f"{reason.verdict}: {reason.next_step}" for reason in plan.bottlenecks]
        return Piece(f"{says}{outlook}{doubt}", known["parts"], reasons)
    about = f" in {one.about}" if one.about else ""
    saves = f"saves up to {saved}" if one.how == savings.AT_MOST else f"saves {saved}"
    says = f"{one.verdict}{about}: {one.next_step}; {saves} per step{doubt}"
    return Piece(says, savings.verdict_recipe_context(one.verdict)["parts"], [])


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _run_workflow(folder: Path, configured: str) -> None:
    """Run the workflow in the folder, which gets what that takes."""
    try:
        new_folder.update_folder(folder)
    except (ConfigError, OSError) as error:
        raise CollectError(f"no tables of the recording can be made: {error}") from error
    targets = [f"results/tables/{one}.csv" for one in TABLES]
    command = [sys.executable, "-m", "snakemake", *targets, "--configfile", configured]
    variables = workflow_variables(os.environ)
    run = subprocess.run(
        command, cwd=folder, env=variables, check=False, capture_output=True, text=True, errors="replace"
    )
    if run.returncode:
        lines = [line.strip() for line in (run.stdout + run.stderr).splitlines() if line.strip()]
        why = next((line.removeprefix(WHY).strip() for line in lines if line.startswith(WHY)), (lines or [""])[-1])
        raise CollectError(f"no tables of the recording can be made: {why} (in {folder})")


def workflow_variables(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the environment of the workflow: with this Python's programs first, and the folder's own package."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{given.get('PATH', os.defpath)}"
    return {**given, "PYTHONPATH": new_folder.other_packages(given), "PATH": programs}
