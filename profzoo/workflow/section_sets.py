"""Names the inputs by which ncu's section sets are planned, profiled and exported: census, plans and probes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.cell.tool_types import NcuSettings
from profzoo.errors import run_checked
from profzoo.range_names import IMPORTED
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu import census as ncu_census
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.workflow.selection import Selection, Wildcards, file_of_cell

Files = str | Sequence[str]


@dataclass(frozen=True)
class SectionSets:
    """Inputs of the rules of ncu.

    wait_for_launches: checkpoint function of (model=, phase=); Snakemake exports the cell's launches, then asks again.
    ancient: Snakemake's function that marks inputs whose age is no reason to run a job. is_dry_run: function that tells
    whether this is a dry run; Snakemake knows it only after it has read the rules.
    """

    selection: Selection
    wait_for_launches: Callable[..., Any]
    ancient: Callable[[Files], Any]
    is_dry_run: Callable[[], bool]

    @property
    def ncu(self) -> NcuSettings:
        """The configuration of ncu."""
        return self.selection.config[TOOL]

    def set_of(self, wildcards: Wildcards) -> str:
        """Section set of a job; the default set if its rule has no set."""
        return wildcards.get("set", self.ncu["set"])

    def joined_sets(self, wildcards: Wildcards) -> list[str]:
        """Tables of the sets in the kernel table, if ncu is chosen: the default set and the census."""
        if TOOL not in self.selection.tools_of(wildcards.model, wildcards.phase):
            return []
        if wildcards.phase == IMPORTED:
            return [file_of_cell(wildcards, f".ncu.{self.ncu['set']}.csv")]
        # The census set too, if the trace of the cell lacks launches.
        also = [ncu.CENSUS] if self.why_trace_is_silent(wildcards) is not None else []
        names = dict.fromkeys([*ncu.launch_sets(self.ncu), *also])
        return [file_of_cell(wildcards, f".ncu.{name}.csv") for name in names]

    def census(self, wildcards: Wildcards) -> Files:
        """Table of every launch in the window, from which a sampled set takes the counts of launches."""
        # An imported report has no separate census.
        if wildcards.phase == IMPORTED:
            return []
        if self.profiled_launches(wildcards) in ("all", "ranges") or self.set_of(wildcards) == ncu.CENSUS:
            return []
        return file_of_cell(wildcards, ncu_census.census_csv_name(self.is_counted_by_ncu(wildcards)))

    def joined_census(self, wildcards: Wildcards) -> Files:
        """The census for the counters in the kernel table, if ncu is chosen."""
        chosen = TOOL in self.selection.tools_of(wildcards.model, wildcards.phase)
        return self.census(wildcards) if chosen else []

    def layer_inputs(self, wildcards: Wildcards) -> dict[str, Files]:
        """Files of ncu about a cell's launches, by the script's input names; empty if ncu is not chosen."""
        chosen = TOOL in self.selection.tools_of(wildcards.model, wildcards.phase)
        if not chosen or self.ncu["set"] not in ncu.launch_sets(self.ncu):
            return {}
        census = ncu_census.census_csv_name(self.is_counted_by_ncu(wildcards))
        return {"census": file_of_cell(wildcards, census), "sets": self.joined_sets(wildcards)}

    def why_trace_is_silent(self, wildcards: Wildcards) -> str | None:
        """Reason why a cell's trace lacks launches, so that ncu counts them itself; None if the trace has them all.

        The reason is known after the export of the launches. For copied results, the copied files decide. A dry run
        goes by the existing files: it exports nothing, and Snakemake cannot plan around unfinished checkpoints.
        """
        if self.ncu["census"] != ncu_census.AUTO:
            return None
        if self.selection.config["collect"] and not self.is_dry_run():
            self.wait_for_launches(model=wildcards.model, phase=wildcards.phase)
        sidecar = self.selection.path(file_of_cell(wildcards, ncu_census.TOLD))
        return run_checked(ncu_census.read_untold_reason, str(sidecar))

    def is_counted_by_ncu(self, wildcards: Wildcards) -> bool:
        """Whether ncu counts a cell's launches itself: it is configured so, or the cell's trace lacks launches."""
        return self.ncu["census"] == ncu_census.NCU or self.why_trace_is_silent(wildcards) is not None

    def profiled_launches(self, wildcards: Wildcards) -> str | int:
        """Launches that a section set profiles: `sampled`, `distinct`, `all`, the first N, or `ranges`."""
        if wildcards.phase == IMPORTED:
            return "all"
        name = self.set_of(wildcards)
        return "ranges" if ncu.measures_ranges(self.ncu, name) else ncu.launch_selection(self.ncu, name)

    def metrics(self, wildcards: Wildcards) -> Sequence[str]:
        """Metrics of a section set besides its sections."""
        return [] if wildcards.phase == IMPORTED else self.ncu["sets"][wildcards.set].get("metrics", [])

    def plan(self, wildcards: Wildcards) -> Files:
        """Plan of a section set; empty if it has none."""
        return file_of_cell(wildcards, f".{wildcards.set}.plan.json") if ncu.needs_plan(self.ncu, wildcards.set) else []

    def job_file(self, wildcards: Wildcards) -> Files:
        """What a section set that has a plan is collected by."""
        return file_of_cell(wildcards, f".{wildcards.set}.job.json") if ncu.needs_plan(self.ncu, wildcards.set) else []

    def plan_inputs(self, wildcards: Wildcards) -> list[str]:
        """Inputs of a plan: the launches, the sidecar of their report, and, if the trace should have had the launches
        but lacks them, the file with the reason."""
        by_ncu = self.is_counted_by_ncu(wildcards)
        why = [ncu_census.TOLD] if by_ncu and self.ncu["census"] == ncu_census.AUTO else []
        endings = [ncu_census.census_csv_name(by_ncu), ncu_census.census_sidecar_name(by_ncu), *why]
        return [file_of_cell(wildcards, ending) for ending in endings]

    def probe(self, wildcards: Wildcards) -> list[str]:
        """Page and sidecar of the probe of a section set's cost, if the cost of its metrics is not known yet."""
        if not ncu_costs.lacks_cost(self.ncu["sets"][wildcards.set], ncu_costs.load_costs()):
            return []
        name = f"<results>/peaks/{self.selection.config['gpu']}.{wildcards.set}"
        return [f"{name}.probe.csv", f"{name}.ncu-rep.json"]

    def until_profiled(self, files: Files | Callable[[Wildcards], Files]) -> Callable[[Wildcards], Any]:
        """Make an input function for files that count as changed only until the section set has been profiled.

        If a file is made again, Snakemake skips, in the same run, jobs that take it as `ancient` and all jobs after
        them (its issue 4166). A profiled set's plan is therefore made again only if its settings change; the profiling
        job depends on these settings too.
        """

        def found(wildcards: Wildcards) -> Any:
            paths = files(wildcards) if callable(files) else files
            home = self.selection.path(f"<results>/{wildcards.model}/{wildcards.phase}.{wildcards.set}")
            profiled = any(Path(f"{home}.{what}.json").exists() for what in ("ncu-rep", "ncu-ranks"))
            return self.ancient(paths) if profiled and paths else paths

        return found

    def sampled_sets(self) -> list[str]:
        """Section sets whose launches are chosen by a plan; ncu may run several times for them."""
        return [name for name in self.ncu["sets"] if ncu.samples_launches(self.ncu, name)]
