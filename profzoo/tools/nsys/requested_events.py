"""Says whether nsys was asked for events, and why a trace lacks those of the host."""

from collections.abc import Mapping, Sequence

from profzoo.tools.nsys import gpu_memory, gpu_metrics
from profzoo.tools.nsys.host_events import COLLECTED_BY, SAMPLES, SWITCHES, SYSTEM_CALLS

# Options of nsys that ask for what a table holds, as in the command of a sidecar, and values that ask for nothing.
ASKED_BY: Mapping[str, tuple[str, ...]] = {
    SAMPLES: ("--sample=",),
    SWITCHES: ("--cpuctxsw=",),
    SYSTEM_CALLS: ("--trace=",),
    gpu_metrics.SAMPLES: ("--gpu-metrics-devices=", "--gpu-metrics-device="),
    gpu_memory.EVENTS: ("--cuda-memory-usage=",),
}
ASKS_NOTHING = ("none", "false")
# Work on a GPU has no table of its own here; this advice ends the reason why there is none.
TRACE_CUDA = ": trace cuda (nsys.traces)"
RECORDED_NONE = "nsys was asked for them and recorded none"
# nsys needs permission to record these, and `snakemake doctor` checks it.
NEEDS_PERMISSION = (SAMPLES, SWITCHES)


def explain(why: str, command: object) -> str:
    """Return the reason why events are missing, without the advice to ask for them if nsys was asked.

    Args:
        why: reason as in HostEvents.lacking, or another line, which is returned as it is.
        command: command line of nsys, as in a sidecar.

    >>> line = "the trace holds no context switches: set nsys.cpuctxsw to process-tree"
    >>> explain(line, ["nsys", "profile", "--cpuctxsw=none"]) == line
    True
    >>> explain(line, ["nsys", "profile", "--cpuctxsw=process-tree"]).partition("; ")[0]
    'the trace holds no context switches: nsys was asked for them and recorded none'
    """
    if why.endswith(TRACE_CUDA) and _traces(command, "cuda"):
        return why.removesuffix(TRACE_CUDA)
    for table, advice in COLLECTED_BY.items():
        if why.endswith(advice) and was_asked_for(table, command):
            permission = "; `snakemake doctor` says whether this machine allows it" if table in NEEDS_PERMISSION else ""
            return f"{why.removesuffix(advice)}{RECORDED_NONE}{permission}"
    return why


def was_asked_for(table: str, command: object) -> bool:
    """Whether the command of nsys asked for what a table of the export holds.

    >>> was_asked_for("SCHED_EVENTS", ["nsys", "profile", "--cpuctxsw=process-tree"])
    True
    >>> was_asked_for("SCHED_EVENTS", ["nsys", "profile", "--cpuctxsw=none"]), was_asked_for("SCHED_EVENTS", [])
    (False, False)
    >>> was_asked_for("OSRT_API", ["nsys", "profile", "--trace=cuda,nvtx"])
    False
    >>> was_asked_for("GPU_METRICS", ["nsys", "profile", "--gpu-metrics-device=all"])
    True
    """
    if table == SYSTEM_CALLS:
        return _traces(command, "osrt")
    return any(value not in ASKS_NOTHING for value in _values(command, ASKED_BY[table]))


def _traces(command: object, kind: str) -> bool:
    return any(kind in value.split(",") for value in _values(command, ASKED_BY[SYSTEM_CALLS]))


def _values(command: object, options: Sequence[str]) -> list[str]:
    """Return the values of options in a command line; options: with their equals signs."""
    words = [str(word) for word in command] if isinstance(command, list) else []
    return [word.removeprefix(option) for option in options for word in words if word.startswith(option)]
