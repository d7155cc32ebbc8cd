"""Builds the command line of Nsight Compute and rejects settings that it cannot combine."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.cell.cell_types import CellSettings
from profzoo.cell.job_types import LaunchOptions, Plan
from profzoo.cell.process_count import process_count
from profzoo.errors import CollectError, ConfigError, suggest_nearest
from profzoo.machine import gpus, job_limits
from profzoo.range_names import DOMAIN, GRAPH, make_nvtx_name
from profzoo.tools import defaults
from profzoo.tools.kernel_signature import exclusion_expression
from profzoo.tools.ncu import quantities
from profzoo.tools.ncu.quantities import metrics_to_ask

if TYPE_CHECKING:
    from profzoo.cell.tool_types import NcuSettings, SectionSet


# Replaces metric names in a command by the names that the GPU uses.

METRICS = "--metrics"


def translate_metrics(command: Sequence[str], capabilities: Collection[float]) -> list[str]:
    """Return the command with metric names for GPUs of these compute capabilities; unchanged if none is known.

    >>> translate_metrics(["ncu", "--metrics", "dram__bytes_read.sum", "run"], [12.0])
    ['ncu', '--metrics', 'dram__bytes_op_read.sum,dram__bytes_op_write.sum', 'run']
    """
    words = list(command)
    for place, word in enumerate(words[:-1]):
        if word == METRICS and capabilities:
            names = words[place + 1].split(",")
            # GPUs that differ are each asked by the names that any of them has.
            found = [name for capability in sorted(capabilities) for name in metrics_to_ask(names, capability)]
            words[place + 1] = ",".join(dict.fromkeys(found))
    return words


# Lists options that `ncu.extra` may not contain: options that the workflow sets itself, or that break it.

# What the workflow passes itself, with the key to change instead.
OWN_OPTIONS = {
    "-o": "the target file",
    "--export": "the target file",
    "-f": "the target file",
    "--force-overwrite": "the target file",
    "-i": "the target file",
    "--import": "the target file",
    "--csv": "the target file",
    "--page": "the target file",
    "--log-file": "the rule's log",
    "--set": "ncu.sets",
    "--section": "ncu.sets",
    "--metrics": "ncu.sets",
    "--replay-mode": "ncu.replay",
    "--target-processes": "ncu.target_processes",
    "--target-processes-filter": "ncu.target_processes_filter",
    "-k": "ncu.kernel_name",
    "--kernel-name": "ncu.kernel_name",
    "--kernel-name-base": "ncu.launches",
    "--kernel-id": "ncu.launches",
    "--nvtx-include": "ncu.sets",
    "--filter-mode": "ncu.launches",
    "-c": "ncu.launches",
    "--launch-count": "ncu.launches",
    "--devices": "ncu.devices",
    "--cache-control": "ncu.cache_control",
    "--clock-control": "ncu.clock_control",
    "--import-sass": "ncu.sass",
    "--import-source": "ncu.sass",
    "--profile-from-start": "warmup and window",
    "--nvtx": "nothing, it is always on",
    "--nvtx-push-pop-scope": "nothing, it is always process",
}
OTHER_LAUNCHES = "profiles other launches than the workflow expects, so results would be matched with wrong launches"
NOTHING = "profiles nothing"
OTHER_OPTIONS = "gives options that the workflow does not see"
# Why each of the others is refused. Of some the value matters, but all values that do no harm are ncu's defaults.
REFUSED = {
    "-s": f"{OTHER_LAUNCHES}; warmup says which steps come first, ncu.kernel_name which kernels count",
    "--launch-skip": f"{OTHER_LAUNCHES}; warmup says which steps come first, ncu.kernel_name which kernels count",
    "--launch-skip-before-match": f"{OTHER_LAUNCHES}; warmup says which steps come first",
    "--range-filter": f"{OTHER_LAUNCHES}; warmup and window say which steps are profiled",
    "--nvtx-exclude": f"{OTHER_LAUNCHES}; ncu.sets.NAME.ranges says which parts of a step are measured",
    "--native-include": f"{OTHER_LAUNCHES}; ncu.kernel_name says which kernels count",
    "--native-exclude": f"{OTHER_LAUNCHES}; ncu.kernel_name says which kernels count",
    "--python-include": f"{OTHER_LAUNCHES}; ncu.kernel_name says which kernels count",
    "--python-exclude": f"{OTHER_LAUNCHES}; ncu.kernel_name says which kernels count",
    "--disable-profiler-start-stop": f"{OTHER_LAUNCHES}; warmup and window say which steps are profiled",
    "--app-replay-match": f"{OTHER_LAUNCHES} where it is `name`; set ncu.replay to kernel if launches differ",
    "--app-replay-mode": f"{OTHER_LAUNCHES} where it is `relaxed`; set ncu.replay to kernel if launches differ",
    "--kill": "ends the program before it has written the files that the workflow needs; drop it",
    "--config-file-path": f"{OTHER_OPTIONS}; give them in ncu.extra or ncu.sets",
    "--mode": f"{NOTHING} of the cell where it waits for another ncu; drop it",
    "--hostname": f"{NOTHING} of the cell, but a program on another machine; drop it",
    "--mps": "profiles processes that the workflow did not start; drop it",
    "--open-in-ui": "opens a window; open the report once it is there",
    "-h": NOTHING,
    "--help": NOTHING,
    "-v": NOTHING,
    "--version": NOTHING,
    "--list-sets": NOTHING,
    "--list-sections": NOTHING,
    "--list-rules": NOTHING,
    "--list-metrics": NOTHING,
    "--list-chips": NOTHING,
    "--query-metrics": NOTHING,
    "--query-metrics-mode": NOTHING,
    "--query-metrics-collection": NOTHING,
    "--chips": NOTHING,
    "--section-folder-restore": "changes files of ncu; run ncu with it outside the workflow",
}
# Others, which those begin with.
WHOLE = ("--config-file", "--section-folder")
PROGRAM = "ncu"
INSTALL = "install NVIDIA Nsight Compute, or load its module: `ncu --version` must work"
# Runs it in the first of several processes, or in each.
RANKS = ["python", "-m", "profzoo.collect.profile_ranks"]
# How it profiles CUDA graphs, and the ranges that have no launches where a training step is one.
GRAPH_PROFILING = "--graph-profiling"
CAPTURED = ("forward", "loss", "backward", "optimizer")
# Runs it several times, each time for other launches: between the words of its runs, and before those of all runs.
SEVERAL = ["python", "-m", "profzoo.tools.ncu.multi_run"]
THEN, IN_ALL = "--then", "--in-all"
# Has the programs of these runs forked from a server below ncu; and ncu's last option.
ATTACH, EXPORT = "--attach", "--export"
# Options of the ncu that launches the server, which cells have by default; and all that no ncu that attaches may have.
AT_LAUNCH = {"--target-processes": "all", "--nvtx": "", "--nvtx-push-pop-scope": "process"}
ONLY_AT_LAUNCH = {
    *AT_LAUNCH, "--target-processes-filter", "--check-exit-code", "--forward-signals", "--call-stack", "--null-stdin",
    "--call-stack-type", "--injection-path-32", "--injection-path-64", "--preload-library", "--support-32bit",
    "--max-connections", "--port", "-p",
}  # fmt: skip
# In these modes ncu has to start the program itself.
LAUNCHING = ("application", "app-range")
# The section set whose launches are counted.
CENSUS = "launch"
# What `operations` may be: those that earlier reports have counted are taken from these, or all are counted.
KNOWN = "known"
# What `launches` may be where a plan chooses them by what launches tell of each other.
SAMPLED, DISTINCT = "sampled", "distinct"
# Parts of a launch configuration that ncu shows as metrics only; they take no pass.
SHARED_MEMORY = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
RANGE_REPLAY = ("range", "app-range")
# Launches that do the same differ by as much.
LEAST_ERROR = 0.001


def adapt_to_cell(ncu: "NcuSettings", name: str, cell: CellSettings) -> "NcuSettings":
    """Return ncu's configuration for one section set of a cell.

    Of several processes, kernels that communicate are counted, not replayed. Of a step in CUDA graphs,
    each kernel is a launch. Of a cell that multiplies in 8 bits, these products are counted too.

    Raises:
        ConfigError: the set measures ranges that a captured step has not.
    """
    lost = set(ncu["sets"][name].get("ranges", ())) & set(CAPTURED) if cell.get("graph") else set()
    if lost and cell["phase"] == "train":
        raise ConfigError(
            f"ncu.sets.{name}.ranges holds {sorted(lost)[0]}, and {cell['model']} replays its step in one range: "
            f"measure {GRAPH}, or leave graph out"
        )
    if cell.get("graph") or cell["compile"] == "reduce-overhead":
        given = any(word.startswith(GRAPH_PROFILING) for word in ncu["extra"])
        ncu = {**ncu, "extra": [*ncu["extra"], *([] if given else [GRAPH_PROFILING, "node"])]}
    if cell.get("precision") in quantities.EIGHT_BITS.values() and (asked := ncu["sets"][name].get("metrics")):
        counted = quantities.add_eight_bit_metrics(asked, cell["precision"])
        ncu = {**ncu, "sets": {**ncu["sets"], name: {**ncu["sets"][name], "metrics": counted}}}
    if process_count(cell) == 1 or name == CENSUS:
        return ncu
    return {**ncu, "kernel_name": exclusion_expression(ncu["kernel_name"])}


def launch_selection(ncu: LaunchOptions, name: str) -> str | int:
    """Return the launch selection of a section set: its own, or else `ncu.launches`."""
    return ncu["sets"][name].get("launches", ncu["launches"])


def replay_mode(ncu: LaunchOptions, name: str) -> str:
    """Return the replay mode of a section set: its own, or else `ncu.replay`.

    The census is of launches, whatever the other sets measure.
    """
    general = "kernel" if name == CENSUS and ncu["replay"] in RANGE_REPLAY else ncu["replay"]
    return ncu["sets"][name].get("replay", general)


def measures_ranges(ncu: LaunchOptions, name: str) -> bool:
    """Return whether a section set measures whole ranges instead of launches."""
    return replay_mode(ncu, name) in RANGE_REPLAY


def launch_sets(ncu: "NcuSettings") -> list[str]:
    """List the section sets for tables of kernels, by priority: the default set, then the census.

    A default set that measures ranges has no launches to go into them, and a census that nsys traced no counters.
    Cells whose trace tells no launches have the census besides.
    """
    counted = [CENSUS] if ncu["census"] == "ncu" else []
    return list(dict.fromkeys([*([] if measures_ranges(ncu, ncu["set"]) else [ncu["set"]]), *counted]))


def needs_plan(ncu: LaunchOptions, name: str) -> bool:
    """Return whether a plan, made from the census, decides the replay mode and launches of a section set."""
    return name != CENSUS and not measures_ranges(ncu, name)


def samples_launches(ncu: LaunchOptions, name: str) -> bool:
    """Return whether a plan samples launches of a section set to reach a target error, possibly in several runs."""
    return needs_plan(ncu, name) and launch_selection(ncu, name) == SAMPLED


def parse_percent(percent: str) -> float:
    """Convert a percentage such as "2%" to a fraction.

    >>> parse_percent("2%"), parse_percent("0.5%")
    (0.02, 0.005)
    """
    return float(percent.removesuffix("%")) / 100


def parse_budget(budget: str | float) -> float:
    """Convert a budget to seconds.

    >>> parse_budget("2m"), parse_budget("90s"), parse_budget(30)
    (120.0, 90.0, 30.0)
    """
    return job_limits.parse_seconds(budget, "ncu.budget")


def selection_options(ncu: LaunchOptions, name: str) -> list[str]:
    """Return ncu's options that select the launches that the section set is configured to profile."""
    chosen, words = launch_selection(ncu, name), []
    if chosen in (SAMPLED, DISTINCT):
        # Without mangled names, instances of one template count as one configuration and all but one are lost.
        words = ["--filter-mode", "per-launch-config", "--launch-count", "1", "--kernel-name-base", "mangled"]
    elif chosen != "all":
        words = ["--launch-count", str(chosen)]
    if ncu["kernel_name"]:
        words += ["--kernel-name", f"regex:{ncu['kernel_name']}"]
    return words


