"""What the columns of the unprofiled baseline's tables mean."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, CPU, GPU, Column

STEPS: Mapping[str, Column] = {
    "side": Column(
        "Side of the comparison, or settings of the trial, that the process ran; empty for the cell as it is."
    ),
    "process": Column("Number of the process, counted from 0 in the order in which they ran."),
    "step": Column("Number of the step within the process's window, counted from 0.", tool="time"),
    "wall_ns": Column("Wall time of the step.", "ns", "time", CPU),
    "gpu_ns": Column("Time of the step between CUDA events; empty on a CPU.", "ns", "time", GPU),
    "items": Column("Samples of the data in the step.", COUNT, "time"),
    "peak_memory_bytes": Column("Most GPU memory that torch had allocated during the step.", "byte", "time"),
    "token_*_ns": Column(
        "Time of a token of the step, counted from 0; the first includes reading the prompt. Only of models that "
        "generate tokens; empty in steps with fewer tokens.",
        "ns",
        "time",
        GPU,
    ),
}
_HELD = "Part of `peak_bytes` that {} take."
MEMORY: Mapping[str, Column] = {
    "order": Column("Place of the range in the step, counted from 0.", tool="time"),
    "range": Column("Part of the step.", tool="time"),
    "begin_bytes": Column("Allocated memory when the range begins.", "byte", "time"),
    "peak_bytes": Column("Most allocated memory within the range.", "byte", "time"),
    "end_bytes": Column("Allocated memory when the range ends.", "byte", "time"),
    "weights_bytes": Column(_HELD.format("parameters and buffers"), "byte", "time"),
    "optimizer_bytes": Column(_HELD.format("states of the optimizer"), "byte", "time"),
    "gradients_bytes": Column(_HELD.format("gradients of parameters"), "byte", "time"),
    "inputs_bytes": Column(_HELD.format("the batch's tensors"), "byte", "time"),
    "activations_bytes": Column(_HELD.format("activations that the backward pass needs"), "byte", "time"),
    "workspace_bytes": Column(_HELD.format("temporary buffers of operators"), "byte", "time"),
    "other_bytes": Column(_HELD.format("other tensors"), "byte", "time"),
}
