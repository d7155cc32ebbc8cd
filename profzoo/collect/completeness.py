"""Finds which measurements of the selected cells exist when nothing more is collected, and why others are missing."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict

from profzoo import tools
from profzoo.cell import settings
from profzoo.collect import failure_summary, missing_parts, run_state
from profzoo.collect.failure_summary import Failure

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config

Cell = tuple[str, str]
# Variable that names the file of a run's failures, for the run that makes the partial report.
WITHOUT = "PROFZOO_WITHOUT"
UNMADE = "not measured yet"
SAID = "profzoo: "


class ToldFailure(TypedDict):
    """A failure as one run hands it to another; weights: whether the failed job trained weights for inference."""

    model: str
    phase: str
    tool: str
    why: str
    weights: bool


def available_tools(
    cells: Iterable[Cell],
    kept: Mapping[str, Sequence[str]],
    results: Path,
    logs: Path,
    config: "Config",
    without: str | None = None,
) -> tuple[dict[Cell, frozenset[str]], list[dict[str, str]]]:
    """Available tools by cell, and rows of missing measurements with the keys model, phase, tool and why.

    A cell without its unprofiled baseline is missing as a whole: it gets one row, with an empty tool.

    Args:
        kept: patterns of the files that each tool, or the baseline, makes for a cell, by tool.
        without: file of failures of an ended run, as `write_failures` writes it.
    """
    noted = json.loads(Path(without).read_text()) if without else {"unmade": [], "failures": []}
    unmade = set(noted["unmade"])
    there, missing = {}, []
    for model, phase in cells:
        trained = settings.weights_source(model, phase, config)
        mine = [
            one
            for one in noted["failures"]
            if (one["model"], one["phase"]) == (trained if one["weights"] else model, phase)
        ]
        paths = {tool: [results / model / name.format(phase=phase) for name in names] for tool, names in kept.items()}
        whole = {tool for tool in kept if all(path.exists() and str(path) not in unmade for path in paths[tool])}
        have = frozenset(whole - {one["tool"] for one in mine})
        there[model, phase] = have
        for tool in kept if tools.BASELINE in have else [tools.BASELINE]:
            if tool not in have:
                weights = [logs / trained / "weights.log"] if trained else []
                why = _told(mine, tool) or _logged(logs / model, weights, phase, tool, config) or _gone(paths[tool])
                named = "" if tool == tools.BASELINE else tool
                missing.append({"model": model, "phase": phase, "tool": named, "why": why})
    return there, missing


def write_failures(
    failed: Iterable[Failure],
    unmade: Iterable[str],
    config: "Config",
    path: Path,
    results: str,
    unfound: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the failures of a run to a file, for the run that makes the partial report.

    results: the results folder; unfound: files that no rule can make, with the reasons.
    """
    told: list[ToldFailure] = []
    gone = dict(unfound)
    for one in failed:
        why = one.why
        files = missing_parts.blamed_files(one, why, results)
        model, measures = one.wildcards.get("model"), bool(one.job)
        if (added := [file for file in files if missing_parts.is_dispensable(file)]) and not (model and measures):
            gone |= dict.fromkeys(added, why)
        elif model:
            phase, tool = _about(one, config)
            told.append({"model": model, "phase": phase, "tool": tool, "why": why, "weights": _trains(one)})
        elif files and files != list(one.outputs):
            at = Path(files[0])
            phase, tool = at.name.split(".")[0], _tool_of(at.name, config)
            told.append({"model": at.parent.name, "phase": phase, "tool": tool, "why": why, "weights": False})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"unmade": sorted(unmade), "failures": told, "lost": gone}))


def _about(failure: Failure, config: "Config") -> tuple[str, str]:
    """Phase and tool of a failed job; jobs for weights count as the baseline of inference."""
    job = failure.described
    if _trains(failure):
        return "inference", tools.BASELINE
    if "sides" in job or "trials" in job or not failure.outputs:
        return failure.phase, ""
    return failure.phase, job.get("tool") or _tool_of(Path(failure.outputs[0]).name, config)


def _trains(failure: Failure) -> bool:
    return failure.described.get("tool") == "train"


def _tool_of(name: str, config: "Config") -> str:
    """Tool that a cell's file or log belongs to; empty for none."""
    parts = set(name.split(".")[1:])
    return next(
        (tool for tool, one in tools.files().items() if parts & set(one.name_parts(tools.settings_of(config, tool)))),
        "",
    )


def _told(told: Sequence[ToldFailure], tool: str) -> str:
    """Reason why a tool's measurement of a cell failed, or why a measurement that it may need failed."""
    by_itself = [one for one in told if not one["why"].startswith(run_state.NOT_RUN)] or told
    mine = [one for one in told if one["tool"] == tool and one in by_itself]
    if mine:
        return mine[0]["why"]
    return f"not run, because {by_itself[0]['tool']} failed: {by_itself[0]['why']}" if by_itself else ""


def _logged(folder: Path, weights: Sequence[Path], phase: str, tool: str, config: "Config") -> str:
    """Reason of the last failure, from the end of the failed job's log; weights: logs of the training it needs."""
    names = [path for path in sorted(folder.glob(f"{phase}.*.log")) if _tool_of(path.name, config) == tool]
    for path in [*names, *weights]:
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        if lines and lines[-1].startswith(SAID):
            return failure_summary.read_cause([str(path)])
    return ""


def _gone(paths: Sequence[Path]) -> str:
    """Text that names the missing file among several, or says that all are missing."""
    gone = [path.name for path in paths if not path.exists()]
    return f"{gone[0]} is missing" if 0 < len(gone) < len(paths) else UNMADE