def options(ncu: "NcuSettings", name: str) -> list[str]:
    """Return ncu's options for the named section set, except the report's name and the options that a plan decides."""
    chosen = ncu["sets"][name]
    words = ["--force-overwrite", "--target-processes", ncu["target_processes"]]
    if measures_ranges(ncu, name):
        words += ["--replay-mode", replay_mode(ncu, name)]
        for part in chosen.get("ranges", []):
            words += ["--nvtx-include", f"{DOMAIN}@{make_nvtx_name(part)}/"]
    else:
        # Range replay takes the window between profiler start and stop as its range, and refuses this option.
        words += ["--profile-from-start", "off"]
        if not needs_plan(ncu, name):
            mode = "application" if replay_mode(ncu, name) == "application" else "kernel"
            words += ["--replay-mode", mode, *selection_options(ncu, name)]
    # Ranges belong to the thread that opened them; autograd launches the backward pass from another one.
    words += ["--nvtx", "--nvtx-push-pop-scope", "process"]
    words += ["--cache-control", chosen.get("cache_control", ncu["cache_control"])]
    words += ["--clock-control", ncu["clock_control"]]
    words += ["--import-sass", *(["yes", "--import-source", "yes"] if chosen.get("sass", ncu["sass"]) else ["no"])]
    if ncu["target_processes_filter"]:
        words += ["--target-processes-filter", ncu["target_processes_filter"]]
    if ncu["devices"]:
        words += ["--devices", ",".join(map(str, ncu["devices"]))]
    return words + section_options(chosen, () if measures_ranges(ncu, name) else SHARED_MEMORY) + ncu["extra"]


