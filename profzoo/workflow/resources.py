"""Says what jobs ask for: minutes, MB of memory, cores, GPUs and nodes, and the modules of a site's software."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from profzoo.tools import BASELINE, settings_of
from profzoo.workflow.jobs import Jobs
from profzoo.workflow.selection import Wildcards

# Of a collecting job, for each GPU on a node; and of one that has none.
CORES, MEM_MB = 4, 16000
CORES_OF_CPU, MEM_MB_OF_CPU = 2, 8000
# Minutes of one, and of one under ncu that has no plan, such as the census.
MINUTES, MINUTES_OF_NCU = 30, 120


class Placement(TypedDict):
    """What of a cell's settings says where it runs."""

    gpus: int
    nodes: int
    device: Literal["auto", "cuda", "cpu"]


CellOf = Callable[[Wildcards], Placement]
Minutes = int | Callable[..., int]


@dataclass(frozen=True)
class JobResources:
    """What jobs ask for.

    gpus_limited: whether `--resources gpu=` or a profile says how many GPUs there are. loads_modules: whether jobs load
    modules of a site's software.
    """

    jobs: Jobs
    gpus_limited: bool
    loads_modules: bool

    def light(self, minutes: int = 5, mem_mb: int = 4000) -> dict[str, Any]:
        """The resources of a job that only exports, tabulates or draws: guesses; a second attempt has twice as much.

        side_by_side: what a profile limits for the jobs of a group.
        """
        return {
            "runtime": lambda wildcards, attempt: minutes * attempt,
            "mem_mb": lambda wildcards, attempt: mem_mb * attempt,
            "side_by_side": 1,
        }

    def on_gpus(self, phase: str | None = None, minutes: Minutes = MINUTES) -> dict[str, Any]:
        """The resources of a collecting job: as many GPUs and nodes as its cell takes, and what goes with these."""
        return self._resources_of(lambda wildcards: self.jobs.cell_settings(wildcards, BASELINE, phase), minutes)

    def on_one_gpu(self, minutes: Minutes = MINUTES) -> dict[str, Any]:
        """The resources of a job that takes one GPU, whatever its cell does."""
        one: Placement = {"gpus": 1, "nodes": 1, "device": self.jobs.config["device"]}
        return self._resources_of(lambda wildcards: one, minutes)

    def cores(self, phase: str | None = None) -> Callable[[Wildcards], int]:
        """A threads function: the cores of a collecting job on each of its nodes."""
        return lambda wildcards: self._cores_of(self.jobs.cell_settings(wildcards, BASELINE, phase))

    def cores_of_one(self, wildcards: Wildcards) -> int:
        """The cores of a job that takes one GPU, whatever its cell does."""
        return self._cores_of({"gpus": 1, "nodes": 1, "device": self.jobs.config["device"]})

    def planned_minutes(self, wildcards: Wildcards, input: Any, attempt: int) -> int:
        """A resource function: ten minutes and twice what ncu's plan says, or so that a set without one is safe.

        Where the plan is yet to be made, so is this: Snakemake asks again once it is there. Of one that is damaged the
        job itself says so.
        """
        minutes = MINUTES_OF_NCU
        if input.plan:
            with suppress(ValueError, KeyError, TypeError, OverflowError):
                minutes = 10 + math.ceil(2 * json.loads(Path(input.plan).read_text())["estimate_s"] / 60)
        return minutes * attempt

    def modules(self, *tools: str) -> list[str]:
        """What a site loads for these tools. Named only to be loaded, as names count as software that has changed."""
        own = [settings_of(self.jobs.config, tool) for tool in tools]
        return [name for part in own for name in part["envmodules"]] if self.loads_modules else []

    def _runs_on_cpu(self, cell: Placement) -> bool:
        """Whether jobs of a cell go to nodes that need no GPU.

        On one machine, where `gpu` is limited, one cell at a time has what there is, be that a GPU or the CPU.
        """
        return cell["device"] == "cpu" and not self.gpus_limited

    def _gpus_of(self, cell: Placement) -> int | None:
        """The GPUs that a cell takes on all of its nodes; None, which asks for nothing, where it goes without."""
        return None if self._runs_on_cpu(cell) else cell["gpus"] * cell["nodes"]

    def _memory_of(self, cell: Placement) -> int:
        """MB on each node."""
        return (MEM_MB_OF_CPU if self._runs_on_cpu(cell) else MEM_MB) * cell["gpus"]

    def _cores_of(self, cell: Placement) -> int:
        """The cores of a cell on each of its nodes."""
        return (CORES_OF_CPU if self._runs_on_cpu(cell) else CORES) * cell["gpus"]

    def _resources_of(self, cell: CellOf, minutes: Minutes) -> dict[str, Any]:
        """The resources of a job by its cell; minutes: of a job, or a resource function."""
        return {
            "gpu": lambda wildcards: self._gpus_of(cell(wildcards)),
            "runtime": minutes,
            "mem_mb": lambda wildcards: self._memory_of(cell(wildcards)),
            "nodes": lambda wildcards: cell(wildcards)["nodes"],
            # Slurm's plugin, where these are several nodes, on which the job's own srun starts a task each. A resource
            # of None is not there.
            "mpi": lambda wildcards: "srun" if cell(wildcards)["nodes"] > 1 else None,
            "tasks": lambda wildcards: nodes if (nodes := cell(wildcards)["nodes"]) > 1 else None,
            "tasks_per_gpu": lambda wildcards: 0 if cell(wildcards)["nodes"] > 1 else None,
            # Kubernetes' plugin: it gives no GPU to a pod without limits, which requests become by no scale.
            "gpu_manufacturer": "nvidia",
            "scale": 0,
        }
