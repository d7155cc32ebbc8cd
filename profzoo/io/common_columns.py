"""Declares the columns that several tables have with one meaning."""

from collections.abc import Mapping
from typing import Any

from profzoo.io.columns import AMOUNT, COUNT, GPU, NINETEEN_OF_TWENTY, NUMBER, TEXT, Column, select

# What a row is about.
CELL: Mapping[str, Column] = {
    "model": Column(TEXT, "Model, with its variant behind `@`."),
    "phase": Column(TEXT, "Phase: `train` or `inference`."),
    "device": Column(TEXT, "Device that the cell ran on."),
    "date": Column(TEXT, "Date of the measurement (UTC)."),
    "process": Column(COUNT, "Number of the process, counted from 0, or its process ID where a trace tells that."),
    "tool": Column(TEXT, "Tool whose numbers the row has."),
    "range": Column(
        TEXT, "Part of the step (NVTX range) that was open when the kernel was launched; empty outside all parts."
    ),
    "level": Column(TEXT, "What the row is about, such as the whole cell, a class of kernels, a layer or one kernel."),
}
# The cell and the sides of a comparison.
COMPARED_CELL: Mapping[str, Column] = {
    "model": Column(TEXT, "Model, without its variant."),
    **select(CELL, "phase"),
    "baseline": Column(TEXT, "Name of the reference side."),
    "candidate": Column(TEXT, "Name of the side that is compared with it."),
}
# In how many steps a row has launches, and of how many steps; only where steps launch differently.
STEP_COUNTS = IN_STEPS, OF_STEPS = ("in_steps", "of_steps")
OF_DIFFERING_STEPS: Mapping[str, Column] = {
    IN_STEPS: Column(
        COUNT.or_missing,
        "Traced steps that launch this; the column is there only where steps launch differently.",
        "count",
    ),
    OF_STEPS: Column(COUNT.or_missing, "Steps among which `in_steps` is counted.", "count"),
}
# How a kernel was launched.
LAUNCH: Mapping[str, Column] = {
    "kernel": Column(TEXT, "Demangled name of the kernel, with its template arguments."),
    "mangled": Column(
        TEXT, "Mangled name of the kernel, which identifies it; the demangled one where no other is known."
    ),
    "function": Column(
        TEXT, "Short name of the kernel: its function, without namespaces, arguments and template arguments."
    ),
    "class": Column(TEXT, "Class of the kernel by its name, such as `gemm`, `convolution` or `elementwise`."),
    **{f"grid_{axis}": Column(COUNT, f"Blocks of the grid in {axis}.", "count") for axis in "xyz"},
    **{f"block_{axis}": Column(COUNT, f"Threads of a block in {axis}.", "count") for axis in "xyz"},
    "smem_static_bytes": Column(COUNT.or_missing, "Static shared memory of a block.", "byte"),
    "smem_dynamic_bytes": Column(COUNT.or_missing, "Dynamic shared memory of a block.", "byte"),
    "registers": Column(COUNT, "Registers of a thread.", "count"),
    "stream": Column(COUNT, "Number of the CUDA stream; empty for work that has none."),
}
# Which part of the model launched it.
OWNER: Mapping[str, Column] = {
    "module": Column(
        TEXT,
        "Path of the module (layer) in the model, also in the backward pass; an owner in parentheses, such as "
        "`(optimizer)`, where no module launched the work.",
        tool="torch",
    ),
    "parent": Column(TEXT, "Module that contains this one.", tool="torch"),
    "type": Column(TEXT, "Class of the module, such as `Conv2d`.", tool="torch"),
    "inputs": Column(TEXT, "Shapes of the module's inputs.", tool="torch"),
    "direction": Column(
        TEXT, "`forward`, `backward`, `recompute` (activation checkpointing), or the part of the step.", tool="torch"
    ),
    "operator": Column(TEXT, "Innermost operator that launched the kernel, such as `aten::mm`.", tool="torch"),
    "shapes": Column(TEXT, "Shapes of the operator's inputs.", tool="torch"),
    "caller": Column(
        TEXT, "Outermost operator within the module, or the autograd node, that called the operator.", tool="torch"
    ),
}
# The unprofiled step.
STEP: Mapping[str, Column] = {
    "step_ns": Column(
        AMOUNT,
        "Mean step without any profiler, over the settled steps of all processes.",
        "ns",
        "time",
        GPU,
        NINETEEN_OF_TWENTY,
    ),
    "step_median_ns": Column(AMOUNT, "Median step without any profiler.", "ns", "time", GPU),
    "steps": Column(COUNT, "Steps that the row is of.", "count"),
    "processes": Column(COUNT, "Processes that were measured, one after the other.", "count"),
    "between_share": Column(
        NUMBER.or_missing,
        "Part of the variance of a step's logarithm that lies between processes (intraclass correlation).",
        "fraction",
        "time",
    ),
    "cpu_taken_share": Column(
        NUMBER.or_missing,
        "Part of the time in which other programs used the CPU, in the process that they disturbed most.",
        "fraction",
        "time",
    ),
    "unsteady": Column(TEXT, "Why the times are not steady; empty where they are.", tool="time"),
}
# Work that operators need by their shapes, and work that was counted and held against measured peaks.
WORK: Mapping[str, Column] = {
    "needed_flop": Column(AMOUNT.or_missing, "Operations that the operators need by their shapes.", "flop", "torch"),
    "needed_bytes": Column(
        AMOUNT.or_missing, "Bytes that the operators need to read and write once by their shapes.", "byte", "torch"
    ),
    "counted_share": Column(AMOUNT.or_missing, "Part of the GPU time whose work was counted.", "fraction", "ncu"),
    "bound": Column(
        TEXT, "Measured peak under which the counted work takes longest: `dram`, `l2`, `simt` or `tensor`."
    ),
}
COMMON: Mapping[str, Column] = {**CELL, **OF_DIFFERING_STEPS, **LAUNCH, **OWNER, **STEP, **WORK}


def shared(*names: str, **changes: Any) -> dict[str, Column]:
    """Return these of the common columns by name, each with changed fields, such as another kind or tool."""
    return select(COMMON, *names, **changes)