def section_options(chosen: "SectionSet", also: Sequence[str] = ()) -> list[str]:
    """Return ncu's options that collect the sections and metrics of a section set and the metrics `also`."""
    words = ["--set", chosen["set"]] if "set" in chosen else []
    sections = chosen.get("sections", [])
    for section in [sections] if isinstance(sections, str) else sections:
        words += ["--section", section]
    metrics = list(dict.fromkeys([*chosen.get("metrics", []), *also]))
    return words + (["--metrics", ",".join(metrics)] if metrics else [])


def wrap_command(options: Sequence[str], made: Mapping[str, Path], processes: int) -> list[str]:
    """Return the ncu command with its options and report.

    With several processes, ncu reports only on the first one, or on each one by host and rank if `ranks` is an output.
    With several runs, later reports go into the folder `more`.

    >>> wrap_command(["--set", "full"], {"report": Path("x.ncu-rep")}, 1)
    ['ncu', '--set', 'full', '--export', 'x.ncu-rep']
    """
    ranks = made.get("ranks")
    export = [EXPORT, str(ranks / "%h.%q{RANK}" if ranks else made["report"])]
    if THEN in options:
        at = list(options).index(IN_ALL) + 1
        return [*SEVERAL, str(made["more"]), *options[:at], PROGRAM, *options[at:], *export, "--"]
    words = keep_first_metrics([PROGRAM, *(word for word in options if word != IN_ALL), *export])
    return [*RANKS, "all" if ranks else "first", *words, "--"] if processes > 1 else words


