"""What the columns of the tables mean that are made of torch.profiler's table and trace."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, CPU, FRACTION, GPU, RATIO, Column
from profzoo.range_names import LAUNCHING

ACTIVITIES: Mapping[str, Column] = {
    "kind": Column("`operator`, `range`, `runtime` (a call of CUDA), `kernel`, `memcpy` or `memset`.", tool="torch"),
    "device": Column("Device that torch.profiler's table has the row for.", tool="torch"),
    "name": Column("Name of the operator, range, call, kernel or copy.", tool="torch"),
    "range": Column("Part of the step that was open at the launch; empty for what is no launch.", tool="torch"),
    "count": Column("Calls or launches in the window.", COUNT, "torch"),
    "self_cpu_ns": Column("Host time in the window, without what the operator calls.", "ns", "torch", CPU),
    "cpu_ns": Column("Host time in the window, with what the operator calls.", "ns", "torch", CPU),
    "self_device_ns": Column("GPU time in the window, without what the operator calls.", "ns", "torch", GPU),
    "device_ns": Column(
        "GPU time in the window, with what the operator calls; of a range, of its launches.", "ns", "torch", GPU
    ),
    "self_cpu_memory_bytes": Column(
        "Host memory taken less given back, without what the operator calls.", "byte", "torch"
    ),
    "cpu_memory_bytes": Column("Host memory taken less given back, with what the operator calls.", "byte", "torch"),
    "self_device_memory_bytes": Column(
        "GPU memory taken less given back, without what the operator calls.", "byte", "torch"
    ),
    "device_memory_bytes": Column("GPU memory taken less given back, with what the operator calls.", "byte", "torch"),
    "flops": Column("Operations that torch.profiler estimates for the operator in the window.", "flop", "torch"),
    "shapes": Column("Shapes of the inputs, where they were recorded.", tool="torch"),
    "stack": Column("Python stack of the call, where it was recorded.", tool="torch"),
}
LAUNCHES: Mapping[str, Column] = {
    "step": Column("Number of the step in the trace, counted from 0; empty outside all steps.", tool="torch"),
    "order": Column("Place of the launch within its step, in the order of launching.", tool="torch"),
    "kind": Column("`kernel`, `memcpy` or `memset`; on a CPU `operator`.", tool="torch"),
    "name": Column("Name of the kernel or copy; on a CPU of the operator.", tool="torch"),
    "smem_bytes": Column("Shared memory of a block.", "byte", "torch"),
    "start_ns": Column("When it began, on the clock of the trace.", "ns", "torch", GPU),
    "ns": Column("GPU time of the launch; on a CPU the operator's own host time.", "ns", "torch", GPU),
    "range": Column("Part of the step (NVTX range) that was open at the launch.", tool="torch"),
    "user_range": Column(
        "Innermost range of the program's own (`record_function`) that was open at the launch, behind those around it; "
        "empty outside all.",
        tool="torch",
    ),
    "call": Column("Which call of the module within the step launched it, counted from 0.", tool="torch"),
    "sequence": Column("Autograd's sequence number, which an operator and its backward pass share.", tool="torch"),
    "needed_product_flop": Column(
        "Operations of matrix products that the operator needs by its shapes.", "flop", "torch"
    ),
    "needed_other_flop": Column("Other operations that the operator needs by its shapes.", "flop", "torch"),
    "needed_bytes": Column(
        "Bytes that the operator needs to read and write once by its shapes; all needs are with its first launch.",
        "byte",
        "torch",
    ),
}
DTYPES: Mapping[str, Column] = {
    "operator": Column("Operator; empty for launches whose operator is unknown.", tool="torch"),
    "caller": Column("Outermost operator around it within the module or autograd node.", tool="torch"),
    "dtypes": Column("Types of its tensors, each once, in the order of the inputs.", tool="torch"),
    "cast": Column(
        "Type that a copy reads, and the other type that it writes; empty for what is no cast.", tool="torch"
    ),
    "calls": Column("Calls of the operator in all traced steps.", COUNT, "torch"),
    "self_cpu_ns": Column("Host time in all traced steps, without what the operator calls.", "ns", "torch", CPU),
    "launches": Column("Launches by the operator itself in all traced steps; empty on a CPU.", COUNT, "torch"),
    "device_ns": Column("GPU time of these launches; empty on a CPU.", "ns", "torch", GPU),
    "share": Column("Share of the GPU time of all traced steps; on a CPU of the host time.", FRACTION, "torch"),
}
MEMORY: Mapping[str, Column] = {
    "step": Column("Number of the step in the trace, counted from 0; empty between steps.", tool="torch"),
    "ns": Column("Time since the first traced step began.", "ns", "torch", CPU),
    "device": Column("Device of the memory: `cuda:0` and so on, or `cpu`.", tool="torch"),
    "range": Column("Part of the step that was open; empty outside all parts.", tool="torch"),
    "operator": Column("Operator that allocated or released; empty outside all operators.", tool="torch"),
    "bytes": Column("Bytes that were allocated; below 0 for bytes that were released.", "byte", "torch"),
    "allocated_bytes": Column(
        "Bytes that are allocated after it. On a CPU they are counted from the beginning of the trace.", "byte", "torch"
    ),
    "reserved_bytes": Column("Bytes that the GPU's allocator holds after it; empty on a CPU.", "byte", "torch"),
    "earlier_bytes": Column("Of the allocated bytes, those from before the first traced step.", "byte", "torch"),
    "other_bytes": Column(
        "Of the allocated bytes, those that were allocated in the traced steps outside their parts.", "byte", "torch"
    ),
    **{
        f"{part}_bytes": Column(f"Of the allocated bytes, those that were allocated in `{part}`.", "byte", "torch")
        for part in LAUNCHING
    },
}
SNAPSHOT: Mapping[str, Column] = {
    "device": Column("Device of the memory: `cuda:0` and so on.", tool="torch"),
    "address": Column("Address of the block; a row is a block that was allocated at the peak.", tool="torch"),
    "bytes": Column("Bytes that were asked for; those of all rows are the peak.", "byte", "torch"),
    "block_bytes": Column(
        "Bytes of the block, as the allocator rounds them; empty for a block that was released later.", "byte", "torch"
    ),
    "ns": Column("Time of the allocation since recording began; empty for blocks from before.", "ns", "torch", CPU),
    "at_end": Column("Whether the block is still allocated when the window has ended.", tool="torch"),
    "file": Column(
        "File of the innermost line of the program that allocated the block; empty where no Python line did, as in a "
        "backward pass.",
        tool="torch",
    ),
    "line": Column("Number of that line.", tool="torch"),
    "function": Column("Function of that line.", tool="torch"),
    "caller": Column("The next line of the program around it, as `file:line`.", tool="torch"),
}
# Of the table of streams; its other columns are those of nsys.
STREAM_STEPS = Column("Steps of the trace that the row is of, without those of which kernels are lost.", COUNT, "torch")
CYCLES: Mapping[str, Column] = {
    "cycle": Column("Number of the profiler's cycle, counted from 0.", tool="torch"),
    "steps": Column("Traced steps of the cycle that are complete.", COUNT, "torch"),
    "count": Column("Calls or launches in these steps.", COUNT, "torch"),
    "cycles": Column("Cycles that have it.", COUNT, "torch"),
    "count_per_step": Column("Calls or launches per step, the mean over the cycles.", COUNT, "torch"),
    "least_count_per_step": Column("Fewest calls or launches per step of a cycle.", COUNT, "torch"),
    "most_count_per_step": Column("Most calls or launches per step of a cycle.", COUNT, "torch"),
    "ns_per_step": Column(
        "Time per step, the mean over the cycles: of launches on the GPU, of operators and calls their own host time, "
        "of ranges the host time for which they were open.",
        "ns",
        "torch",
        GPU,
    ),
    "least_ns_per_step": Column("Shortest time per step of a cycle.", "ns", "torch", GPU),
    "most_ns_per_step": Column("Longest time per step of a cycle.", "ns", "torch", GPU),
    "spread": Column("Longest less shortest time per step, relative to the mean.", RATIO, "torch"),
}
USER_RANGES: Mapping[str, Column] = {
    "range": Column(
        "Range of the program's own, behind the names of those around it, joined by ` > `; or `(step)`.", tool="torch"
    ),
    "parent": Column("Range around this one; empty for an outermost one.", tool="torch"),
    "calls": Column("How often the range was opened, in all traced steps.", COUNT, "torch"),
    "cpu_ns": Column("Host time for which the range was open, in all traced steps.", "ns", "torch", CPU),
}
MODULES: Mapping[str, Column] = {
    "calls": Column("Calls of the module in the forward pass, in all traced steps.", COUNT, "torch"),
    "repeated": Column(
        "Calls of the module that activation checkpointing repeats in the backward pass.", COUNT, "torch"
    ),
}
