"""Names the files that torch.profiler leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profzoo.cell.tool_types import TorchSettings


def exported_files(own: "TorchSettings") -> Sequence[str]:
    """Return the tables of operators, kernels, launches and layers, the trace, and what settings ask for besides."""
    always = ["{phase}.torch.csv", "{phase}.torch.launches.csv", "{phase}.layers.csv", "{phase}.trace.json.gz"]
    memory = ["{phase}.torch-memory.csv", *(f"{{phase}}.torch-memory.{kind}" for kind in ("svg", "png", "pdf"))]
    cycles = ["{phase}.torch.cycles.csv", "{phase}.torch.cycle-differences.csv"]
    snapshot = ["{phase}.torch-snapshot.csv", "{phase}.torch-snapshot.pickle"]
    return [
        *always,
        *(memory if own["memory"] else []),
        *(cycles if own["repeat"] > 1 else []),
        *(snapshot if own["snapshot"] else []),
        *(["{phase}.tensorboard"] if own["tensorboard"] else []),
    ]


def leaves_more(own: Mapping[str, Any]) -> bool:
    """Return whether the job leaves a folder of further files: earlier cycles, or the allocator's snapshot."""
    return own["repeat"] > 1 or bool(own["snapshot"])


def table_inputs(own: "TorchSettings") -> Mapping[str, str]:
    """Return the table with the trace's sidecar, and the baseline if it is timed in the same process."""
    timed = {"time": "{phase}.torch-time.csv", "time_sidecar": "{phase}.torch-time.csv.json"} if own["baseline"] else {}
    return {"torch": "{phase}.torch.csv", "torch_sidecar": "{phase}.trace.json.gz.json", **timed}


def provided_files(own: "TorchSettings") -> Mapping[str, str]:
    """Return the tables of layers, their kernels, operators, the share with an owner, of chains and activities."""
    names = {"layers": "layers", "layer_kernels": "layer-kernels", "operators": "operators", "owners": "owners",
             "fusion": "fusion", "fusion_kernels": "fusion-kernels"}  # fmt: skip
    several = {name: f"{{phase}}.torch-{name}.csv" for name in ("collectives", "skew")}
    return (
        {name: f"{{phase}}.{part}.csv" for name, part in names.items()} | several | {"activities": "{phase}.torch.csv"}
    )


def required_files(own: "TorchSettings") -> Sequence[str]:
    """Return the tables of operators, kernels, launches and modules, with the trace's sidecar."""
    tables = [f"{{phase}}.torch{part}.csv" for part in ("", ".launches", ".modules")]
    return [*tables, *table_inputs(own).values()]


def name_parts(own: "TorchSettings") -> Sequence[str]:
    """Return the parts of torch.profiler's file names between dots."""
    several = ["torch-ranks", "torch-collectives", "torch-skew"]
    of_owners = ["launches", "modules", "layers", "operators", "layer-kernels", "owners", "fusion", "fusion-kernels",
                 "tokens"]  # fmt: skip
    asked = ["torch-memory", "torch-snapshot", "torch-more", "tensorboard", "cycles", "cycle-differences", "dtypes",
             "streams", "svg", "png", "pdf", "pickle"]  # fmt: skip
    return ["torch", "torch-operators", "torch-time", *asked, *several, "trace", "gz", *of_owners]
