"""Lists missing results of the selected cells when nothing more is collected."""

from collections.abc import Iterable, Mapping

from profzoo.terminal import phrases

# Most cells to name of those that lack the same results.
SHOWN = 3


def list_missing(missing: Iterable[Mapping[str, str]]) -> list[str]:
    """Return one line per tool and reason.

    missing: `model`, `phase`, `tool` and `why` of each missing result, from collect.completeness.

    >>> list_missing([{"model": "lstm", "phase": "train", "tool": "ncu", "why": "not measured yet"}])
    ['no results of ncu in 1 cell (lstm train): not measured yet']
    """
    found: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        of_tool = f"no results of {one['tool']}" if one["tool"] else "no results"
        found.setdefault((of_tool, one["why"]), []).append(f"{one['model']} {one['phase']}")
    return [
        f"{nothing} in {phrases.format_count(len(cells), 'cell')} ({phrases.join_first_names(cells, SHOWN)}): {why}"
        for (nothing, why), cells in found.items()
    ]
