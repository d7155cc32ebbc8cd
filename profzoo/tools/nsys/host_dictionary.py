"""What the columns of the tables mean that tell what threads of the host did in a trace of nsys."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, CPU, FRACTION, GPU, Column


def _host(means: str) -> Column:
    return Column(means, "ns", "nsys", CPU)


def _count(means: str) -> Column:
    return Column(means, COUNT, "nsys")


WHO: Mapping[str, Column] = {
    "process": Column("Process ID of the thread.", tool="nsys"),
    "step": Column("Number of the step within the window, counted from 0.", tool="nsys"),
    "thread": Column(
        "Number of the thread in the operating system; that of the process for its main thread.", tool="nsys"
    ),
    "name": Column("Name of the thread in the operating system; empty where the trace has none.", tool="nsys"),
}
PREEMPTED = (
    "Part of `off_ns` in which the thread could have run; empty where this nsys does not say why a thread leaves."
)
THREADS: Mapping[str, Column] = {
    **WHO,
    "runs_step": Column("Whether the thread ran the step, that is, opened its range.", tool="nsys"),
    "wall_ns": _host("Duration of the step; `running_ns`, `off_ns` and `lost_ns` add up to it."),
    "running_ns": _host(
        "Time that the thread was on a CPU; empty, as all of its kind, without context switches (`nsys.cpuctxsw`)."
    ),
    "off_ns": _host("Time that the thread was off the CPU."),
    "lost_ns": _host("Time of which neither is known, because the trace lost a context switch."),
    "preempted_ns": _host(PREEMPTED),
    "switches": _count("How often the thread left the CPU within the step."),
    "core": Column("Number of the core that the thread ran on for longest; empty if it did not run.", tool="nsys"),
    "cores": _count("Cores that the thread ran on within the step."),
    "migrations": _count("How often the thread went on on another core within the step."),
    "os_calls": _count("Calls of the operating system's libraries (`osrt` among `nsys.traces`), outermost ones."),
    "os_call_ns": _host("Time in these calls, most of which waits."),
    "cuda_calls": _count("Calls of CUDA, outermost ones; empty in a trace without any."),
    "cuda_call_ns": _host("Time in these calls."),
    "left_in": Column(
        "Call of the operating system, or else of CUDA, in which the thread was off the CPU for longest; empty if it "
        "was in none.",
        tool="nsys",
    ),
    "left_in_ns": _host("How long the thread was off the CPU in this call."),
    "samples": _count("CPU samples of the thread within the step (`nsys.sample`), a millisecond each by default."),
    "function": Column("Function that most of these samples were in.", tool="nsys"),
    "function_share": Column("Part of the samples that were in this function.", FRACTION, "nsys"),
}
OFF_CPU: Mapping[str, Column] = {
    **WHO,
    "cuda_call": Column("Call of CUDA in which the thread was when it left the CPU; empty for none.", tool="nsys"),
    "os_call": Column(
        "Call of the operating system in which the thread was when it left the CPU; empty for none: it was taken from "
        "the CPU, or waited in a call that nsys does not trace.",
        tool="nsys",
    ),
    "switches": THREADS["switches"],
    "off_ns": _host(
        "Time off the CPU after leaving in these calls; adds up to `off_ns` of the thread and step in "
        "`{phase}.nsys-threads.csv`."
    ),
    "longest_ns": _host("Longest single time off the CPU."),
    "preempted_ns": _host(PREEMPTED),
}
SAMPLES: Mapping[str, Column] = {
    **WHO,
    "function": Column("Function; `[unresolved]` for all whose names nsys did not find.", tool="nsys"),
    "module": Column("Library or program that the function is of.", tool="nsys"),
    "samples": _count("CPU samples of all steps in which this function itself ran."),
    "share": Column("Part of the thread's samples.", FRACTION, "nsys"),
    "stack_samples": _count(
        "CPU samples in which this function ran, or what it called; the same as `samples` without call stacks "
        "(`nsys.backtrace`)."
    ),
    "stack_share": Column("Part of the thread's samples that this is.", FRACTION, "nsys"),
}
IDLE: Mapping[str, Column] = {
    **WHO,
    "cause": Column(
        "Cause of idle time, as in `idle_{cause}_ns` of `{phase}.nsys-steps.csv`: input, synchronisation, latency, "
        "launch or host.",
        tool="nsys",
    ),
    "thread": Column("Number of the thread that made the next launch.", tool="nsys"),
    "os_call": Column(
        "Call of the operating system in which this thread was while the GPU was idle; empty for time in none.",
        tool="nsys",
    ),
    "kind": Column(
        "What a thread waits for in such a call: lock, condition, thread, sleep, poll, socket, memory, device, file or "
        "other.",
        tool="nsys",
    ),
    "idle_ns": Column(
        "Idle time of the GPU per step with this cause and call; rows add up to `idle_ns` of `{phase}.nsys-steps.csv`.",
        "ns",
        "nsys",
        GPU,
    ),
    "off_ns": _host(
        "Part of `idle_ns` in which the thread was off the CPU; empty without context switches (`nsys.cpuctxsw`)."
    ),
    "calls": _count("Calls per step in which the GPU was idle."),
    "woken_by": Column(
        "Number of the thread that ended most of this wait: the last that called what ends such waits. Empty where "
        "that is unknown.",
        tool="nsys",
    ),
    "file": Column(
        "File that most of this time was spent on, without its folder; empty unless nsys records it "
        "(`nsys.extra: [--osrt-file-access=true]`, in newer releases).",
        tool="nsys",
    ),
    "caller": Column(
        "Function that made the longest of these calls, outside of the C library; empty without call stacks "
        "(`nsys.backtrace`).",
        tool="nsys",
    ),
    "caller_module": Column("Library or program that this function is of.", tool="nsys"),
}
