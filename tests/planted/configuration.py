"""The configuration of snakemake that measures a half of the planted cases and their twins."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from profzoo import tools
from profzoo.config import configuration
from tests.planted.cases import Case

# Tools of a case with its fault, and of its twin; and what counters are collected where they are asked for.
TOOLS, OF_TWIN = ("time", "nsys", "torch", "ncu"), ("time",)
COUNTERS = {"set": "roofline", "budget": "25s"}
# Steps that each tool records: enough for a median of times, and for traces to be repeated.
WINDOWS = {"time": 12, "nsys": 4, "torch": 2}


def settings_of(case: Case, tiny: bool = False) -> dict[str, Mapping[str, object]]:
    """Settings of a case and of its twin, by their names; tiny: of the size for a CPU, without what takes a GPU."""
    sizes = importlib.import_module(case.module).TINY if tiny else {}
    common = {"module": case.module, **case.settings, **sizes}
    mended = {**common, "fault": False, **case.mended}
    if tiny:
        mended.pop("graph", None)
    return {case.name: {**common, "fault": True}, case.twin: mended}


def given(cases: Sequence[Case], tiny: bool = False, counters: bool = False) -> dict[str, Any]:
    """The configuration but for folders: these cases and their twins; counters: whether ncu counts, too."""
    settings = {name: one for case in cases for name, one in settings_of(case, tiny).items()}
    chosen = {
        "models": list(settings),
        "settings": settings,
        "phases": sorted({case.phase for case in cases}),
        "tool": ["nsys", "torch", *(["ncu"] if counters else [])],
        **({"ncu": COUNTERS} if counters else {}),
        "locks": {"overlap": True},
        **{tool: {"window": window} for tool, window in WINDOWS.items()},
    }
    if tiny:
        return chosen | {"tool": ["torch"], "device": "cpu", "warmup": 1, "time": {"window": 3}, "torch": {"window": 1}}
    return chosen


def files_of(case: Case, tiny: bool = False, counters: bool = False) -> dict[str, list[str]]:
    """Files below the results that a case takes, and those of its twin, by their names."""
    config = configuration.normalise_config(given([case], tiny, counters))
    of_case = [tool for tool in TOOLS if tool == "time" or tool in config["tool"]]
    found = {}
    for name, wanted in ((case.name, of_case), (case.twin, OF_TWIN)):
        patterns = [pattern for tool in wanted for pattern in tools.files()[tool].required_files(config[tool])]
        found[name] = [f"{name}/{pattern.format(phase=case.phase)}" for pattern in patterns]
    return found


def shared_files() -> list[str]:
    """Files below the results that all cases share: what the GPU can do."""
    return [f"peaks/{configuration.normalise_config({})['gpu']}.csv"]
