"""What the columns of the tables mean that are made of a trace of nsys."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, CPU, FRACTION, GPU, Column
from profzoo.tools.nsys.gpu_metric_names import PERCENT, QUANTITIES, Quantity


def _gpu(means: str) -> Column:
    return Column(means, "ns", "nsys", GPU)


def _host(means: str) -> Column:
    return Column(means, "ns", "nsys", CPU)


LAUNCHES: Mapping[str, Column] = {
    "range": Column(
        "Part of the step (NVTX range) that was open when the kernel was launched; `outside` for launches outside the "
        "steps of the window in a trace of the whole run.",
        tool="nsys",
    ),
    "launches": Column("Launches in the window.", COUNT, "nsys"),
    "total_ns": _gpu("GPU time of these launches together."),
    "mean_ns": _gpu("Mean GPU time of a launch."),
    "median_ns": _gpu("Median GPU time of a launch."),
    "min_ns": _gpu("Shortest GPU time of a launch."),
    "max_ns": _gpu("Longest GPU time of a launch."),
    "std_ns": _gpu("Standard deviation of the GPU time of a launch (of the population)."),
    "share": Column("Part of the GPU time of all launches in the steps of the window.", FRACTION, "nsys", GPU),
}
STEPS: Mapping[str, Column] = {
    "process": Column("Process ID in the trace.", tool="nsys"),
    "steps": Column(
        "Steps of the trace that the row is of; the first one is left out where there are more.", COUNT, "nsys"
    ),
    "wall_ns": _host("Wall time per step under nsys, from the moment host and device were done with the first step."),
    "busy_ns": _gpu("Time per step in which the GPU did anything."),
    "kernel_ns": _gpu("Time per step in which a kernel ran."),
    "copy_ns": _gpu("Time per step with nothing but copies and memsets."),
    "transfer_ns": _gpu("Part of `copy_ns` with a copy between host and device."),
    "communication_ns": _gpu("Time per step in which a kernel ran that communicates with other GPUs."),
    "overlap_ns": _gpu("Part of `communication_ns` beside other kernels."),
    "idle_ns": _gpu("Time per step in which the GPU did nothing; `busy_ns` and `idle_ns` add up to `wall_ns`."),
    "idle_input_ns": _gpu("Idle time while the host made or copied the input (ranges `data` and `transfer`)."),
    "idle_synchronisation_ns": _gpu(
        "Idle time because the host had waited for the GPU and then had to fill an empty queue."
    ),
    "idle_latency_ns": _gpu("Idle time between a launch and its start on the GPU."),
    "idle_launch_ns": _gpu("Idle time while the host was in a CUDA call that launches or copies."),
    "idle_host_ns": _gpu("Idle time while the host did something else: Python, torch, autograd."),
    "host_ns": _host(
        "Host time per step without waiting for a busy GPU: a step takes that long however fast the kernels."
    ),
    "launches": Column("Launches per step; a CUDA graph that was traced whole counts as one.", COUNT, "nsys"),
    "launch_call_ns": _host("Median duration of a call that launches."),
    "launch_latency_ns": _gpu("Median time from the launching call to the start, of launches that met an idle GPU."),
    "queue_depth": Column("Median number of launches that had not begun when one more was made.", COUNT, "nsys"),
    "cpu_*_ns": _host("Host time per step in the range (part of the step) that the name says."),
}
RANKS: Mapping[str, Column] = {
    **STEPS,
    "host": Column("Name of the node that the process ran on.", tool="nsys"),
    "rank": Column("Rank of the process.", tool="nsys"),
    "compute_ns": _gpu("Time per step in which a kernel ran that does not communicate."),
    "exposed_ns": _gpu("Part of `communication_ns` with no other kernel beside it."),
}
SEQUENCE: Mapping[str, Column] = {
    "id": Column(
        "Place of the launch in the steps of the trace, counted from 0 in the order of launching.", tool="nsys"
    ),
    "step": Column("Number of the step within the window, counted from 0.", tool="nsys"),
    "ns": _gpu("Median GPU time of the launch over the steps."),
    "min_ns": _gpu("Shortest GPU time of the launch over the steps."),
    "max_ns": _gpu("Longest GPU time of the launch over the steps."),
    "steps": Column("Steps that the times are of.", COUNT, "nsys"),
}
TRACKS: Mapping[str, Column] = {
    "track": Column("Name of the track, which is one row below the picture of the typical step.", tool="nsys"),
    "label": Column(
        "What the program or the GPU did during the span; empty where the value alone says it.", tool="nsys"
    ),
    "start_ns": _host("Start of the span, from the start of the typical step on."),
    "end_ns": _host("End of the span, from the start of the typical step on."),
    "value": Column(
        "Mean value during the span, in the unit of the row; empty for a span without a number.", "see unit", "nsys"
    ),
    "unit": Column("Unit of the value, such as `%` or `bytes`.", tool="nsys"),
}


def _sampled(quantity: Quantity, what: str) -> Column:
    unit = f", in % of the most possible{what}" if quantity.unit == PERCENT else ""
    return Column(f"{quantity.means}{unit}.", quantity.unit, "nsys")


GPU_SAMPLES: Mapping[str, Column] = {
    "gpu": Column("Number of the GPU on this machine.", tool="nsys"),
    "step": Column("Step of the window, counted from 0, in which the middle of the sample is.", tool="nsys"),
    "start_ns": Column("Start of the sample, from the start of the first traced step on.", "ns", "nsys", GPU),
    "end_ns": Column("End of the sample, from the start of the first traced step on.", "ns", "nsys", GPU),
    **{one.column: _sampled(one, "") for one in QUANTITIES},
}
GPU_STEPS: Mapping[str, Column] = {
    "gpu": GPU_SAMPLES["gpu"],
    "step": Column("Step of the window, counted from 0.", tool="nsys"),
    "step_ns": _host("Time from the start of the step to the start of the next one, or until the GPU was done."),
    "samples": Column("Samples that meet the step.", COUNT, "nsys"),
    "sampled_share": Column("Part of the step that samples cover.", FRACTION, "nsys", GPU),
    "kernel_share": Column("Part of the step in which a traced kernel ran; no sampled value.", FRACTION, "nsys", GPU),
    "busy_share": Column(
        "Part of the step with a traced kernel, copy or fill; no sampled value.", FRACTION, "nsys", GPU
    ),
    **{f"{one.name}_mean_pct": _sampled(one, ", mean over the step") for one in QUANTITIES},
    **{f"{one.name}_peak_pct": _sampled(one, ", largest sample of the step") for one in QUANTITIES},
    "dram_read_bytes": Column(
        "Bytes that DRAM delivered in the step, from its mean and its peak rate.", "byte", "nsys"
    ),
    "dram_write_bytes": Column("Bytes that DRAM took in the step, from its mean and its peak rate.", "byte", "nsys"),
    "copied_from_bytes": Column("Bytes that traced copies read from the GPU's memory in the step.", "byte", "nsys"),
    "copied_to_bytes": Column("Bytes that traced copies wrote to the GPU's memory in the step.", "byte", "nsys"),
}
GPU_MEMORY: Mapping[str, Column] = {
    "process": Column("Process ID in the trace.", tool="nsys"),
    "gpu": Column("CUDA's number of the GPU in the process; -1 where the export does not tell.", tool="nsys"),
    "kind": Column("Kind of memory: `device`, `pinned` (of the host), `managed` and others of CUPTI.", tool="nsys"),
    "operation": Column(
        "`allocation` or `free`; `before` for all memory that was allocated before the trace.", tool="nsys"
    ),
    "step": Column("Step of the window, counted from 0; empty outside all steps.", tool="nsys"),
    "t_ns": _host("Time of the event, from the start of the first traced step on."),
    "bytes": Column("Bytes that were taken or freed.", "byte", "nsys"),
    "in_use_bytes": Column(
        "Bytes of this kind in use after the event. Where nsys does not tell what was allocated before the trace, such "
        "memory is in it only if the trace sees it freed.",
        "byte",
        "nsys",
    ),
    "peak_bytes": Column("Largest `in_use_bytes` up to here.", "byte", "nsys"),
    "allocated_before": Column("Whether the memory was allocated before the trace.", tool="nsys"),
}
_PLACE: Mapping[str, Column] = {
    "process": Column("Process ID in the trace.", tool="nsys"),
    "gpu": Column(
        "Number of the GPU in the process, counted from 0; empty if the trace does not tell it.", tool="nsys"
    ),
    "stream": Column("Number of the CUDA stream in the trace; `all` in the row of all streams together.", tool="nsys"),
    "steps": Column(
        "Steps of the trace that the row is of; the first one is left out where there are more.", COUNT, "nsys"
    ),
}
STREAMS: Mapping[str, Column] = {
    **_PLACE,
    "kernels": Column("Kernels per step; a CUDA graph that was traced whole counts as one.", COUNT, "nsys"),
    "copies": Column("Copies per step.", COUNT, "nsys"),
    "memsets": Column("Memsets per step.", COUNT, "nsys"),
    "busy_ns": _gpu("Time per step in which the stream did anything."),
    "kernel_ns": _gpu("Time per step in which a kernel of the stream ran."),
    "copy_ns": _gpu("Time per step in which the stream copied and ran no kernel."),
    "memset_ns": _gpu("Time per step in which the stream did nothing but set memory."),
    "alone_ns": _gpu("Part of `busy_ns` in which one stream of the GPU is busy."),
    "copy_beside_kernel_ns": _gpu(
        "Part of `busy_ns` in which a stream of the GPU copies or sets memory and another one runs a kernel."
    ),
    "kernel_beside_kernel_ns": _gpu("Part of `busy_ns` in which several streams of the GPU run kernels, none copies."),
    "copy_beside_copy_ns": _gpu(
        "Part of `busy_ns` in which several streams of the GPU copy or set memory, and none runs a kernel."
    ),
    "part_ns": _gpu(
        "Share of the stream in the busy time of the GPU: a moment in which several streams are busy is split equally "
        "among them, so that the streams add up to `busy_ns` of `all`."
    ),
}
COPIES: Mapping[str, Column] = {
    **_PLACE,
    "kind": Column(
        "Direction of the copies, such as `host to device`, `device to device` or `peer to peer` (between GPUs).",
        tool="nsys",
    ),
    "source": Column("Memory that is read: `pageable`, `pinned`, `device`, `managed` or another kind.", tool="nsys"),
    "target": Column("Memory that is written, in the same words.", tool="nsys"),
    "copies": Column("Copies per step.", COUNT, "nsys"),
    "bytes": Column("Bytes copied per step; empty if the trace does not tell them.", "byte", "nsys"),
    "total_ns": _gpu("Time per step that these copies take, one after another."),
    "beside_kernel_ns": _gpu("Part of `total_ns` in which a kernel of another stream ran on the same GPU."),
    "bytes_per_s": Column("Bandwidth of these copies: their bytes by their time.", "byte/s", "nsys", GPU),
    "largest_bytes": Column("Bytes of the largest of these copies.", "byte", "nsys"),
    "largest_bytes_per_s": Column(
        "Bandwidth of the largest of these copies, which start-up time lowers least.", "byte/s", "nsys", GPU
    ),
}
