"""What the columns of the tables mean that simulated steps are in."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, CPU, GPU, NINE_OF_TEN, RATIO, Column


def _host(means: str) -> Column:
    return Column(means, "ns", "nsys", CPU)


GAINS: Mapping[str, Column] = {
    "process": Column("Process ID in the trace.", tool="nsys"),
    "change": Column("Change that was simulated on the traced steps, such as `graph` or `host_2x`."),
    "step_ns": Column("Simulated step without the change, at the length of the unprofiled step.", "ns", clock=GPU),
    "predicted_ns": Column("Simulated step with the change.", "ns", clock=GPU),
    "gain": Column("Predicted speedup: `step_ns` over `predicted_ns`.", RATIO, interval=NINE_OF_TEN),
    "low": Column("Lower end of the 90 % interval of `gain`; empty of a single step.", RATIO),
    "high": Column("Upper end of the 90 % interval of `gain`; empty of a single step.", RATIO),
}
HOST: Mapping[str, Column] = {
    "process": Column("Process ID in the trace.", tool="nsys"),
    "steps": Column("Traced steps that the row is of.", COUNT, "nsys"),
    "traced_ns": _host("Step under nsys."),
    "replayed_ns": _host("The same step as the simulation has it: how near it is to `traced_ns` tells how good it is."),
    "step_ns": Column("Simulated step without the tracer, at the length of the unprofiled step.", "ns", clock=GPU),
    "slowdown": Column("How many times slower nsys makes the host.", RATIO, "nsys", CPU),
    "cpu_ns": _host("Host time per step under nsys: the sum of the parts that follow."),
    "framework_ns": _host("Host time per step in Python and the framework, between calls of CUDA."),
    "input_ns": _host("Host time per step in making and copying the input (ranges `data` and `transfer`)."),
    "library_ns": _host("Host time per step in cuDNN and cuBLAS, and in calls of CUDA that launch nothing."),
    "launch_ns": _host("Host time per step in calls that launch, without waiting."),
    "waiting_ns": _host("Host time per step of waiting for the GPU."),
    "ahead_ns": _host(
        "How long before the GPU the host is done with a step; negative where it had been further ahead before."
    ),
    "busy_ns": Column("Time per step in which the GPU did anything.", "ns", "nsys", GPU),
    "balance": Column("Host time without waiting over `busy_ns`: above 1 the step waits for the host.", RATIO, "nsys"),
    "launches": Column("Calls that launch per step; a CUDA graph is one.", COUNT, "nsys"),
    "launch_call_ns": _host("Median duration of a call that launches."),
    "latency_ns": Column(
        "Median time from a launching call to the start, of launches that met an idle GPU.", "ns", "nsys", GPU
    ),
    "helps": Column("Simulated change that spares the host and gains most; `none` where none is worth it."),
}
