"""Names the files that torch.profiler leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.tool_types import TorchSettings


def exported_files(own: "TorchSettings") -> Sequence[str]:
    """Return the tables of operators and kernels, of launches, layers and operators by owner, and the trace."""
    return ["{phase}.torch.csv", "{phase}.torch.launches.csv", "{phase}.layers.csv", "{phase}.trace.json.gz"]


def table_inputs(own: "TorchSettings") -> Mapping[str, str]:
    """Return the table with the trace's sidecar, and the baseline if it is timed in the same process."""
    timed = {"time": "{phase}.torch-time.csv", "time_sidecar": "{phase}.torch-time.csv.json"} if own["baseline"] else {}
    return {"torch": "{phase}.torch.csv", "torch_sidecar": "{phase}.trace.json.gz.json", **timed}


def provided_files(own: "TorchSettings") -> Mapping[str, str]:
    """Return the tables of layers, their kernels, operators, the share with an owner, of chains and activities."""
    names = {"layers": "layers", "layer_kernels": "layer-kernels", "operators": "operators", "owners": "owners",
             "fusion": "fusion", "fusion_kernels": "fusion-kernels"}  # fmt: skip
    return {name: f"{{phase}}.{part}.csv" for name, part in names.items()} | {"activities": "{phase}.torch.csv"}


def required_files(own: "TorchSettings") -> Sequence[str]:
    """Return the tables of operators, kernels, launches and modules, with the trace's sidecar."""
    tables = [f"{{phase}}.torch{part}.csv" for part in ("", ".launches", ".modules")]
    return [*tables, *table_inputs(own).values()]


def name_parts(own: "TorchSettings") -> Sequence[str]:
    """Return the parts of torch.profiler's file names between dots."""
    of_owners = ["launches", "modules", "layers", "operators", "layer-kernels", "owners", "fusion", "fusion-kernels"]
    return ["torch", "torch-operators", "torch-time", "streams", "trace", "gz", *of_owners]
