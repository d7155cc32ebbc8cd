"""Lists the files of each cell by tool: inputs of tables, required files, and exports."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from profzoo import tools
from profzoo.cell.config_types import Config
from profzoo.errors import ConfigError, suggest_nearest

# Writes the regular expressions that wildcards of rules have to match.

# Phases of cells that this workflow measures, in contrast to imported cells.
MEASURED = {"phase": "train|inference"}
# How many GPUs on how many nodes are joined by the links that a file is about.
LINKED = {"nodes": "[1-9][0-9]*", "gpus": "[1-9][0-9]*"}


def match_any(names: Iterable[str]) -> str:
    """A regular expression that matches exactly these names."""
    return "|".join(map(re.escape, names))


def match_models(names: Iterable[str], variants: Iterable[str]) -> str:
    """A regular expression of these models, alone or with variants: lstm, lstm@bf16, lstm@bf16+compiled.

    >>> match_models(["lstm"], ["bf16", "two"])
    '(lstm)(@(bf16|two)([+](bf16|two))*)?'
    """
    one_of = f"({match_any(variants)})"
    return f"({match_any(names)})(@{one_of}([+]{one_of})*)?"


def match_several_gpus(models: Collection[str]) -> dict[str, str]:
    """Constraints that match cells on several GPUs: training of these models."""
    return {"model": match_any(models) or "no_cell", "phase": "train"}


def match_timed_inside(own: Mapping[str, Any]) -> dict[str, str]:
    """Constraints that match cells whose baseline is timed in the profiled process; own: the profiler's settings."""
    return MEASURED if own["baseline"] else {"model": "no_cell"}


def match_sampled_sets(names: Collection[str]) -> dict[str, str]:
    """Constraints that match section sets whose launches are chosen by a plan."""
    return {"set": match_any(names) or "no_set", **MEASURED}


def table_patterns_by_tool(config: Config, chosen: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Files of a cell from which tables are made: tool and pattern below the model's folder, by name.

    A tool may replace a file of the baseline by its own file. chosen: tools, without the baseline.
    """
    patterns: dict[str, tuple[str, str]] = {}
    for tool in (tools.BASELINE, *chosen):
        patterns |= {
            key: (tool, pattern)
            for key, pattern in tools.files()[tool].table_inputs(tools.settings_of(config, tool)).items()
        }
    return patterns


def table_patterns(config: Config, chosen: Sequence[str]) -> dict[str, str]:
    """Files of a cell from which tables are made: patterns below the model's folder, by name."""
    return {key: pattern for key, (_, pattern) in table_patterns_by_tool(config, chosen).items()}


def provided_files_by_tool(config: Config, chosen: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Files of a cell that rules read from any tool: tool and pattern, by names of tools.PROVIDED.

    Raises:
        ConfigError: a tool provides a file that no rule reads.
    """
    found = table_patterns_by_tool(config, chosen)
    for tool in (tools.BASELINE, *chosen):
        provided = tools.files()[tool].provided_files(tools.settings_of(config, tool))
        if unknown := [name for name in provided if name not in tools.PROVIDED]:
            near = suggest_nearest(unknown[0], tools.PROVIDED)
            raise ConfigError(f"the tool '{tool}' provides '{unknown[0]}', which nothing reads: {near}")
        found |= {name: (tool, pattern) for name, pattern in provided.items()}
    return {name: found[name] for name in tools.PROVIDED if name in found}


def required_files(config: Config, chosen: Sequence[str]) -> dict[str, Sequence[str]]:
    """Files of a cell that tables need from each tool, including the baseline, by tool."""
    patterns = table_patterns(config, chosen)
    steps = (tools.BASELINE, f"{tools.BASELINE}_sidecar")
    found: dict[str, Sequence[str]] = {tools.BASELINE: [patterns[key] for key in steps]}
    return found | {tool: tools.files()[tool].required_files(tools.settings_of(config, tool)) for tool in chosen}


def exported_patterns(config: Config, chosen: Sequence[str]) -> list[tuple[str, str]]:
    """Exports of each cell by `all`: pairs of tool and pattern, the baseline's step table first."""
    patterns = [
        (tool, pattern)
        for tool in chosen
        for pattern in tools.files()[tool].exported_files(tools.settings_of(config, tool))
    ]
    return [table_patterns_by_tool(config, chosen)[tools.BASELINE], *patterns]
