"""The dictionary of columns that mean the same in every table that has them; a table's own words come first."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, FRACTION, GPU, NINETEEN_OF_TWENTY, Column

# What a row is about.
CELL: Mapping[str, Column] = {
    "model": Column("Model, with its variant behind `@`."),
    "phase": Column("Phase: `train` or `inference`."),
    "device": Column("Device that the cell ran on."),
    "date": Column("Date of the measurement (UTC)."),
    "process": Column("Number of the process, counted from 0, or its process ID where a trace tells that."),
    "tool": Column("Tool whose numbers the row has."),
    "range": Column(
        "Part of the step (NVTX range) that was open when the kernel was launched; empty outside all parts."
    ),
    "level": Column("What the row is about, such as the whole cell, a class of kernels, a layer or one kernel."),
}
# In how many steps a row has launches, and of how many steps; only where steps launch differently.
STEP_COUNTS = IN_STEPS, OF_STEPS = ("in_steps", "of_steps")
OF_DIFFERING_STEPS: Mapping[str, Column] = {
    IN_STEPS: Column("Traced steps that launch this; the column is there only where steps launch differently.", COUNT),
    OF_STEPS: Column("Steps among which `in_steps` is counted.", COUNT),
}
# How a kernel was launched.
LAUNCH: Mapping[str, Column] = {
    "kernel": Column("Demangled name of the kernel, with its template arguments."),
    "mangled": Column("Mangled name of the kernel, which identifies it; the demangled one where no other is known."),
    "function": Column("Short name of the kernel: its function, without namespaces, arguments and template arguments."),
    "class": Column("Class of the kernel by its name, such as `gemm`, `convolution` or `elementwise`."),
    **{f"grid_{axis}": Column(f"Blocks of the grid in {axis}.", COUNT) for axis in "xyz"},
    **{f"block_{axis}": Column(f"Threads of a block in {axis}.", COUNT) for axis in "xyz"},
    "smem_static_bytes": Column("Static shared memory of a block.", "byte"),
    "smem_dynamic_bytes": Column("Dynamic shared memory of a block.", "byte"),
    "registers": Column("Registers of a thread.", COUNT),
    "stream": Column("Number of the CUDA stream; empty for work that has none."),
}
# Which part of the model launched it.
OWNER: Mapping[str, Column] = {
    "module": Column(
        "Path of the module (layer) in the model, also in the backward pass; an owner in parentheses, such as "
        "`(optimizer)`, where no module launched the work.",
        tool="torch",
    ),
    "parent": Column("Module that contains this one.", tool="torch"),
    "type": Column("Class of the module, such as `Conv2d`.", tool="torch"),
    "inputs": Column("Shapes of the module's inputs.", tool="torch"),
    "direction": Column(
        "`forward`, `backward`, `recompute` (activation checkpointing), or the part of the step.", tool="torch"
    ),
    "operator": Column("Innermost operator that launched the kernel, such as `aten::mm`.", tool="torch"),
    "shapes": Column("Shapes of the operator's inputs.", tool="torch"),
    "caller": Column(
        "Outermost operator within the module, or the autograd node, that called the operator.", tool="torch"
    ),
}
# The unprofiled step.
STEP: Mapping[str, Column] = {
    "step_ns": Column(
        "Mean step without any profiler, over the settled steps of all processes.",
        "ns",
        "time",
        GPU,
        NINETEEN_OF_TWENTY,
    ),
    "step_median_ns": Column("Median step without any profiler.", "ns", "time", GPU),
    "steps": Column("Steps that the row is of.", COUNT),
    "processes": Column("Processes that were measured, one after the other.", COUNT),
    "between_share": Column(
        "Part of the variance of a step's logarithm that lies between processes (intraclass correlation).",
        FRACTION,
        "time",
    ),
    "cpu_taken_share": Column(
        "Part of the time in which other programs used the CPU, in the process that they disturbed most.",
        FRACTION,
        "time",
    ),
    "unsteady": Column("Why the times are not steady; empty where they are.", tool="time"),
}
# Work that operators need by their shapes, and work that was counted and held against measured peaks.
WORK: Mapping[str, Column] = {
    "needed_flop": Column("Operations that the operators need by their shapes.", "flop", "torch"),
    "needed_bytes": Column("Bytes that the operators need to read and write once by their shapes.", "byte", "torch"),
    "counted_share": Column("Part of the GPU time whose work was counted.", FRACTION, "ncu"),
    "bound": Column("Measured peak under which the counted work takes longest: `dram`, `l2`, `simt` or `tensor`."),
}
COMMON: Mapping[str, Column] = {**CELL, **OF_DIFFERING_STEPS, **LAUNCH, **OWNER, **STEP, **WORK}
