"""Computes the resources of jobs: minutes, MB of memory, cores, GPUs and nodes, and environment modules of a site."""

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

# Memory and cores of a collecting job: for each GPU of a node, and for a job without a GPU.
CORES, MEM_MB = 4, 16000
CORES_OF_CPU, MEM_MB_OF_CPU = 2, 8000
# Minutes of a collecting job, and of an ncu job without a plan, such as the census.
MINUTES, MINUTES_OF_NCU = 30, 120


class Placement(TypedDict):
    """Settings of a cell that decide where it runs."""

    gpus: int
    nodes: int
    device: Literal["auto", "cuda", "cpu"]


CellOf = Callable[[Wildcards], Placement]
Minutes = int | Callable[..., int]


@dataclass(frozen=True)
class JobResources:
    """Resources that jobs request.

    gpus_limited: whether `--resources gpu=` or a profile limits the number of GPUs. loads_modules: whether jobs load
    environment modules.
    """

    jobs: Jobs
    gpus_limited: bool
    loads_modules: bool

    def light(self, minutes: int = 5, mem_mb: int = 4000) -> dict[str, Any]:
        """Estimated resources of a job that exports, tabulates or draws; a second attempt gets twice as much.

        The resource side_by_side lets a profile limit the parallel jobs of a group.
        """
        return {
            "runtime": lambda wildcards, attempt: minutes * attempt,
            "mem_mb": lambda wildcards, attempt: mem_mb * attempt,
            "side_by_side": 1,
        }

    def on_gpus(self, phase: str | None = None, minutes: Minutes = MINUTES) -> dict[str, Any]:
        """Resources of a collecting job: GPUs and nodes of its cell, with memory and minutes to match."""
        return self._resources_of(lambda wildcards: self.jobs.cell_settings(wildcards, BASELINE, phase), minutes)

    def on_one_gpu(self, minutes: Minutes = MINUTES) -> dict[str, Any]:
        """Resources of a job that uses one GPU, even if its cell uses more."""
        one: Placement = {"gpus": 1, "nodes": 1, "device": self.jobs.config["device"]}
        return self._resources_of(lambda wildcards: one, minutes)

    def on_links(self, minutes: Minutes = MINUTES) -> dict[str, Any]:
        """Resources of a job on all GPUs whose links it measures; its wildcards say how many."""
        return self._resources_of(self._linked, minutes)

    def cores_of_links(self, wildcards: Wildcards) -> int:
        """Cores per node of a job that measures links."""
        return self._cores_of(self._linked(wildcards))

    def _linked(self, wildcards: Wildcards) -> Placement:
        device = self.jobs.config["device"]
        return {"gpus": int(wildcards.gpus), "nodes": int(wildcards.nodes), "device": device}

    def cores(self, phase: str | None = None) -> Callable[[Wildcards], int]:
        """Make a threads function that returns the cores of a collecting job per node."""
        return lambda wildcards: self._cores_of(self.jobs.cell_settings(wildcards, BASELINE, phase))

    def cores_of_one(self, wildcards: Wildcards) -> int:
        """Cores of a job that uses one GPU, even if its cell uses more."""
        return self._cores_of({"gpus": 1, "nodes": 1, "device": self.jobs.config["device"]})

    def planned_minutes(self, wildcards: Wildcards, input: Any, attempt: int) -> int:
        """Resource function: ten minutes plus twice the estimate of ncu's plan; a safe default without a plan.

        If the plan does not exist yet, neither does this value: Snakemake asks again later. A damaged plan is reported
        by the job itself.
        """
        minutes = MINUTES_OF_NCU
        if input.plan:
            with suppress(ValueError, KeyError, TypeError, OverflowError):
                minutes = 10 + math.ceil(2 * json.loads(Path(input.plan).read_text())["estimate_s"] / 60)
        return minutes * attempt

    def modules(self, *tools: str) -> list[str]:
        """Environment modules of these tools; empty unless jobs load them, as Snakemake counts names as software."""
        own = [settings_of(self.jobs.config, tool) for tool in tools]
        return [name for part in own for name in part["envmodules"]] if self.loads_modules else []

    def _runs_on_cpu(self, cell: Placement) -> bool:
        """Whether jobs of a cell go to nodes that need no GPU.

        On one machine, where `gpu` is limited, only one cell runs at a time, on a GPU or on the CPU.
        """
        return cell["device"] == "cpu" and not self.gpus_limited

    def _gpus_of(self, cell: Placement) -> int | None:
        """GPUs of a cell over all its nodes; None (no request) for a cell without a GPU."""
        return None if self._runs_on_cpu(cell) else cell["gpus"] * cell["nodes"]

    def _memory_of(self, cell: Placement) -> int:
        """Memory of a cell per node, in MB."""
        return (MEM_MB_OF_CPU if self._runs_on_cpu(cell) else MEM_MB) * cell["gpus"]

    def _cores_of(self, cell: Placement) -> int:
        """Cores of a cell per node."""
        return (CORES_OF_CPU if self._runs_on_cpu(cell) else CORES) * cell["gpus"]

    def _resources_of(self, cell: CellOf, minutes: Minutes) -> dict[str, Any]:
        """Resources of a job, from its cell; minutes: a number, or a resource function."""
        return {
            "gpu": lambda wildcards: self._gpus_of(cell(wildcards)),
            "runtime": minutes,
            "mem_mb": lambda wildcards: self._memory_of(cell(wildcards)),
            "nodes": lambda wildcards: cell(wildcards)["nodes"],
            # For Slurm's plugin on several nodes: the job's own srun starts one task per node. Snakemake ignores a
            # resource of None.
            "mpi": lambda wildcards: "srun" if cell(wildcards)["nodes"] > 1 else None,
            "tasks": lambda wildcards: nodes if (nodes := cell(wildcards)["nodes"]) > 1 else None,
            "tasks_per_gpu": lambda wildcards: 0 if cell(wildcards)["nodes"] > 1 else None,
            # For Kubernetes' plugin: a pod gets its GPU by limits only, and `scale` 0 turns requests into limits.
            "gpu_manufacturer": "nvidia",
            "scale": 0,
        }