def keep_first_metrics(words: Sequence[str]) -> list[str]:
    """Return a command of ncu with its first list of metrics alone: that of a plan precedes that of the section set.

    >>> keep_first_metrics(["ncu", "--metrics", "a", "--nvtx", "--metrics", "a,b", "--export", "x"])
    ['ncu', '--metrics', 'a', '--nvtx', '--export', 'x']
    """
    places = [place for place, word in enumerate(words) if word == METRICS][1:]
    return [word for place, word in enumerate(words) if not {place, place - 1} & set(places)]


def run_options(options: Sequence[str]) -> list[list[str]]:
    """Split the options of a plan into the options of each run.

    >>> run_options(["--launch-count", "1", "--then", "--launch-count", "2", "--in-all", "--replay-mode", "kernel"])
    [['--launch-count', '1'], ['--launch-count', '2']]
    """
    own = list(options)[: list(options).index(IN_ALL)] if IN_ALL in options else list(options)
    ends = [place for place, word in enumerate(own) if word == THEN]
    return [own[start + 1 : end] for start, end in zip([-1, *ends], [*ends, len(own)], strict=True)]


def launch_server(port: int) -> list[str]:
    """Return the command of the ncu below which a server runs whose forks wait for another ncu; port: the first."""
    words = [word for option in AT_LAUNCH.items() for word in option if word]
    return [PROGRAM, "--mode=launch", "--port", str(port), *words]


