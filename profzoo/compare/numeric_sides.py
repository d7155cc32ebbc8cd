"""Takes from sidecars what a side of a comparison computed in its first steps, in its own and in double precision."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import ProcessFacts, Sidecar
    from profzoo.cell.number_types import DoubleNumbers, OutputSample, StepNumbers

# Outputs of whole numbers, such as words, are equal or not.
SCALARS, BUFFERS = "losses and gradient norms", "norms of buffers"
OUTPUTS, WORDS = "outputs", "whole-number outputs"


@dataclass(frozen=True)
class NumericSide:
    """What one side computed.

    own: the first process's first steps; None where nothing was recorded. double: the same in double precision, with
    `why` where it is missing. precision: format of its products. batch, parameters: as in the sidecar. first_losses:
    loss of step 0 of each process.
    """

    own: "StepNumbers | None"
    double: "DoubleNumbers"
    precision: str
    batch: int
    parameters: int
    steps: int
    first_losses: Sequence[float]

    @property
    def exact(self) -> "StepNumbers | None":
        """The first steps in double precision, if they could be repeated."""
        return self.double.get("steps")


def read_side(facts: "Sidecar", cell: "CellSettings", processes: "Sequence[ProcessFacts]") -> NumericSide:
    """Take the numbers of a side; facts: of its first process or of the job, cell: its settings."""
    each = [process for process in processes if process.get("first_steps")]
    nothing: DoubleNumbers = {"why": "no process repeated its steps in double precision"}
    repeated = [process["double_precision"] for process in each if "double_precision" in process]
    losses = [process["first_steps"]["losses"] for process in each]
    observed = facts.get("script", {}).get("observed", {}).get("precision")
    return NumericSide(
        own=each[0]["first_steps"] if each else None,
        double=repeated[0] if repeated else nothing,
        precision=str(observed or cell.get("precision", "fp32")),
        batch=int(facts.get("batch", 0)),
        parameters=int(facts.get("parameters", 0)),
        steps=int(each[0].get("steps", 0)) if each else 0,
        first_losses=[one[0] for one in losses if one and one[0] is not None],
    )


def relative_errors(found: "StepNumbers", right: "StepNumbers", steps: int) -> dict[str, list[float]]:
    """Return relative errors of the first steps, by kind of quantity that has any; steps: at most so many.

    Outputs count of all steps that were looked into, as no update of weights lies between them.
    """
    scalars, buffers = [], []
    for name, pairs in paired_series(found, right).items():
        errors = [_relative(*pair) for pair in _known(pairs[:steps])]
        if name == BUFFERS:
            buffers += errors
        else:
            scalars += errors
    outputs, words = [], []
    for mine, exact in zip(found["outputs"], right["outputs"], strict=False):
        floats, whole = output_errors(mine, exact)
        outputs += floats
        words += whole
    kinds = {SCALARS: scalars, BUFFERS: buffers, OUTPUTS: outputs, WORDS: words}
    return {kind: errors for kind, errors in kinds.items() if errors}


Pairs = list[tuple[float | None, float | None]]


def paired_series(found: "StepNumbers", right: "StepNumbers") -> dict[str, Pairs]:
    """Return pairs of numbers of equal steps by quantity: losses, gradient norms of each update, norms of buffers."""
    count = min(len(found["data_sums"]), len(right["data_sums"]))
    series: dict[str, Pairs] = {"loss": list(zip(found["losses"], right["losses"], strict=False))}
    for mine, exact in zip(found["gradient_norms"], right["gradient_norms"], strict=False):
        for number, pair in enumerate(zip(mine, exact, strict=False)):
            series.setdefault("gradient norm" + (f" of update {number + 1}" if number else ""), []).append(pair)
    buffers: Pairs = list(zip(found["buffer_norms"][:count], right["buffer_norms"][:count], strict=False))
    # A norm of 0 stands for no buffers.
    series[BUFFERS] = [pair for pair in buffers if any(pair)]
    return series


def _known(pairs: Iterable[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def output_errors(found: "Sequence[OutputSample]", right: "Sequence[OutputSample]") -> tuple[list[float], list[float]]:
    """Return sizes of errors of outputs relative to their root mean square, and 0 or 1 for each whole number.

    Outputs of another number or size count as wrong.
    """
    floats: list[float] = []
    whole: list[float] = []
    if [len(one["values"]) for one in found] != [len(one["values"]) for one in right]:
        return [1.0], []
    for mine, exact in zip(found, right, strict=True):
        difference = np.array(mine["values"]) - np.array(exact["values"])
        if exact["rms"] is None:
            whole += (difference != 0).astype(float).tolist()
        elif exact["rms"] > 0:
            floats += (np.abs(difference) / exact["rms"]).tolist()
            floats.append(_relative(mine["rms"] or 0.0, exact["rms"]))
    return floats, whole


def loss_errors(losses: Sequence[float | None], exact: Sequence[float | None]) -> list[float]:
    """Return relative errors of the losses of steps that both have."""
    return [_relative(*pair) for pair in _known(zip(losses, exact, strict=False))]


def sizes_of_errors(pairs: "Pairs") -> list[float]:
    """Return the relative error of each pair of a number and the exact one; NaN where one is not known."""
    return [float("nan") if one is None or other is None else _relative(one, other) for one, other in pairs]


def _relative(found: float, right: float) -> float:
    scale = abs(right)
    return abs(found - right) / scale if scale else float(found != right)
