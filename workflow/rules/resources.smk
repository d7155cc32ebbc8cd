# Needs: the settings of cells. Makes: what a job asks for (minutes, MB, cores, GPUs), and the modules of its tool.
import math
from contextlib import suppress

from snakemake.settings.types import DeploymentMethod

# Of a collecting job, for each GPU on a node; and of one that has none.
CORES, MEM_MB = 4, 16000
CORES_OF_CPU, MEM_MB_OF_CPU = 2, 8000
# Minutes of one, and of one under ncu that has no plan, such as the census.
MINUTES, MINUTES_OF_NCU = 30, 120


resource_scopes:
    # How many jobs of a group run side by side, which says nothing about other jobs.
    side_by_side="local",


def light(minutes=5, mem_mb=4000):
    """The resources of a job that only exports, tabulates or draws: guesses, so that a second attempt has twice as much.

    side_by_side: what a profile limits for the jobs of a group.
    """
    return {
        "runtime": lambda wildcards, attempt: minutes * attempt,
        "mem_mb": lambda wildcards, attempt: mem_mb * attempt,
        "side_by_side": 1,
    }


def on_gpus(phase=None, minutes=MINUTES):
    """The resources of a collecting job: as many GPUs and nodes as its cell takes, and what goes with these."""
    return asked(lambda wildcards: resolved(wildcards, "time", phase), minutes)


def on_one_gpu(minutes=MINUTES):
    """The resources of a job that takes one GPU, whatever its cell does."""
    return asked(lambda wildcards: {"gpus": 1, "nodes": 1, "device": config["device"]}, minutes)


def on_cpu(cell):
    """Whether jobs of a cell go to nodes that need no GPU.

    On one machine, where `gpu` is limited, one cell at a time has what there is, be that a GPU or the CPU.
    """
    return cell["device"] == "cpu" and "gpu" not in workflow.global_resources


def asked(cell, minutes):
    """These resources.

    cell: of wildcards, the settings; minutes: of a job, or a resource function of them.
    """

    def over_nodes(value):
        # Resources of None are not there.
        return lambda wildcards: value(cell(wildcards)) if cell(wildcards)["nodes"] > 1 else None

    return {
        "gpu": lambda wildcards: gpus_of(cell(wildcards)),
        "runtime": minutes,
        "mem_mb": lambda wildcards: (MEM_MB_OF_CPU if on_cpu(cell(wildcards)) else MEM_MB) * cell(wildcards)["gpus"],
        "nodes": lambda wildcards: cell(wildcards)["nodes"],
        # Slurm's plugin, where these are several nodes, on which the job's own srun starts a task each.
        "mpi": over_nodes(lambda cell: "srun"),
        "tasks": over_nodes(lambda cell: cell["nodes"]),
        "tasks_per_gpu": over_nodes(lambda cell: 0),
        # Kubernetes' plugin: it gives no GPU to a pod without limits, which requests become by no scale.
        "gpu_manufacturer": "nvidia",
        "scale": 0,
    }


def gpus_of(cell):
    """The GPUs that a cell takes on all of its nodes; None, which asks for nothing, where it goes without."""
    return None if on_cpu(cell) else cell["gpus"] * cell["nodes"]


def cores(phase=None):
    """A threads function: the cores of a collecting job on each of its nodes."""
    return lambda wildcards: cores_of(resolved(wildcards, "time", phase))


def cores_of_one(wildcards):
    """The cores of a job that takes one GPU, whatever its cell does."""
    return cores_of({"gpus": 1, "device": config["device"]})


def cores_of(cell):
    """The cores of a cell on each of its nodes."""
    return (CORES_OF_CPU if on_cpu(cell) else CORES) * cell["gpus"]


def planned_minutes(wildcards, input, attempt):
    """A resource function: ten minutes and twice what ncu's plan says, or so that a set without one is safe.

    Where the plan is yet to be made, so is this: Snakemake asks again once it is there. Of one that is damaged the job
    itself says so.
    """
    minutes = MINUTES_OF_NCU
    if input.plan:
        with suppress(ValueError, KeyError, TypeError, OverflowError):
            minutes = 10 + math.ceil(2 * json.loads(Path(input.plan).read_text())["estimate_s"] / 60)
    return minutes * attempt


def modules(*tools):
    """What a site loads for these tools. Named only to be loaded, as their names count as software that has changed."""
    asked = DeploymentMethod.ENV_MODULES in workflow.deployment_settings.deployment_method
    return [name for tool in tools for name in config[tool]["envmodules"]] if asked else []
