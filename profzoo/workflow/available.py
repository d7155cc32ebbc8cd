"""Finds what there is of a selection where nothing more is collected, as of results that were copied."""

from dataclasses import replace
from pathlib import Path

from profzoo import tools
from profzoo.collect import completeness
from profzoo.workflow import patterns
from profzoo.workflow.comparison import Comparison
from profzoo.workflow.selection import Selection


def find_available(asked: Selection, logs: Path, without: str | None) -> tuple[Selection, list[dict[str, str]]]:
    """The selection without what is not there, and what that is: model, phase, tool and why.

    Where anything is collected, all that is selected will be there. Where there is nothing at all, the selection stays
    as it is, and Snakemake names the files that it takes.

    without: file of what a run that ended has failed to make.
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
