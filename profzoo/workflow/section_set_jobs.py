"""Writes the texts of ncu's jobs: section sets, their plans, and probes of their cost."""

import json
from dataclasses import dataclass
from typing import Any

from profzoo.cell.plan_types import PlanOptions
from profzoo.cell.process_count import process_count
from profzoo.cell.tool_types import NcuSettings
from profzoo.range_names import IMPORTED
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.workflow.jobs import Jobs
from profzoo.workflow.selection import Wildcards
from profzoo.workflow.user_errors import run_checked


@dataclass(frozen=True)
class SectionSetJobs:
    """Texts of ncu's jobs; methods that take Snakemake's wildcards serve as `params` of rules."""

    jobs: Jobs

    @property
    def ncu(self) -> NcuSettings:
        """The configuration of ncu."""
        return self.jobs.config[TOOL]

    def window(self, wildcards: Wildcards) -> int:
        """Number of steps in ncu's window; 1 if it is unknown, as for imported reports."""
        if wildcards.phase == IMPORTED:
            return 1
        return self.jobs.cell_settings(wildcards, TOOL)["window"]

    def describe_section_set(self, wildcards: Wildcards) -> str:
        """Job text of a section set's collection."""
        options = run_checked(ncu.options, self.section_set_config(wildcards), wildcards.set)
        cell = self.jobs.cell_settings(wildcards, TOOL)
        planned = self.plan_options(wildcards)
        return self.jobs.job_text(TOOL, cell, set=wildcards.set, options=options, planned=planned)

    def describe_probe(self, wildcards: Wildcards) -> str:
        """Job text of a section set's probe."""
        cell = {"device": self.jobs.config["device"]}
        job = {"tool": "probe", "cell": cell, **self.jobs.surroundings, "set": wildcards.set}
        return json.dumps(job | {"options": ncu_costs.probe_options(self.ncu, wildcards.set)}, sort_keys=True)

    def plan_options(self, wildcards: Wildcards) -> PlanOptions | dict[str, Any]:
        """Settings that a plan depends on; empty for a section set without a plan."""
        own, name = self.ncu, wildcards.set
        if not ncu.needs_plan(own, name):
            return {}
        given = self.section_set_config(wildcards)
        # ncu's options too, so that new code that chooses other launches from the same settings collects again.
        words = run_checked(ncu.selection_options, given, name)
        found: PlanOptions = {
            "kernel_name": given["kernel_name"],
            "launches": given["launches"],
            "replay": given["replay"],
            "budget": given["budget"],
            "sets": {name: own["sets"][name]},
            "selection": words,
        }
        if ncu.samples_launches(own, name):
            # Processes that communicate with each other run only once.
            one_run = process_count(self.jobs.cell_settings(wildcards, TOOL)) > 1
            return {**found, "error": given["error"], "one_run": one_run}
        return found

    def section_set_config(self, wildcards: Wildcards) -> NcuSettings:
        """The configuration's `ncu` for one section set of a cell."""
        return run_checked(ncu.adapt_to_cell, self.ncu, wildcards.set, self.jobs.cell_settings(wildcards, TOOL))
