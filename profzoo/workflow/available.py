"""Finds the existing measurements of a selection if nothing more is collected, for example in copied results."""

from dataclasses import replace
from pathlib import Path

from profzoo import tools
from profzoo.collect import completeness
from profzoo.workflow import patterns
from profzoo.workflow.comparison import Comparison
from profzoo.workflow.selection import Selection


def find_available(asked: Selection, logs: Path, without: str | None) -> tuple[Selection, list[dict[str, str]]]:
    """The selection without missing measurements, and a row (model, phase, tool, why) for each missing one.

    If the run collects, nothing counts as missing. If no measurement exists at all, the selection stays unchanged, and
    Snakemake names the missing files.

    without: file of the failures of an ended run.
    """
    if asked.config["collect"]:
        return asked, []
    required = patterns.required_files(asked.config, asked.tools)
    found, lacking = completeness.available_tools(
        asked.cells, required, Path(asked.results), logs, asked.config, without
    )
    lacking = [row for row in lacking if (row["tool"] or tools.BASELINE) in asked.available[row["model"], row["phase"]]]
    run = asked
    if any(tools.BASELINE in one for one in found.values()):
        chosen = [tool for tool in asked.tools if any(tool in one for one in found.values())]
        run = replace(asked, available=found, tools=chosen)
    return replace(run, compared=Comparison(run).measured_cells() or run.compared), lacking
