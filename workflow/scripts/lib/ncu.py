"""Nsight Compute's command line from the configuration, and what cannot be combined in it."""

from collections.abc import Mapping, Sequence
from typing import Any

from workflow.scripts.lib.schema import ConfigError, suggest

# The section set whose launches are counted.
CENSUS = "launch"
# Parts of a launch configuration that ncu shows as metrics only; they take no pass.
SHARED_MEMORY = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
RANGE_REPLAY = ("range", "app-range")
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
    "--filter-mode": "ncu.launches",
    "-c": "ncu.launches",
    "--launch-count": "ncu.launches",
    "--devices": "ncu.devices",
    "--cache-control": "ncu.cache_control",
    "--clock-control": "ncu.clock_control",
    "--import-sass": "ncu.sass",
    "--profile-from-start": "warmup and window",
    "--nvtx": "nothing, it is always on",
    "--nvtx-push-pop-scope": "nothing, it is always process",
}


def launches(ncu: Mapping[str, Any], name: str) -> str | int:
    """The launch selection of a section set: its own, else ncu.launches."""
    return ncu["sets"][name].get("launches", ncu["launches"])


def options(ncu: Mapping[str, Any], name: str) -> list[str]:
    """Options of ncu, but for the report's name, that collect the section set of that name."""
    chosen, replay, selection = ncu["sets"][name], ncu["replay"], launches(ncu, name)
    words = ["--force-overwrite", "--replay-mode", replay, "--target-processes", ncu["target_processes"]]
    if replay not in RANGE_REPLAY:
        # Range replay takes the window between profiler start and stop as its range, and refuses this option.
        words += ["--profile-from-start", "off"]
    # Ranges belong to the thread that opened them; autograd launches the backward pass from another one.
    words += ["--nvtx", "--nvtx-push-pop-scope", "process"]
    words += ["--cache-control", chosen.get("cache_control", ncu["cache_control"])]
    words += ["--clock-control", ncu["clock_control"]]
    words += ["--import-sass", "yes" if ncu["sass"] else "no"]
    if ncu["target_processes_filter"]:
        words += ["--target-processes-filter", ncu["target_processes_filter"]]
    if ncu["devices"]:
        words += ["--devices", ",".join(map(str, ncu["devices"]))]
    if selection == "distinct":
        # Without mangled names, instances of one template count as one configuration and all but one are lost.
        words += [
            "--filter-mode",
            "per-launch-config",
            "--launch-count",
            "1",
            "--kernel-name-base",
            "mangled",
        ]
    elif selection != "all":
        words += ["--launch-count", str(selection)]
    if ncu["kernel_name"]:
        words += ["--kernel-name", f"regex:{ncu['kernel_name']}"]
    return words + collected(chosen, () if replay in RANGE_REPLAY else SHARED_MEMORY) + ncu["extra"]


def collected(chosen: Mapping[str, Any], also: Sequence[str] = ()) -> list[str]:
    """Options of ncu that collect a section set's sections and metrics, and also these metrics."""
    words = ["--set", chosen["set"]] if "set" in chosen else []
    sections = chosen.get("sections", [])
    for section in [sections] if isinstance(sections, str) else sections:
        words += ["--section", section]
    metrics = list(dict.fromkeys([*chosen.get("metrics", []), *also]))
    return words + (["--metrics", ",".join(metrics)] if metrics else [])


def check(ncu: Mapping[str, Any]) -> None:
    """Refuse what ncu would refuse, or silently do otherwise, only once it runs.

    Raises:
        ConfigError: an unknown default set, a combination that ncu does not support, an option given twice.
    """
    if ncu["set"] not in ncu["sets"]:
        raise ConfigError(f"ncu.set = '{ncu['set']}': {suggest(ncu['set'], ncu['sets'])}")
    if ncu["replay"] in RANGE_REPLAY:
        if ncu["kernel_name"]:
            raise ConfigError(f"ncu.replay = '{ncu['replay']}' measures whole ranges: unset ncu.kernel_name")
        selections = {"ncu.launches": ncu["launches"]}
        selections |= {f"ncu.sets.{name}.launches": launches(ncu, name) for name in ncu["sets"]}
        for key, value in selections.items():
            if value != "all":
                raise ConfigError(
                    f"ncu.replay = '{ncu['replay']}' measures whole ranges: set {key} to all, not {value!r}"
                )
    for name, chosen in ncu["sets"].items():
        if not {"set", "sections", "metrics"} & set(chosen):
            raise ConfigError(f"ncu.sets.{name} collects nothing: give it set, sections or metrics")
    if ncu["target_processes"] == "application-only" and ncu["target_processes_filter"]:
        raise ConfigError("ncu.target_processes_filter chooses among child processes: set ncu.target_processes to all")
    for word in ncu["extra"]:
        if (option := word.partition("=")[0]) in OWN_OPTIONS:
            raise ConfigError(
                f"ncu.extra holds {option}, which the workflow gives itself: change {OWN_OPTIONS[option]}"
            )
