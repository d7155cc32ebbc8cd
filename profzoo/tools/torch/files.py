"""What torch.profiler leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import Any


def exported(own: Mapping[str, Any]) -> Sequence[str]:
    """The table of operators and kernels, those of launches, layers and operators by owner, and the trace."""
    return ["{phase}.torch.csv", "{phase}.torch.launches.csv", "{phase}.layers.csv", "{phase}.trace.json.gz"]


def tabulated(own: Mapping[str, Any]) -> Mapping[str, str]:
    """The table with the trace's sidecar."""
    return {"torch": "{phase}.torch.csv", "torch_sidecar": "{phase}.trace.json.gz.json"}


def parts(own: Mapping[str, Any]) -> Sequence[str]:
    """Names between dots."""
    return ["torch", "torch-operators", "trace", "gz", "launches", "modules", "layers", "operators"]
