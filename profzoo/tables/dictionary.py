"""What the columns of the tables mean that several tools' numbers are joined in."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, CPU, FRACTION, GPU, NINE_OF_TEN, NINETEEN_OF_TWENTY, RATIO, Column
from profzoo.io.common_columns import STEP

_OF_WHOLE = "Part of the cell's GPU time"
_PROCESSES = ("processes", "between_share", "cpu_taken_share")


def _end_of_step(side: str) -> Column:
    return Column(f"{side} end of the {NINETEEN_OF_TWENTY} interval of `step_ns`.", "ns", "time", GPU)


CELLS: Mapping[str, Column] = {
    "workload": Column("Workload: `trimmed`, or the `reference` of the model's paper."),
    "precision": Column("Precision of the cell: `fp32`, `tf32`, `bf16`, `fp16`, ..."),
    "parameters": Column("Parameters of the model.", COUNT),
    "batch": Column("Samples of the data in a batch.", COUNT),
    "steps": Column("Steps of the baseline's window.", COUNT, "time"),
    **{f"step_{end}_ns": _end_of_step(side) for end, side in (("low", "Lower"), ("high", "Upper"))},
    "step_lower_quartile_ns": Column("Lower quartile of the steps of all processes.", "ns", "time", GPU),
    "step_upper_quartile_ns": Column("Upper quartile of the steps of all processes.", "ns", "time", GPU),
    **{name: STEP[name] for name in _PROCESSES},
    "items_per_s": Column("Throughput: samples of the data per second, by the mean step.", "1/s", "time", GPU),
    "peak_memory_bytes": Column("Most GPU memory that torch had allocated; empty on a CPU.", "byte", "time"),
    "peak_rss_bytes": Column("Most host memory that the process had (resident set size).", "byte", "time"),
    "loss": Column("Loss of the last step; empty in inference.", "1", "time"),
    "arguments": Column(
        "Arguments of `python -m models.run` that run the cell again; empty where model and phase are enough."
    ),
    "imported": Column(
        "Of a cell whose reports were made elsewhere: what its steps are taken from, its files, and what these lack; "
        "empty for others. Times are those under the tool that the text names."
    ),
    "*_version": Column(
        "Version that the cell was measured with; of several, all are named, with the tools that had each."
    ),
}
_WORTH = "by how alike the steps of a process are, and how far processes lie apart"
LATENCY: Mapping[str, Column] = {
    "of": Column(
        "What is timed: the `step`; of models that generate, also the `first token` of a step and each further `token`."
    ),
    "percentile": Column("Part of the steps or tokens that take at most so long: 99 of 100 at the 99th.", "%"),
    "ns": Column(
        "The percentile of their time without any profiler; empty if there are too few for an interval.",
        "ns",
        "time",
        GPU,
    ),
    "low_ns": Column("Lower end of the 95 % interval of `ns`, which assumes no distribution.", "ns", "time", GPU),
    "high_ns": Column("Upper end of the 95 % interval of `ns`.", "ns", "time", GPU),
    "steps": Column("Settled steps of all processes, or tokens of these.", COUNT, "time"),
    "processes": Column(
        "Processes that were measured. The interval of a single one says nothing about other processes.", COUNT
    ),
    "independent_steps": Column(f"How many independent steps or tokens these are worth: {_WORTH}.", COUNT, "time"),
    "needed_steps": Column(
        "Estimate of the steps or tokens that an interval needs, if further ones are as alike; 0 where there is one.",
        COUNT,
        "time",
    ),
}
ACTIVITY: Mapping[str, Column] = {
    "kind": Column("`kernel`; on a CPU `operator`."),
    "name": Column("Name of the kernel, or of the operator on a CPU."),
    "launches_per_step": Column("Launches (on a CPU: calls) per step.", COUNT),
    "ns_per_step": Column("GPU time per step; on a CPU the operator's own host time.", "ns", clock=GPU),
    "share": Column("Part of the time that the tool saw in the cell.", FRACTION, clock=GPU),
}
KERNELS: Mapping[str, Column] = {
    "launches": Column("Launches per step.", COUNT, "nsys"),
    "total_ns": Column("GPU time per step of these launches together.", "ns", "nsys", GPU),
    "mean_ns": Column("Mean GPU time of a launch.", "ns", "nsys", GPU),
    "share": Column(f"{_OF_WHOLE}.", FRACTION, "nsys", GPU),
    "source": Column("Tools that saw the launch configuration: `nsys+ncu`, `nsys` or `ncu`."),
}
RANGES: Mapping[str, Column] = {
    "range": Column(
        "Part of the step; empty for launches outside all parts, `other` for the rest of a CPU's step; or a range of "
        "the program's own (see `api`)."
    ),
    "clock": Column("Clock of `ns_per_step`: `gpu`, or `cpu` where the cell ran on one."),
    "ns_per_step": Column(
        "Time per step: GPU time of the kernels launched in the range, or host time; see `clock`.", "ns", clock=GPU
    ),
    "launches_per_step": Column("Launches per step; empty on a CPU.", COUNT),
    "api": Column(
        "Of a range of the program's own, what opened it: `nvtx`, or `record_function` of torch.profiler; else empty."
    ),
    "calls_per_step": Column("How often a range of the program's own was opened per step.", COUNT),
    "cpu_ns_per_step": Column("Host time per step for which such a range was open.", "ns", clock=CPU),
    "self_ns_per_step": Column("`ns_per_step` without ranges within.", "ns", clock=GPU),
}
STEPS: Mapping[str, Column] = {
    "busy_share": Column(
        "Part of the unprofiled step in which the GPU works, without waiting for other processes.", FRACTION, clock=GPU
    ),
    "nsys_busy_share": Column("The same part of the step under nsys, which takes longer.", FRACTION, "nsys", GPU),
    "waiting_ns": Column(
        "Time per step in which only kernels ran that communicate and waited for other processes.", "ns", "nsys", GPU
    ),
}
AGREEMENT: Mapping[str, Column] = {
    "flag": Column("What the tools disagree on: `launches`, `time`, both, or nothing."),
    "cause": Column("Why they disagree, where that is known."),
    "launches_spread": Column("Largest less smallest number of launches over the largest, over the tools.", FRACTION),
    "gpu_ns_spread": Column("Largest less smallest GPU time over the largest, over the tools.", FRACTION, clock=GPU),
    "*_launches": Column("Launches per step by the tool that the name begins with.", COUNT),
    "*_gpu_ns": Column("GPU time per step of all kernels by the tool that the name begins with.", "ns", clock=GPU),
    "*_slowdown": Column(
        "Wall time of a step under the tool that the name begins with, over the unprofiled step.", RATIO, clock=CPU
    ),
}
COVERAGE: Mapping[str, Column] = {
    "set": Column("Section set of Nsight Compute."),
    "configurations": Column("Launch configurations that nsys traced.", COUNT, "nsys"),
    "covered": Column("Those of them that ncu profiled.", COUNT, "ncu"),
    "coverage": Column("`covered` over `configurations`.", FRACTION),
    "time_coverage": Column(f"{_OF_WHOLE} in configurations that ncu profiled.", FRACTION, clock=GPU),
    "uneven_time": Column(
        f"{_OF_WHOLE} in configurations of which one profiled launch stands for launches that take unlike times.",
        FRACTION,
        clock=GPU,
    ),
    "other_launches": Column(
        f"{_OF_WHOLE} in configurations of which other launches were profiled than planned.", FRACTION, clock=GPU
    ),
    "extra": Column("Configurations that ncu profiled and nsys did not trace.", COUNT, "ncu"),
    "other_choice": Column(
        "Whether a kernel was launched in one of the two runs only, as by another choice of algorithm."
    ),
    "missing": Column("Functions of the configurations that ncu did not profile, the longest first."),
}
RANKS: Mapping[str, Column] = {
    "waiting_ns": Column(
        "Communication beyond the shortest of the cell's processes: time spent on waiting for others.",
        "ns",
        "nsys",
        GPU,
    ),
    "communication_share": Column("Communication, as a part of the step's wall time.", FRACTION, "nsys", GPU),
    "exposed_share": Column(
        "Communication with no other kernel beside it, as a part of the step's wall time.", FRACTION, "nsys", GPU
    ),
    "overlap_share": Column("Part of the communication beside other kernels.", FRACTION, "nsys", GPU),
    "imbalance": Column("`compute_ns` over the mean of the cell's processes, less one.", RATIO, "nsys", GPU),
}
_PEAKED = " By work counted by ncu and measured peaks."
ROOFLINE: Mapping[str, Column] = {
    "level": Column("`cell`, `class`, `range` or `launch` (launch configuration and range)."),
    "ns": Column("GPU time: of a launch at level `launch`, else per step.", "ns", "nsys", GPU),
    "dram_bytes": Column("Bytes read from and written to DRAM.", "byte", "ncu", interval=NINE_OF_TEN),
    "l2_bytes": Column("Bytes through the L2 cache.", "byte", "ncu", interval=NINE_OF_TEN),
    "simt_flop": Column("Operations of SIMT units, of all precisions.", "flop", "ncu", interval=NINE_OF_TEN),
    "tensor_flop": Column("Operations of tensor cores, of all types.", "flop", "ncu", interval=NINE_OF_TEN),
    "intensity": Column(
        "Arithmetic intensity: operations per byte of DRAM traffic.", "flop/byte", "ncu", interval=NINE_OF_TEN
    ),
    "flop_per_s": Column("Operations per second of GPU time.", "flop/s", clock=GPU, interval=NINE_OF_TEN),
    "dram_bytes_per_s": Column("DRAM traffic per second of GPU time.", "byte/s", clock=GPU, interval=NINE_OF_TEN),
    "dram_ns": Column("Least time that the DRAM traffic takes at the measured peak.", "ns", clock=GPU),
    "l2_ns": Column("Least time that the L2 traffic takes at the measured peak.", "ns", clock=GPU),
    "simt_ns": Column("Least time that the SIMT operations take at the measured peak.", "ns", clock=GPU),
    "tensor_ns": Column("Least time that the tensor-core operations take at the measured peak.", "ns", clock=GPU),
    "efficiency": Column(
        f"Least time under the bound, over the GPU time.{_PEAKED}", FRACTION, clock=GPU, interval=NINE_OF_TEN
    ),
}
PEAKS: Mapping[str, Column] = {
    "peak": Column("What was measured: `dram`, `l2`, or matrix products of a precision."),
    "rate": Column("Measured peak rate; see `unit`.", "see unit"),
    "unit": Column("Unit of `rate`: `byte/s` or `flop/s`."),
    "how": Column("How the peak was measured."),
}
_TIMED = "by nsys where it was traced, else by torch; on a CPU host time"
LAYERS: Mapping[str, Column] = {
    **ROOFLINE,
    "calls": Column("Calls of the module per step; empty for owners that are no module.", COUNT, "torch"),
    "launches": Column("Launches per step, with those of modules below (on a CPU: calls of operators).", COUNT),
    "self_ns": Column(f"GPU time per step without modules below: {_TIMED}.", "ns", clock=GPU),
    "total_ns": Column(f"GPU time per step with modules below: {_TIMED}.", "ns", clock=GPU),
    "share": Column("Part of the time of all layers.", FRACTION, clock=GPU),
    "needed_share": Column("Part of the time in operators whose needs are known.", FRACTION, clock=GPU),
}
_OF_STEPS = "Part of the launches of all traced steps"
REPETITION: Mapping[str, Column] = {
    "tool": Column("Tool whose steps are compared: `nsys` where it traced kernels, else `torch`."),
    "kind": Column("What is compared: each `kernel`, or on a CPU each call of an `operator`."),
    "steps": Column("Steps that are compared.", COUNT),
    "kinds": Column("Different steps among them.", COUNT),
    "launches": Column("Launches per step, as a mean over the steps.", COUNT),
    "least_launches": Column("Launches of the step with the fewest.", COUNT),
    "most_launches": Column("Launches of the step with the most.", COUNT),
    "shared_launches": Column(f"{_OF_STEPS} that every step has: the same kernel, in the same order.", FRACTION),
    "shared_time": Column("Part of the time of all traced steps in these.", FRACTION, clock=GPU),
    "same_launches": Column(f"{_OF_STEPS} that every step has with the same launch configuration.", FRACTION),
    "ns": Column("GPU time of a step's launches, as a mean over the steps.", "ns", clock=GPU),
    "least_ns": Column("GPU time of the launches of the shortest step.", "ns", clock=GPU),
    "most_ns": Column("GPU time of the launches of the longest step.", "ns", clock=GPU),
    "ranges": Column("Parts of the step whose launches differ, the part with the most first."),
    "census_launches": Column("Launches that ncu saw in its own run; empty without counters.", COUNT, "ncu"),
    "census_time": Column(
        "Part of the GPU time of all traced steps in launch configurations that ncu saw.", FRACTION, "nsys", GPU
    ),
    "census_kernel_time": Column("The same in kernels that ncu saw in other shapes only.", FRACTION, "nsys", GPU),
    "says": Column("How the steps differ and what therefore cannot be told, as a sentence."),
}
_OF_PLACE = "GPU time (on a CPU: host time) of the launch among the steps that have it."
STEP_LAUNCHES: Mapping[str, Column] = {
    "place": Column("Place of the launch in the sequence that holds the launches of all steps once, from 0.", COUNT),
    "configurations": Column("Different launch configurations that the kernel has in these steps.", COUNT),
    "mean_ns": Column(f"Mean {_OF_PLACE}", "ns", clock=GPU),
    "min_ns": Column(f"Shortest {_OF_PLACE}", "ns", clock=GPU),
    "max_ns": Column(f"Longest {_OF_PLACE}", "ns", clock=GPU),
}
_CLOCKED = "GPU time per step of the kernels launched in it (on a CPU: host time of operators)"
USER_RANGES: Mapping[str, Column] = {
    **ROOFLINE,
    "api": Column("What the program opened the range with: `nvtx`, or `record_function` of torch.profiler."),
    "range": Column(
        "Range of the program's own behind the names of those around it, joined by ` > `; `(step)` for the whole step, "
        "`(other)` for what is in none."
    ),
    "parent": Column("Range around this one; `(step)` around the outermost ones."),
    "tool": Column("Tool that timed the launches: `nsys` where it was used, else `torch`."),
    "clock": Column("Clock of `total_ns`: `gpu`, or `cpu` where the cell ran on one."),
    "calls": Column("How often the range was opened per step.", COUNT),
    "cpu_ns": Column("Host time per step for which the range was open.", "ns", clock=CPU),
    "launches": Column("Launches per step in the range and those within (on a CPU: calls of operators).", COUNT),
    "self_ns": Column(f"{_CLOCKED}, without ranges within.", "ns", clock=GPU),
    "total_ns": Column(f"{_CLOCKED}, with ranges within; empty where no tool saw launches.", "ns", clock=GPU),
    "share": Column("Part of the time of the whole step.", FRACTION, clock=GPU),
}
OPERATORS: Mapping[str, Column] = {
    **LAYERS,
    "launches": Column("Launches per step (on a CPU: calls).", COUNT),
    "total_ns": Column(f"GPU time per step: {_TIMED}, without what the operator calls.", "ns", clock=GPU),
    "share": Column("Part of the time of all operators.", FRACTION, clock=GPU),
}
LAYER_KERNELS: Mapping[str, Column] = {
    **ROOFLINE,
    "launches": Column("Launches per step.", COUNT),
    "total_ns": Column(
        "GPU time per step of these launches together: by nsys where it was traced, else by torch.", "ns", clock=GPU
    ),
    "mean_ns": Column("Mean GPU time of a launch.", "ns", clock=GPU),
    "share": Column("Part of the GPU time of all kernels.", FRACTION, clock=GPU),
}
OWNERS: Mapping[str, Column] = {
    "launches": Column("Launches per step (on a CPU: calls of operators).", COUNT),
    "total_ns": Column("GPU time per step of all launches; on a CPU host time.", "ns", clock=GPU),
    "operator_share": Column("Part of this time with a known operator.", FRACTION, clock=GPU),
    "module_share": Column("Part of this time with a known module, or another named owner.", FRACTION, clock=GPU),
    "aligned_launches": Column("Part of the kernels that were matched with a launch in torch's steps.", FRACTION),
    "aligned_share": Column(
        "Part of the kernels' GPU time that was matched with launches in torch's steps.", FRACTION, clock=GPU
    ),
    "nsys_share": Column("Part of the kernels' GPU time that nsys timed launch by launch.", FRACTION, "nsys", GPU),
    "unowned": Column("Operators with most of the time that has no module."),
}