def split_launch(options: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split options into those that only an ncu may have that launches the program, and those of one that attaches.

    >>> split_launch("--target-processes all --nvtx --cache-control all".split())
    ({'--target-processes': 'all', '--nvtx': ''}, ['--cache-control', 'all'])
    """
    launch, other, rest = dict[str, str](), list[str](), list(options)
    while rest:
        name, _, value = (word := rest.pop(0)).partition("=")
        if name not in ONLY_AT_LAUNCH:
            other.append(word)
        elif value or not AT_LAUNCH.get(name):
            launch[name] = value
        else:
            launch[name] = rest.pop(0)
    return launch, other


def attach_command(command: Sequence[str], server: Sequence[str], note: Path, planned: Plan | None) -> list[str]:
    """Return the command that does the same with forks of a server below ncu as programs; empty if none can.

    NVTX ranges do not reach an ncu that attaches. Sampled launches have theirs from the census; others have no other.

    server: its socket, process and port. note: file for the number of runs of forks. planned: the job's plan.

    >>> words = "--target-processes all --nvtx --nvtx-push-pop-scope process --export x run".split()
    >>> planned = {"error": 0.02}
    >>> attach_command(["ncu", *words], ["s", "1", "2"], Path("n"), planned)[2:9]
    ['profzoo.tools.ncu.multi_run', '--attach', 's', '1', '2', 'n', 'ncu']
    >>> attach_command(["ncu", "--call-stack", *words], ["s", "1", "2"], Path("n"), planned)
    []
    """
    launch, options = split_launch(command[: list(command).index(EXPORT)])
    modes = [value for word, value in itertools.pairwise(options) if word == "--replay-mode"]
    sampled = planned is not None and planned["error"] is not None
    if not sampled or launch != AT_LAUNCH or {*modes} & {*LAUNCHING}:
        return []
    return [*SEVERAL, ATTACH, *server, str(note), *command]


def output_files(made: Mapping[str, Path]) -> list[Path]:
    """Return the report; with several processes, the number of reports is known only when they are read."""
    return [] if "ranks" in made else [made["report"]]


def arrange_outputs(made: Mapping[str, Path]) -> None:
    """Create the folder of further runs, even if there were none."""
    if more := made.get("more"):
        more.mkdir(exist_ok=True)


def adapt_command(command: Sequence[str], gpu: bool) -> list[str]:
    """Return the command with metric names that this GPU knows; gpu: whether the cell will run on a GPU.

    Raises:
        CollectError: it will not.
    """
    if not gpu:
        raise CollectError("ncu profiles GPUs only, and this cell has none: run where one is visible, device not cpu")
    return translate_metrics(command, gpus.read_compute_capabilities())


def check_settings(ncu: "NcuSettings") -> "NcuSettings":
    """Check the configuration of ncu before it runs: reject what ncu would refuse or silently do differently.

    Raises:
        ConfigError: an unknown default set, a combination that ncu does not support, an option given twice.
    """
    if ncu["set"] not in ncu["sets"]:
        raise ConfigError(f"ncu.set = '{ncu['set']}': {suggest_nearest(ncu['set'], ncu['sets'])}")
    if ncu["budget"] is not None:
        parse_budget(ncu["budget"])
    if not LEAST_ERROR <= parse_percent(ncu["error"]) <= 1:
        raise ConfigError(f"ncu.error = '{ncu['error']}': give {LEAST_ERROR:.1%} to 100%, or set ncu.launches to all")
    for name, chosen in ncu["sets"].items():
        where = f"ncu.sets.{name}"
        if not {"set", "sections", "metrics"} & set(chosen):
            raise ConfigError(f"{where} collects nothing: give it set, sections or metrics")
        if measures_ranges(ncu, name):
            if name == CENSUS:
                raise ConfigError(
                    f"{where}.replay = '{replay_mode(ncu, name)}': all launches are counted in it, not ranges"
                )
            _check_ranges(ncu, name)
        elif "ranges" in chosen:
            raise ConfigError(f"{where}.ranges needs range replay: set {where}.replay to app-range")
        elif ncu["budget"] is not None and name != CENSUS and launch_selection(ncu, name) not in (SAMPLED, DISTINCT):
            raise ConfigError(
                f"ncu.budget chooses among launches: set the launches of {where} to sampled or distinct, not "
                f"{launch_selection(ncu, name)!r}"
            )
    if ncu["target_processes"] == "application-only" and ncu["target_processes_filter"]:
        raise ConfigError("ncu.target_processes_filter chooses among child processes: set ncu.target_processes to all")
    defaults.check("ncu.extra", ncu["extra"], OWN_OPTIONS, REFUSED, WHOLE)
    return ncu


def _check_ranges(ncu: "NcuSettings", name: str) -> None:
    chosen, mode = ncu["sets"][name], replay_mode(ncu, name)
    own = "replay" in chosen
    what = f"{f'ncu.sets.{name}.replay' if own else 'ncu.replay'} = '{mode}' measures whole ranges"
    # What is said of launches in general does not concern a set with a replay of its own.
    if ncu["kernel_name"] and not own:
        raise ConfigError(f"{what}: unset ncu.kernel_name")
    key = f"ncu.sets.{name}.launches" if own or "launches" in chosen else "ncu.launches"
    value = chosen.get("launches", "all" if own else ncu["launches"])
    if value != "all":
        raise ConfigError(f"{what}: set {key} to all, not {value!r}")
