"""Types of the numbers by which two runs of a cell are compared, as sidecars hold them."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict


class OutputSample(TypedDict):
    """Values of one output tensor at fixed places; rms: root mean square of the whole tensor, None of whole numbers."""

    values: Sequence[float]
    rms: float | None


class StepNumbers(TypedDict):
    """Numbers of a run's first steps. None stands for what is not finite, or was not seen."""

    # Losses of the first steps, from step 0 on; empty in inference.
    losses: Sequence[float | None]
    # Norm of all gradients together, before each update of each of the steps that were looked into.
    gradient_norms: Sequence[Sequence[float | None]]
    # Parameters (numbers, not tensors) in tensors whose gradient in step 0 is not all zero.
    used_parameters: int | None
    # Norm of all parameters together before step 0.
    weight_norm: float | None
    # Sum of all values of the batch, for each of the steps that were looked into.
    data_sums: Sequence[float | None]
    # Norm of all buffers together, after each of these steps and after the last step.
    buffer_norms: Sequence[float | None]
    # Samples of the outputs of these steps and of the last step, by tensor; empty in training.
    outputs: Sequence[Sequence[OutputSample]]
    last_outputs: Sequence[OutputSample]


class DoubleNumbers(TypedDict):
    """The first steps of a cell repeated in double precision, without compilation, graph or other layout.

    Where this could not be done, only `why` is there, which says so.
    """

    why: NotRequired[str]
    steps: NotRequired[StepNumbers]
    # Whether a step draws random numbers, as dropout does; losses of step 0 with other draws.
    random: NotRequired[bool]
    redrawn_losses: NotRequired[Sequence[float]]
    # Floating-point operations of products, convolutions and attention in a step, and operators that it calls; None
    # if they could not be counted.
    operations: NotRequired[int | None]
    operators: NotRequired[int | None]
    # Losses of the same steps in single precision with other seeds, of weights and data; a list for each seed.
    seed_losses: NotRequired[Sequence[Sequence[float]]]
    # Of steps that draw random numbers: step 0 without dropout, whether it still draws some, and the dropout's shares.
    undropped: NotRequired[StepNumbers]
    undropped_random: NotRequired[bool]
    dropouts: NotRequired[Sequence[float]]
    wall_s: NotRequired[float]
