"""Names what ncu's section sets are planned, profiled and exported by: the census of launches, plans, and probes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.cell.tool_types import NcuSettings
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu import census as ncu_census
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.workflow.selection import Selection, Wildcards, file_of_cell
from profzoo.workflow.user_errors import run_checked

Files = str | Sequence[str]


@dataclass(frozen=True)
class SectionSets:
    """Inputs of the rules of ncu.

    wait_for_launches: has Snakemake export the launches of a cell (model=, phase=), which is a checkpoint, before it
    asks again. ancient: Snakemake's, which marks inputs whose age is no reason to run a job. is_dry_run: whether the
    run only says what it would do, which Snakemake knows once it has read the rules.
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
        """The section set of a job; the default one where its rule has none."""
        return wildcards.get("set", self.ncu["set"])

    def joined_sets(self, wildcards: Wildcards) -> list[str]:
        """The tables of the sets whose counters go into the kernel table, where ncu is chosen: default and census."""
        if TOOL not in self.selection.tools_of(wildcards.model, wildcards.phase):
            return []
        # Of what has no census of its own, but where its trace tells no launches.
        also = [ncu.CENSUS] if self.why_trace_is_silent(wildcards) is not None else []
        names = dict.fromkeys([*ncu.launch_sets(self.ncu), *also])
        return [file_of_cell(wildcards, f".ncu.{name}.csv") for name in names]

    def census(self, wildcards: Wildcards) -> Files:
        """Every launch of the window, from which a set that takes some of them has its counts."""
        if self.profiled_launches(wildcards) in ("all", "ranges") or self.set_of(wildcards) == ncu.CENSUS:
            return []
        return file_of_cell(wildcards, ncu_census.census_csv_name(self.is_counted_by_ncu(wildcards)))

    def joined_census(self, wildcards: Wildcards) -> Files:
        """The census for the counters that go into the kernel table, where ncu is chosen."""
        chosen = TOOL in self.selection.tools_of(wildcards.model, wildcards.phase)
        return self.census(wildcards) if chosen else []

    def layer_inputs(self, wildcards: Wildcards) -> dict[str, Files]:
        """What ncu says of a cell's launches, by the names of a script's inputs; nothing where it is not chosen."""
        chosen = TOOL in self.selection.tools_of(wildcards.model, wildcards.phase)
        if not chosen or self.ncu["set"] not in ncu.launch_sets(self.ncu):
            return {}
        census = ncu_census.census_csv_name(self.is_counted_by_ncu(wildcards))
        return {"census": file_of_cell(wildcards, census), "sets": self.joined_sets(wildcards)}

    def why_trace_is_silent(self, wildcards: Wildcards) -> str | None:
        """Why the trace of a cell does not tell its launches, so that ncu counts them itself; None where it does.

        That is known once they were exported. Of copied results, what came along says it. A dry run goes by what there
        is: nothing is ever exported in it, and Snakemake cannot plan several cells with checkpoints that never end.
        """
        if self.ncu["census"] != ncu_census.AUTO:
            return None
        if self.selection.config["collect"] and not self.is_dry_run():
            self.wait_for_launches(model=wildcards.model, phase=wildcards.phase)
        sidecar = self.selection.path(file_of_cell(wildcards, ncu_census.TOLD))
        return run_checked(ncu_census.read_untold_reason, str(sidecar))

    def is_counted_by_ncu(self, wildcards: Wildcards) -> bool:
        """Whether ncu counts the launches of a cell itself, as configured or as its trace does not tell them."""
        return self.ncu["census"] == ncu_census.NCU or self.why_trace_is_silent(wildcards) is not None

    def profiled_launches(self, wildcards: Wildcards) -> str | int:
        """What a section set profiles: `sampled` launches, `distinct` ones, `all`, the first N, or `ranges`."""
        name = self.set_of(wildcards)
        return "ranges" if ncu.measures_ranges(self.ncu, name) else ncu.launch_selection(self.ncu, name)

    def metrics(self, wildcards: Wildcards) -> Sequence[str]:
        """The metrics that a section set names besides sections."""
        return self.ncu["sets"][wildcards.set].get("metrics", [])

    def plan(self, wildcards: Wildcards) -> Files:
        """The plan of a section set that has one."""
        return file_of_cell(wildcards, f".{wildcards.set}.plan.json") if ncu.needs_plan(self.ncu, wildcards.set) else []

    def job_file(self, wildcards: Wildcards) -> Files:
        """What a section set that has a plan is collected by."""
        return file_of_cell(wildcards, f".{wildcards.set}.job.json") if ncu.needs_plan(self.ncu, wildcards.set) else []

    def plan_inputs(self, wildcards: Wildcards) -> list[str]:
        """The launches that a section set is planned by, and the sidecar of the report that has them; and what says why
        these are not the trace's, where that was to tell them."""
        by_ncu = self.is_counted_by_ncu(wildcards)
        why = [ncu_census.TOLD] if by_ncu and self.ncu["census"] == ncu_census.AUTO else []
        endings = [ncu_census.census_csv_name(by_ncu), ncu_census.census_sidecar_name(by_ncu), *why]
        return [file_of_cell(wildcards, ending) for ending in endings]

    def probe(self, wildcards: Wildcards) -> list[str]:
        """What a probe says of a section set's cost, where nobody has measured its metrics: page and sidecar."""
        if not ncu_costs.lacks_cost(self.ncu["sets"][wildcards.set], ncu_costs.load_costs()):
            return []
        name = f"<results>/peaks/{self.selection.config['gpu']}.{wildcards.set}"
        return [f"{name}.probe.csv", f"{name}.ncu-rep.json"]

    def until_profiled(self, files: Files | Callable[[Wildcards], Files]) -> Callable[[Wildcards], Any]:
        """An input function for what is a reason to plan a section set only until that has been profiled.

        Snakemake does not judge, in the same run, what takes as ancient a file that is made again, nor what comes after
        that (its issue 4166). So a plan of what was profiled is made again only where its settings change, on which the
        profiling job depends as well.
        """

        def found(wildcards: Wildcards) -> Any:
            paths = files(wildcards) if callable(files) else files
            home = self.selection.path(f"<results>/{wildcards.model}/{wildcards.phase}.{wildcards.set}")
            profiled = any(Path(f"{home}.{what}.json").exists() for what in ("ncu-rep", "ncu-ranks"))
            return self.ancient(paths) if profiled and paths else paths

        return found

    def sampled_sets(self) -> list[str]:
        """Section sets whose launches a plan chooses, for which ncu may run several times."""
        return [name for name in self.ncu["sets"] if ncu.samples_launches(self.ncu, name)]
