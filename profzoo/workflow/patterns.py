"""Which files each cell has, by tool: what tables are made of, what must be there for them, and what is exported."""

from collections.abc import Sequence

from profzoo import tools
from profzoo.cell.config_types import Config
from profzoo.errors import ConfigError, suggest_nearest


def table_patterns_by_tool(config: Config, chosen: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The files of a cell that tables are made of: by name, the tool and the pattern below the model's folder.

    A tool may have the baseline's in the place of its own. chosen: tools, without the baseline.
    """
    patterns: dict[str, tuple[str, str]] = {}
    for tool in (tools.BASELINE, *chosen):
        patterns |= {
            key: (tool, pattern)
            for key, pattern in tools.files()[tool].table_inputs(tools.settings_of(config, tool)).items()
        }
    return patterns


def table_patterns(config: Config, chosen: Sequence[str]) -> dict[str, str]:
    """The files of a cell that tables are made of, by name: patterns below the model's folder."""
    return {key: pattern for key, (_, pattern) in table_patterns_by_tool(config, chosen).items()}


def provided_files_by_tool(config: Config, chosen: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The files of a cell that rules read whichever tool provides them: tool and pattern by names of tools.PROVIDED.

    Raises:
        ConfigError: a tool provides what nothing reads.
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
    """By tool, the baseline among them, the files without which tables have nothing of it from a cell."""
    patterns = table_patterns(config, chosen)
    steps = (tools.BASELINE, f"{tools.BASELINE}_sidecar")
    found: dict[str, Sequence[str]] = {tools.BASELINE: [patterns[key] for key in steps]}
    return found | {tool: tools.files()[tool].required_files(tools.settings_of(config, tool)) for tool in chosen}


def exported_patterns(config: Config, chosen: Sequence[str]) -> list[tuple[str, str]]:
    """What `all` exports of each cell: tool and pattern, the baseline's table of steps first."""
    patterns = [
        (tool, pattern)
        for tool in chosen
        for pattern in tools.files()[tool].exported_files(tools.settings_of(config, tool))
    ]
    return [table_patterns_by_tool(config, chosen)[tools.BASELINE], *patterns]
