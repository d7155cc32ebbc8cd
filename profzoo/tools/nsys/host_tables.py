"""Makes a cell's tables of threads, of calls off the CPU, of CPU samples, and of idle time by call, from its trace."""

from collections.abc import Callable, Mapping

import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.nsys import call_stacks, host_events, idle_calls, process_events, sample_table, thread_table
from profzoo.tools.nsys.host_events import CALL_CHAINS, COLLECTED_BY, SAMPLES, SWITCHES, SYSTEM_CALLS, HostEvents
from profzoo.tools.nsys.trace import explain_no_steps, open_export

# Options of nsys that ask for what a table holds, as in the command of a sidecar; `none` asks for nothing.
ASKED_BY: Mapping[str, tuple[str, ...]] = {
    SAMPLES: ("--sample=",),
    SWITCHES: ("--cpuctxsw=",),
    SYSTEM_CALLS: ("--trace=",),
}
RECORDED_NONE = "nsys was asked for them and recorded none"
# Of these, `snakemake doctor` says whether nsys may record them.
NEEDS_PERMISSION = (SAMPLES, SWITCHES)


def make_tables(path: str, whole_run: bool = False) -> tuple[dict[str, pd.DataFrame], HostEvents]:
    """Return the tables of an export by name, `threads`, `off_cpu`, `samples` and `idle`, and what they were made of.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is no export of nsys.
    """
    events = host_events.read_host_events(path, whole_run)
    idle = idle_calls.tabulate_idle(events, list(process_events.read_processes(path, whole_run)))
    with open_export(path) as (database, tables):
        frames = sample_table.read_frames(database, tables, events)
        chains = [int(chain) for chain in idle["chain"].unique() if chain > 0]
        stacks = call_stacks.read_stacks(database, tables, CALL_CHAINS, chains)
    threads, off_cpu = thread_table.tabulate_threads(events, sample_table.innermost_functions(frames))
    made = {
        "threads": threads,
        "off_cpu": off_cpu,
        "samples": sample_table.tabulate_samples(frames, events),
        "idle": idle_calls.name_callers(idle, stacks),
    }
    return made, events


def main(sqlite: str, report_sidecar: str, outputs: Mapping[str, str], say: Callable[[str], object] = print) -> None:
    """Read the export and its report's sidecar; write the tables, and say what was asked for and is not in the trace.

    outputs: paths of the tables by name. What nobody asked for goes to the log alone.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    whole_run = facts["capture"] == "run"
    made, events = make_tables(sqlite, whole_run)
    if lacking := explain_no_steps(sqlite, whole_run):
        # This goes to the log only; the export of the same trace tells the user.
        print(f"{outputs['threads']} has no row, as {sqlite} {lacking}")
    for table, why in events.lacking.items():
        if was_asked_for(table, facts.get("command", [])):
            say(f"{sqlite}: {explain_asked(table, why)}")
        else:
            print(f"{sqlite}: {why}")
    for name, path in outputs.items():
        write_csv(made[name], path)


def explain_asked(table: str, why: str) -> str:
    """Return why a table is missing that the user asked for: a line of HostEvents.lacking, without advice to ask.

    >>> explain_asked("OSRT_API", "the trace holds no calls: have osrt in nsys.traces")
    'the trace holds no calls: nsys was asked for them and recorded none'
    """
    advice = COLLECTED_BY[table]
    if not why.endswith(advice):
        return why
    permission = "; `snakemake doctor` says whether this machine allows it" if table in NEEDS_PERMISSION else ""
    return f"{why.removesuffix(advice)}{RECORDED_NONE}{permission}"


def was_asked_for(table: str, command: object) -> bool:
    """Whether the command of nsys asked for what a table of the export holds.

    >>> was_asked_for("SCHED_EVENTS", ["nsys", "profile", "--cpuctxsw=process-tree"])
    True
    >>> was_asked_for("SCHED_EVENTS", ["nsys", "profile", "--cpuctxsw=none"]), was_asked_for("SCHED_EVENTS", [])
    (False, False)
    >>> was_asked_for("OSRT_API", ["nsys", "profile", "--trace=cuda,nvtx"])
    False
    """
    words = [str(word) for word in command] if isinstance(command, list) else []
    given = [word.removeprefix(option) for option in ASKED_BY[table] for word in words if word.startswith(option)]
    return any("osrt" in value.split(",") if table == SYSTEM_CALLS else value != "none" for value in given)
